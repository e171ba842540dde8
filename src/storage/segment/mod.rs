//! One segment: a `.log` file of batches and its two indexes.
//!
//! The writer of the log is the only one that changes a segment; the lock inside is held for memory operations, and
//! for the rare write of index entries. Files are opened when they are needed and closed when they have not been for a
//! while (`cool`).

mod lookup;
mod recover;
mod verify;

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use parking_lot::Mutex;

pub(super) use lookup::Wanted;
pub(super) use recover::RecoveryRules;
use verify::Checked;

use super::index::{Index, OffsetEntry, TimeEntry};
use super::{Error, ReadError, Result, fs};
use crate::metadata::config::TopicConfig;
use crate::record::{BatchHeader, batches};
use crate::types::{Offset, TimestampMs};

/// Batches at the end of the active segment that readers find without touching a file.
const RECENT_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Segment {
    pub(super) base_offset: Offset,
    /// Of the `.log` file.
    path: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    /// Its files have the names that compaction writes to.
    is_cleaned: bool,
    /// Another segment has taken its place, and the names of its files.
    is_retired: AtomicBool,
    /// Since the last [`Segment::cool`].
    used: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    size: u64,
    next_offset: Offset,
    offsets: Index<OffsetEntry>,
    times: Index<TimeEntry>,
    /// Bytes since the last entry of the offset index.
    since_entry: u64,
    max: Option<MaxTimestamp>,
    /// Largest timestamp of the first batch.
    first_timestamp_ms: Option<TimestampMs>,
    created_ms: TimestampMs,
    recent: VecDeque<Recent>,
    checked: Checked,
}

/// The largest timestamp, and the last offset of the first batch that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MaxTimestamp {
    timestamp_ms: TimestampMs,
    last_offset: Offset,
}

#[derive(Debug, Clone, Copy)]
struct Recent {
    base_offset: Offset,
    next_offset: Offset,
    position: u64,
    size: u64,
}

pub(super) fn file_name(base_offset: Offset, extension: &str) -> String {
    format!("{base_offset:020}.{extension}")
}

/// The offset that the name of a file says.
pub(super) fn base_offset(path: &Path) -> Option<Offset> {
    let name = path.file_name()?.to_str()?;
    let digits = name.split('.').next().filter(|digits| digits.len() == 20)?;
    digits.parse().ok()
}

impl Segment {
    /// Makes the file of a new, empty segment.
    pub(super) fn create(dir: &Path, base_offset: Offset, now_ms: TimestampMs) -> Result<Self> {
        let path = dir.join(file_name(base_offset, "log"));
        let file = fs::create(&path)?;
        let segment = Self::new(path, base_offset, 0, base_offset, now_ms);
        *segment.file.lock() = Some(Arc::new(file));
        Ok(segment)
    }

    /// Makes the file of a new segment that is to take the place of others, with this base offset or above.
    pub(super) fn create_cleaned(
        dir: &Path,
        base_offset: Offset,
        now_ms: TimestampMs,
    ) -> Result<Self> {
        let path = dir.join(file_name(base_offset, "log") + CLEANED);
        let file = fs::create(&path)?;
        let mut segment = Self::new(path, base_offset, 0, base_offset, now_ms);
        segment.is_cleaned = true;
        *segment.file.get_mut() = Some(Arc::new(file));
        Ok(segment)
    }

    /// The same segment under its final names, which its files are about to get.
    pub(super) fn into_final(mut self) -> Self {
        self.is_cleaned = false;
        self.path = self.sibling("log");
        self
    }

    /// Holds the file open for the readers that still have the segment, because its name is about to be another one's.
    pub(super) fn retire(&self) -> Result<()> {
        // What the index files knew has to be known before they are others.
        self.largest_timestamp_ms().map_err(ReadError::into_storage)?;
        let mut file = self.file.lock();
        if file.is_none() {
            *file = Some(Arc::new(fs::open(&self.path)?));
        }
        self.is_retired.store(true, Ordering::Release);
        Ok(())
    }

    fn new(
        path: PathBuf,
        base_offset: Offset,
        size: u64,
        next_offset: Offset,
        created_ms: TimestampMs,
    ) -> Self {
        let state = State {
            size,
            next_offset,
            offsets: Index::new(),
            times: Index::new(),
            since_entry: 0,
            max: (size == 0).then_some(MaxTimestamp { timestamp_ms: -1, last_offset: base_offset }),
            first_timestamp_ms: None,
            created_ms,
            recent: VecDeque::new(),
            checked: if size == 0 { Checked::ALL } else { Checked::NOTHING },
        };
        Self {
            base_offset,
            path,
            file: Mutex::new(None),
            is_cleaned: false,
            is_retired: AtomicBool::new(false),
            used: AtomicBool::new(true),
            state: Mutex::new(state),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.state.lock().size
    }

    pub(super) fn next_offset(&self) -> Offset {
        self.state.lock().next_offset
    }

    /// Bytes of its larger index.
    pub(super) fn index_size(&self) -> usize {
        let state = self.state.lock();
        state.offsets.size().max(state.times.size())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn index_path(&self) -> PathBuf {
        self.sibling("index")
    }

    pub(super) fn time_index_path(&self) -> PathBuf {
        self.sibling("timeindex")
    }

    pub(super) fn transaction_index_path(&self) -> PathBuf {
        self.sibling("txnindex")
    }

    fn sibling(&self, extension: &str) -> PathBuf {
        let suffix = if self.is_cleaned { CLEANED } else { "" };
        self.path.with_file_name(file_name(self.base_offset, extension) + suffix)
    }

    /// Of all files that a segment may have.
    pub(super) fn paths(&self) -> [PathBuf; 4] {
        ["log", "index", "timeindex", "txnindex"].map(|extension| self.sibling(extension))
    }

    /// When the `.log` file was written last.
    pub(super) fn modified_ms(&self) -> Result<TimestampMs> {
        let modified = self.path.metadata().and_then(|metadata| metadata.modified());
        let modified = modified.map_err(Error::io("look at", &self.path))?;
        let since_epoch = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(TimestampMs::try_from(since_epoch.as_millis()).unwrap_or(TimestampMs::MAX))
    }

    /// The `.log` file, opened if it is not.
    pub(super) fn file(&self) -> Result<Arc<File>> {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        Ok(Arc::clone(file.insert(Arc::new(fs::open(&self.path)?))))
    }

    /// Whether `header` must go to a new segment, `pending` bytes being about to be written before it.
    pub(super) fn must_roll(
        &self,
        header: &BatchHeader,
        pending: usize,
        config: &TopicConfig,
        now_ms: TimestampMs,
    ) -> bool {
        if header.last_offset() - self.base_offset > i64::from(i32::MAX) {
            return true;
        }
        let state = self.state.lock();
        let size = state.size + pending as u64;
        if size == 0 {
            return false;
        }
        let index_size_max = config.segment_index_bytes as usize;
        let age_max_ms = config.roll_ms().min(config.segment_ms - self.jitter_ms(config));
        let age_ms = match state.first_timestamp_ms {
            Some(first_ms) if first_ms >= 0 && header.max_timestamp_ms >= 0 => {
                header.max_timestamp_ms.saturating_sub(first_ms)
            }
            _ => now_ms.saturating_sub(state.created_ms),
        };
        size + header.size as u64 > u64::from(config.segment_bytes)
            || age_ms > age_max_ms
            || state.offsets.size() + OFFSET_ENTRY_SIZE > index_size_max
            // The last entry is kept for the end.
            || state.times.size() + 2 * TIME_ENTRY_SIZE > index_size_max
    }

    /// How much earlier than others this segment ends, always the same: below `segment.jitter.ms` and `segment.ms`.
    fn jitter_ms(&self, config: &TopicConfig) -> TimestampMs {
        let bound = config.segment_jitter_ms.min(config.segment_ms);
        if bound <= 1 {
            return 0;
        }
        let bound = bound.cast_unsigned();
        let mut hasher = DefaultHasher::new();
        self.path.hash(&mut hasher);
        (hasher.finish() % bound).cast_signed()
    }

    /// Writes batches, which are whole and in order, with one system call.
    pub(super) fn append(&self, bytes: &[u8], config: &TopicConfig) -> Result<()> {
        let position = self.state.lock().size;
        let file = self.file()?;
        if let Err(error) = fs::write(&file, &self.path, bytes, position) {
            if error.is_full() {
                // A part of it may be there. The next batch goes to the same place, and recovery must not meet it.
                fs::truncate(&file, &self.path, position)?;
            }
            return Err(error);
        }
        let mut state = self.state.lock();
        state.checked.tail_from = state.checked.tail_from.min(position);
        for batch in batches(bytes) {
            let header = batch.expect("the caller parsed these batches").header;
            self.index(&mut state, &header, config.index_interval_bytes, true);
        }
        let wants_spill = |state: &State| state.offsets.wants_spill() || state.times.wants_spill();
        match self.spill(&mut state, wants_spill) {
            // The batch is there. Index entries wait in memory for the next time.
            Err(error) if error.is_full() || error.is_resource_limit() => Ok(()),
            spilled => spilled,
        }
    }

    /// Takes note of the batch that lies at the end of what is known.
    fn index(&self, state: &mut State, header: &BatchHeader, interval: u32, is_recent: bool) {
        let position = state.size;
        let max = state.max.get_or_insert(MaxTimestamp { timestamp_ms: -1, last_offset: -1 });
        // A batch that compaction left without records has the timestamp of none.
        if header.record_count > 0 && header.max_timestamp_ms > max.timestamp_ms {
            max.timestamp_ms = header.max_timestamp_ms;
            max.last_offset = header.last_offset();
        }
        if position == 0 {
            state.first_timestamp_ms = Some(header.max_timestamp_ms);
        }
        if state.since_entry > u64::from(interval) {
            state.offsets.push(OffsetEntry {
                relative_offset: self.relative(header.last_offset()),
                position: u32::try_from(position).unwrap_or(u32::MAX),
            });
            self.push_time(state);
            state.since_entry = 0;
        }
        let size = header.size as u64;
        state.since_entry += size;
        state.size += size;
        state.next_offset = header.next_offset();
        if is_recent {
            if state.recent.len() == RECENT_MAX {
                state.recent.pop_front();
            }
            let (base_offset, next_offset) = (header.base_offset, header.next_offset());
            state.recent.push_back(Recent { base_offset, next_offset, position, size });
        }
    }

    /// Adds the largest timestamp to the time index, if it grew since.
    fn push_time(&self, state: &mut State) {
        let Some(max) = state.max else {
            return;
        };
        // A time index that cannot be read has no last entry; the next recovery rebuilds it.
        let last = state.times.last(&self.time_index_path()).ok().flatten();
        if max.timestamp_ms > last.map_or(-1, |last| last.timestamp_ms) {
            state.times.push(TimeEntry {
                timestamp_ms: max.timestamp_ms,
                relative_offset: self.relative(max.last_offset),
            });
        }
    }

    fn relative(&self, offset: Offset) -> u32 {
        u32::try_from(offset - self.base_offset).unwrap_or(0)
    }

    fn spill(&self, state: &mut State, when: impl Fn(&State) -> bool) -> Result<()> {
        if when(state) {
            state.offsets.spill(&self.index_path())?;
            state.times.spill(&self.time_index_path())?;
        }
        Ok(())
    }

    /// Completes the indexes on disk, because the segment will not be appended to for now.
    pub(super) fn seal(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.push_time(&mut state);
        self.spill(&mut state, |_| true)?;
        state.recent = VecDeque::new();
        Ok(())
    }

    /// Lets go of what makes the next access quick, if there was none since the last call and, for the sake of sync
    /// errors, nothing waits to be synced. True when the file is closed.
    pub(super) fn cool(&self) -> bool {
        if self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.close();
        self.state.lock().recent = VecDeque::new();
        true
    }

    /// Closes the file; the next access opens it again.
    pub(super) fn close(&self) {
        let mut file = self.file.lock();
        if !self.is_retired.load(Ordering::Acquire) {
            *file = None;
        }
    }
}

/// What compaction adds to the names of files that do not count yet.
const CLEANED: &str = ".cleaned";
const OFFSET_ENTRY_SIZE: usize = 8;
const TIME_ENTRY_SIZE: usize = 12;
