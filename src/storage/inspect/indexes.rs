//! The two indexes of a segment, compared with its batches as they go by.

use std::path::{Path, PathBuf};

use super::content::{Content, IndexEntry, TimeIndexEntry, read};
use crate::record::BatchHeader;
use crate::types::{Offset, TimestampMs};

/// A file, where in it, and what is wrong there.
pub(super) type Complaint = (PathBuf, Option<u64>, String);

/// Of each index only the first complaint counts: it is made anew as a whole.
pub(super) struct Indexes {
    offsets: Checked<IndexEntry>,
    times: Checked<TimeIndexEntry>,
    base_offset: Offset,
    max_timestamp_ms: TimestampMs,
    /// Without batches that compaction emptied. Our indexes end with this, those of Kafka with the other.
    max_of_records_ms: TimestampMs,
    has_unreadable: bool,
}

struct Checked<E> {
    path: PathBuf,
    entries: Vec<E>,
    /// The next that was not met.
    at: usize,
    entry_size: u64,
    is_missing: bool,
    complaint: Option<(Option<u64>, String)>,
}

impl<E> Checked<E> {
    fn load(path: PathBuf, entry_size: u64, entries: impl FnOnce(Content) -> Vec<E>) -> Self {
        let (mut is_missing, mut complaint) = (false, None);
        let entries = match read(&path) {
            Ok(content) => entries(content),
            Err(error) => {
                is_missing = error.is_not_found();
                complaint = (!is_missing).then(|| (None, error.to_string()));
                Vec::new()
            }
        };
        Self { path, entries, at: 0, entry_size, is_missing, complaint }
    }

    fn complain(&mut self, reason: impl FnOnce() -> String) {
        let position = self.at as u64 * self.entry_size;
        self.complaint.get_or_insert_with(|| (Some(position), reason()));
    }

    fn finish(mut self, must_exist: bool) -> Option<Complaint> {
        if self.is_missing && must_exist {
            self.complaint = Some((None, "is missing".to_owned()));
        }
        if self.at < self.entries.len() {
            self.complain(|| "names what is beyond the end of the log".to_owned());
        }
        let path = self.path;
        self.complaint.map(|(position, reason)| (path, position, reason))
    }
}

impl Indexes {
    pub(super) fn load(log: &Path, base_offset: Offset) -> Self {
        let offsets = |content| match content {
            Content::Offsets(entries) => entries,
            _ => Vec::new(),
        };
        let times = |content| match content {
            Content::Times(entries) => entries,
            _ => Vec::new(),
        };
        Self {
            offsets: Checked::load(log.with_extension("index"), 8, offsets),
            times: Checked::load(log.with_extension("timeindex"), 12, times),
            base_offset,
            max_timestamp_ms: -1,
            max_of_records_ms: -1,
            has_unreadable: false,
        }
    }

    pub(super) fn on_batch(&mut self, position: u64, header: &BatchHeader) {
        self.on_place(position, header);
        self.max_timestamp_ms = self.max_timestamp_ms.max(header.max_timestamp_ms);
        if header.record_count > 0 {
            self.max_of_records_ms = self.max_of_records_ms.max(header.max_timestamp_ms);
        }
        let times = &mut self.times;
        while let Some(entry) = times.entries.get(times.at).copied()
            && entry.offset <= header.last_offset()
        {
            let last = times.at.checked_sub(1).map(|before| times.entries[before]);
            if last.is_some_and(|last| {
                last.timestamp_ms >= entry.timestamp_ms || last.offset > entry.offset
            }) {
                times.complain(|| "entries do not ascend".to_owned());
            } else if entry.offset < header.base_offset
                || entry.timestamp_ms != header.max_timestamp_ms
            {
                let (offset, timestamp_ms) = (entry.offset, entry.timestamp_ms);
                times.complain(|| {
                    format!("no batch at offset {offset} has timestamp {timestamp_ms}")
                });
            }
            times.at += 1;
        }
    }

    /// For a batch of which nothing but its place can be believed.
    pub(super) fn on_unreadable(&mut self, position: u64, header: &BatchHeader) {
        self.on_place(position, header);
        self.has_unreadable = true;
        let rest = &self.times.entries[self.times.at..];
        self.times.at += rest.partition_point(|entry| entry.offset <= header.last_offset());
    }

    fn on_place(&mut self, position: u64, header: &BatchHeader) {
        let offsets = &mut self.offsets;
        while let Some(entry) = offsets.entries.get(offsets.at).copied()
            && u64::from(entry.position) <= position
        {
            let is_right = u64::from(entry.position) == position
                && entry.offset == header.last_offset()
                && entry.offset > self.base_offset;
            if !is_right {
                let IndexEntry { offset, position } = entry;
                offsets.complain(|| {
                    format!("no batch that ends with offset {offset} is at byte {position}")
                });
            }
            offsets.at += 1;
        }
    }

    /// `is_complete`: the segment is not written to any more, and all of it was seen.
    pub(super) fn finish(mut self, is_complete: bool) -> impl Iterator<Item = Complaint> {
        let last_ms = self.times.entries.last().map_or(-1, |last| last.timestamp_ms);
        let max_ms = self.max_timestamp_ms;
        let is_last = last_ms == max_ms || last_ms == self.max_of_records_ms;
        if is_complete && !self.times.is_missing && !self.has_unreadable && !is_last {
            self.times.complain(|| format!("ends with timestamp {last_ms}, the log has {max_ms}"));
        }
        let times = self.times.finish(is_complete);
        self.offsets.finish(is_complete).into_iter().chain(times)
    }
}
