//! Finding batches in a segment: by offset, and by time.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::index::{Found, OffsetEntry, TimeEntry, find_on_disk};
use super::super::scan::{Scanned, Scanner};
use super::super::slice::Slice;
use super::super::{ReadError, Result};
use super::{MaxTimestamp, Segment, State};
use crate::record::BatchHeader;
use crate::types::{Offset, TimestampMs};

/// What a reader wants.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Wanted {
    pub(in super::super) from: Offset,
    /// No offset at or above this.
    pub(in super::super) upper: Offset,
    pub(in super::super) size_max: usize,
    /// Even if it is larger than `size_max`.
    pub(in super::super) at_least_one: bool,
}

impl Segment {
    /// Whole batches from the one that holds `from` on. `None` when they are all below. Those that are read for the first
    /// time are verified, with the help of `is_right`.
    pub(in super::super) fn slice(
        &self,
        wanted: &Wanted,
        is_right: &dyn Fn(&BatchHeader) -> bool,
    ) -> Result<Option<Slice>, ReadError> {
        let (size, next_offset) = {
            let state = self.state.lock();
            if wanted.from >= state.next_offset {
                return Ok(None);
            }
            if let Some(range) = state.recent_range(wanted) {
                drop(state);
                return Ok(Some(self.make_slice(range, wanted.from)?));
            }
            (state.size, state.next_offset)
        };
        let file = self.file()?;
        let Some(first) = self.find_batch(&file, wanted.from, size)? else {
            return Ok(None);
        };
        let position_max = first.position + wanted.size_max as u64;
        let one = Range {
            position: first.position,
            end: first.end(),
            next_offset: first.header.next_offset(),
        };
        if one.next_offset > wanted.upper || (one.end > position_max && !wanted.at_least_one) {
            return Ok(Some(Slice::empty(wanted.from)));
        }
        let range = if one.end > position_max {
            one
        } else if size <= position_max && next_offset <= wanted.upper {
            Range { end: size, next_offset, ..one }
        } else {
            self.longest(&file, one, position_max.min(size), wanted.upper, size)?
        };
        self.verify(&file, &range, is_right)?;
        Ok(Some(self.make_slice(range, wanted.from)?))
    }

    fn make_slice(&self, range: Range, from: Offset) -> Result<Slice> {
        if range.end == range.position {
            return Ok(Slice::empty(from));
        }
        Ok(Slice {
            file: Some(self.file()?),
            position: range.position,
            size: usize::try_from(range.end - range.position).unwrap_or(usize::MAX),
            next_offset: range.next_offset,
        })
    }

    /// The first batch that ends at or after `offset`.
    pub(in super::super) fn find_batch(
        &self,
        file: &File,
        offset: Offset,
        size: u64,
    ) -> Result<Option<Scanned>, ReadError> {
        let floor = self.find_entry(|entry| self.absolute(entry.relative_offset) <= offset)?;
        let mut scanner = self.scanner_at(file, floor, size)?;
        while let Some(batch) = self.next_batch(&mut scanner)? {
            if batch.header.last_offset() >= offset {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Where the batches end that lie before `position`, the position of a batch.
    pub(in super::super) fn end_before(
        &self,
        file: &File,
        position: u64,
        size: u64,
    ) -> Result<Offset, ReadError> {
        let floor = self.find_entry(|entry| u64::from(entry.position) < position)?;
        let mut scanner = self.scanner_at(file, floor, size)?;
        let mut end = self.base_offset;
        while scanner.position() < position
            && let Some(batch) = self.next_batch(&mut scanner)?
        {
            end = batch.header.next_offset();
        }
        Ok(end)
    }

    /// Extends `one` by the batches that end below `upper` and `position_max`.
    fn longest(
        &self,
        file: &File,
        one: Range,
        position_max: u64,
        upper: Offset,
        size: u64,
    ) -> Result<Range, ReadError> {
        let mut range = one;
        let floor = self.find_entry(|entry| {
            u64::from(entry.position) <= position_max
                && self.absolute(entry.relative_offset) < upper
        })?;
        let floor = floor.filter(|entry| u64::from(entry.position) > one.end);
        let mut scanner = Scanner::new(file, one.end, size);
        if floor.is_some() {
            let jumped = self.scanner_at(file, floor, size)?;
            if jumped.position() > one.end {
                scanner = jumped;
            }
        }
        while let Some(batch) = self.next_batch(&mut scanner)? {
            // What a jump left out ends where this batch begins.
            if batch.position > range.end {
                range.end = batch.position;
                range.next_offset = batch.header.base_offset;
            }
            if batch.end() > position_max || batch.header.next_offset() > upper {
                break;
            }
            range.end = batch.end();
            range.next_offset = batch.header.next_offset();
        }
        Ok(range)
    }

    pub(super) fn absolute(&self, relative_offset: u32) -> Offset {
        self.base_offset + i64::from(relative_offset)
    }

    /// The last entry of the offset index for which `holds`.
    fn find_entry(&self, holds: impl Fn(&OffsetEntry) -> bool) -> Result<Option<OffsetEntry>> {
        if self.is_retired.load(Ordering::Acquire) {
            return Ok(None);
        }
        let found = self.state.lock().offsets.find(&holds);
        match found {
            Found::Here(entry) => Ok(Some(entry)),
            Found::OnDisk(count) => find_on_disk(&self.index_path(), count, holds),
        }
    }

    /// A scanner that starts at the batch of `entry`, or at the first one. A wrong entry must not give wrong data: what
    /// it points to has to be the batch that it names.
    fn scanner_at<'f>(
        &self,
        file: &'f File,
        entry: Option<OffsetEntry>,
        size: u64,
    ) -> Result<Scanner<'f>, ReadError> {
        let Some(entry) = entry else {
            return Ok(Scanner::new(file, 0, size));
        };
        let position = u64::from(entry.position);
        let named = Scanner::new(file, position, size).next();
        let is_right = matches!(named, Ok(Some(batch))
            if batch.header.last_offset() == self.absolute(entry.relative_offset));
        if is_right {
            return Ok(Scanner::new(file, position, size));
        }
        tracing::warn!(path = %self.index_path().display(), ?entry, "wrong index entry is ignored");
        Ok(Scanner::new(file, 0, size))
    }

    pub(super) fn next_batch(
        &self,
        scanner: &mut Scanner<'_>,
    ) -> Result<Option<Scanned>, ReadError> {
        scanner.next().map_err(|error| error.into_read_error(&self.path))
    }

    /// The first batch that ends at or after `from` and has a record at or after `timestamp_ms`.
    pub(in super::super) fn find_batch_by_time(
        &self,
        timestamp_ms: TimestampMs,
        from: Offset,
    ) -> Result<Option<Slice>, ReadError> {
        if self.max_timestamp()?.timestamp_ms < timestamp_ms {
            return Ok(None);
        }
        let is_before = |entry: &TimeEntry| entry.timestamp_ms <= timestamp_ms;
        let found = self.state.lock().times.find(is_before);
        let floor = match found {
            _ if self.is_retired.load(Ordering::Acquire) => None,
            Found::Here(entry) => Some(entry),
            Found::OnDisk(count) => find_on_disk(&self.time_index_path(), count, is_before)?,
        };
        let at_least = floor.map_or(from, |entry| self.absolute(entry.relative_offset).max(from));
        let file = self.file()?;
        let size = self.size();
        let Some(first) = self.find_batch(&file, at_least, size)? else {
            return Ok(None);
        };
        let mut scanner = Scanner::new(&file, first.position, size);
        while let Some(batch) = self.next_batch(&mut scanner)? {
            if batch.header.record_count > 0 && batch.header.max_timestamp_ms >= timestamp_ms {
                return Ok(Some(self.slice_of(&file, &batch)));
            }
        }
        Ok(None)
    }

    /// The batch with the largest timestamp of those that end at or after `from` and below `upper`.
    pub(in super::super) fn find_newest_batch(
        &self,
        from: Offset,
        upper: Offset,
    ) -> Result<Option<(TimestampMs, Slice)>, ReadError> {
        let max = self.max_timestamp()?;
        let (size, next_offset) = {
            let state = self.state.lock();
            (state.size, state.next_offset)
        };
        let file = self.file()?;
        let is_inside = |offset: Offset| from <= offset && offset < upper;
        // The index knows the answer unless some batches of the segment do not count.
        let is_known = is_inside(max.last_offset) && next_offset <= upper;
        let first = self.find_batch(&file, if is_known { max.last_offset } else { from }, size)?;
        let Some(first) = first else {
            return Ok(None);
        };
        let mut scanner = Scanner::new(&file, first.position, size);
        let mut newest: Option<Scanned> = None;
        while let Some(batch) = self.next_batch(&mut scanner)? {
            if batch.header.last_offset() >= upper {
                break;
            }
            if batch.header.record_count == 0 {
                continue;
            }
            let newer =
                |newest: Scanned| batch.header.max_timestamp_ms > newest.header.max_timestamp_ms;
            if newest.is_none_or(newer) {
                newest = Some(batch);
            }
            if batch.header.max_timestamp_ms == max.timestamp_ms {
                break;
            }
        }
        Ok(newest.map(|batch| (batch.header.max_timestamp_ms, self.slice_of(&file, &batch))))
    }

    /// Shows the batches that end at or after `from` and below `upper`, with the largest timestamp of each.
    pub(in super::super) fn visit_batches(
        &self,
        from: Offset,
        upper: Offset,
        mut visit: impl FnMut(TimestampMs, Slice) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let file = self.file()?;
        let size = self.size();
        let Some(first) = self.find_batch(&file, from, size)? else {
            return Ok(());
        };
        let mut scanner = Scanner::new(&file, first.position, size);
        while let Some(batch) = self.next_batch(&mut scanner)?
            && batch.header.last_offset() < upper
        {
            visit(batch.header.max_timestamp_ms, self.slice_of(&file, &batch))?;
        }
        Ok(())
    }

    fn slice_of(&self, file: &Arc<File>, batch: &Scanned) -> Slice {
        Slice {
            file: Some(Arc::clone(file)),
            position: batch.position,
            size: batch.header.size,
            next_offset: batch.header.next_offset(),
        }
    }

    /// Where the first batch begins that ends at or after `offset`; the end if there is none.
    pub(in super::super) fn position_of(&self, offset: Offset) -> Result<u64, ReadError> {
        let size = self.size();
        if offset <= self.base_offset || size == 0 {
            return Ok(0);
        }
        let found = self.find_batch(&*self.file()?, offset, size)?;
        Ok(found.map_or(size, |batch| batch.position))
    }

    /// The largest timestamp of the first batch that ends at or after `offset`. When there is none, or it has no
    /// timestamp, when the segment was made as far as that is known.
    pub(in super::super) fn timestamp_at_ms(
        &self,
        offset: Offset,
    ) -> Result<TimestampMs, ReadError> {
        let found = self.find_batch(&*self.file()?, offset, self.size())?;
        let timestamp_ms = found.map_or(-1, |batch| batch.header.max_timestamp_ms);
        Ok(if timestamp_ms >= 0 { timestamp_ms } else { self.state.lock().created_ms })
    }

    /// -1 when no batch has one.
    pub(in super::super) fn largest_timestamp_ms(&self) -> Result<TimestampMs, ReadError> {
        Ok(self.max_timestamp()?.timestamp_ms)
    }

    /// Of a segment that was not appended to since the start, it is the last entry of the time index.
    fn max_timestamp(&self) -> Result<MaxTimestamp, ReadError> {
        if let Some(max) = self.state.lock().max {
            return Ok(max);
        }
        let last = self.state.lock().times.last(&self.time_index_path())?;
        let max = match last {
            Some(last) => MaxTimestamp {
                timestamp_ms: last.timestamp_ms,
                last_offset: self.absolute(last.relative_offset),
            },
            None => MaxTimestamp { timestamp_ms: -1, last_offset: self.base_offset },
        };
        self.state.lock().max = Some(max);
        Ok(max)
    }
}

/// Whole batches, by position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) position: u64,
    pub(super) end: u64,
    next_offset: Offset,
}

impl State {
    /// The answer, if the batch that holds `wanted.from` is a recent one. An empty range when nothing may be read.
    fn recent_range(&self, wanted: &Wanted) -> Option<Range> {
        let front = self.recent.front()?;
        if front.base_offset > wanted.from && front.position > 0 {
            return None;
        }
        let first_index = self.recent.partition_point(|batch| batch.next_offset <= wanted.from);
        let first = self.recent.get(first_index)?;
        let position = first.position;
        let position_max = position + wanted.size_max as u64;
        let end_index = self.recent.partition_point(|batch| {
            batch.next_offset <= wanted.upper && batch.position + batch.size <= position_max
        });
        let one_index = first_index + usize::from(first.next_offset <= wanted.upper);
        let end_index = if wanted.at_least_one { end_index.max(one_index) } else { end_index };
        let empty = Range { position, end: position, next_offset: wanted.from };
        Some(match end_index.checked_sub(1).filter(|&last| last >= first_index) {
            None => empty,
            Some(last) => Range {
                position,
                end: self.recent[last].position + self.recent[last].size,
                next_offset: self.recent[last].next_offset,
            },
        })
    }
}
