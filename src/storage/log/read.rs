//! Reading: slices by offset, records by time.

use std::sync::Arc;

use super::super::ReadError;
use super::super::segment::{Segment, Wanted};
use super::super::slice::Slice;
use super::PartitionLog;
use crate::record::{Batch, BatchHeader, visit_timestamps};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// A record found by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampedOffset {
    pub timestamp_ms: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

impl PartitionLog {
    /// Whole batches that hold offsets from `from` on and none at or above `upper`, at most `size_max` bytes of them
    /// (but the first one always with `at_least_one`). The first batch may begin below `from`. A slice ends with its
    /// segment at the latest.
    pub fn read(
        &self,
        from: Offset,
        upper: Offset,
        size_max: usize,
        at_least_one: bool,
    ) -> Result<Slice, ReadError> {
        self.read_checked(from, || self.read_segments(from, upper, size_max, at_least_one))
    }

    fn read_segments(
        &self,
        from: Offset,
        upper: Offset,
        size_max: usize,
        at_least_one: bool,
    ) -> Result<Slice, ReadError> {
        let is_right = |header: &BatchHeader| {
            let epoch = self.epochs.lock().epoch_of(header.base_offset);
            epoch.is_none_or(|epoch| epoch == header.leader_epoch)
        };
        self.with_segments(|segments| {
            let (start, end) = (self.start_offset(), self.end_offset());
            if !(start..=end).contains(&from) {
                return Err(ReadError::OutOfRange { requested: from, start, end });
            }
            let upper = upper.min(end);
            if from >= upper {
                return Ok(Slice::empty(from));
            }
            self.keep_warm();
            let wanted = Wanted { from, upper, size_max, at_least_one };
            let first = segments.partition_point(|segment| segment.base_offset <= from);
            for segment in &segments[first.saturating_sub(1)..] {
                // Compaction may leave a gap at the end of a segment: then the next one goes on.
                if let Some(slice) = segment.slice(&wanted, &is_right)? {
                    return Ok(slice);
                }
            }
            Ok(Slice::empty(from))
        })
    }

    /// The first record at or after `timestamp_ms`, if it is below `upper`.
    pub fn find_by_timestamp(
        &self,
        timestamp_ms: TimestampMs,
        upper: Offset,
    ) -> Result<Option<TimestampedOffset>, ReadError> {
        let find = |segments: &[Arc<Segment>]| {
            let upper = upper.min(self.end_offset());
            let mut from = self.start_offset();
            self.keep_warm();
            for segment in segments {
                while let Some(slice) = segment.find_batch_by_time(timestamp_ms, from)? {
                    let found = first_record(&slice, from, |found| found >= timestamp_ms)?;
                    if let Some(found) = found {
                        return Ok(Some(found).filter(|found| found.offset < upper));
                    }
                    // Only records below the log start were late enough, or the header promised too much.
                    from = slice.next_offset;
                }
            }
            Ok(None)
        };
        self.read_checked(self.start_offset(), || self.with_segments(find))
    }

    /// The first record that has the largest timestamp below `upper`.
    pub fn max_timestamp(&self, upper: Offset) -> Result<Option<TimestampedOffset>, ReadError> {
        self.check_whole()?;
        let (start, upper) = (self.start_offset(), upper.min(self.end_offset()));
        self.keep_warm();
        // Of a batch that the log start divides, only the later records count; headers do not know of them.
        let divided = self.read_segments(start, upper, 0, true)?;
        let mut best = None;
        let mut from = start;
        if self.start_offset_to_write().is_some() && !divided.is_empty() {
            best = newest_record(&divided, start)?;
            from = divided.next_offset;
        }
        let best = self.with_segments(|segments| {
            let mut best = best;
            for segment in segments.iter().take_while(|segment| segment.base_offset < upper) {
                let Some((max_ms, slice)) = segment.find_newest_batch(from, upper)? else {
                    continue;
                };
                let is_newer = |than: Option<TimestampedOffset>, timestamp_ms| {
                    than.is_none_or(|than| timestamp_ms > than.timestamp_ms)
                };
                if !is_newer(best, max_ms) {
                    continue;
                }
                let newest = newest_record(&slice, from)?;
                if newest.is_some_and(|newest| newest.timestamp_ms == max_ms) {
                    best = newest;
                    continue;
                }
                // The header promised too much, as that of a batch does whose records were compacted away.
                segment.visit_batches(from, upper, |max_ms, slice| {
                    if is_newer(best, max_ms)
                        && let Some(newest) = newest_record(&slice, from)?
                        && is_newer(best, newest.timestamp_ms)
                    {
                        best = Some(newest);
                    }
                    Ok(())
                })?;
            }
            Ok(best)
        })?;
        Ok(best.filter(|best| best.timestamp_ms >= 0))
    }
}

/// The first record of one batch, at or after `from`, whose timestamp `is_wanted`.
fn first_record(
    slice: &Slice,
    from: Offset,
    is_wanted: impl Fn(TimestampMs) -> bool,
) -> Result<Option<TimestampedOffset>, ReadError> {
    let mut first = None;
    visit_records(slice, from, |record| {
        if first.is_none() && is_wanted(record.timestamp_ms) {
            first = Some(record);
        }
    })?;
    Ok(first)
}

/// The first of the records of one batch, at or after `from`, that have the largest timestamp.
fn newest_record(slice: &Slice, from: Offset) -> Result<Option<TimestampedOffset>, ReadError> {
    let mut newest: Option<TimestampedOffset> = None;
    visit_records(slice, from, |record| {
        if newest.is_none_or(|newest| record.timestamp_ms > newest.timestamp_ms) {
            newest = Some(record);
        }
    })?;
    Ok(newest)
}

fn visit_records(
    slice: &Slice,
    from: Offset,
    mut visit: impl FnMut(TimestampedOffset),
) -> Result<(), ReadError> {
    let mut bytes = Vec::new();
    slice.read_into(&mut bytes)?;
    let (batch, _) = Batch::split_first(&bytes)?;
    batch.check_crc()?;
    let leader_epoch = batch.header.leader_epoch;
    visit_timestamps(&batch, |offset, timestamp_ms| {
        if offset >= from {
            visit(TimestampedOffset { timestamp_ms, offset, leader_epoch });
        }
    })?;
    Ok(())
}
