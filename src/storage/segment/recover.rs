//! Opening a segment that was there before, rebuilding its indexes, cutting it off.

use std::path::{Path, PathBuf};

use super::super::fs::{self, remove_if_exists};
use super::super::index::Index;
use super::super::scan::{ScanError, Scanner};
use super::super::{Error, ReadError, Result};
use super::{Checked, MaxTimestamp, Segment, file_name};
use crate::record::{BatchHeader, Refusal};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// What is known about a segment that is recovered.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct RecoveryRules {
    pub(in super::super) index_interval: u32,
    /// Below, everything was synced.
    pub(in super::super) flushed: Offset,
    /// No batch goes beyond.
    pub(in super::super) end_max: Offset,
    /// Of the last batch before.
    pub(in super::super) epoch_min: LeaderEpoch,
    /// It will be appended to: its index entries may stay in memory.
    pub(in super::super) is_active: bool,
}

impl Segment {
    /// A segment of which only the names and sizes of its files are looked at. `None` when its indexes are missing or
    /// cannot be right, and it has to be recovered.
    pub(in super::super) fn open_trusted(
        dir: &Path,
        base_offset: Offset,
        next_offset: Offset,
        now_ms: TimestampMs,
    ) -> Result<Option<Self>> {
        let segment = Self::open_unindexed(dir, base_offset, now_ms)?;
        {
            let mut state = segment.state.lock();
            state.next_offset = next_offset;
            let indexes =
                (Index::open(&segment.index_path()), Index::open(&segment.time_index_path()));
            let (Some(offsets), Some(times)) = indexes else {
                return Ok(None);
            };
            (state.offsets, state.times) = (offsets, times);
            let last = state.offsets.last(&segment.index_path())?;
            if last.is_some_and(|last| {
                u64::from(last.position) >= state.size
                    || segment.absolute(last.relative_offset) >= next_offset
                    || last.relative_offset == 0
            }) {
                return Ok(None);
            }
        }
        Ok(Some(segment))
    }

    /// For [`Segment::recover`].
    pub(in super::super) fn open_unindexed(
        dir: &Path,
        base_offset: Offset,
        now_ms: TimestampMs,
    ) -> Result<Self> {
        let path: PathBuf = dir.join(file_name(base_offset, "log"));
        let size = path.metadata().map_err(Error::io("look at", &path))?.len();
        Ok(Self::new(path, base_offset, size, base_offset, now_ms))
    }

    /// Makes a trusted segment the active one: finds its end, its largest timestamp and the age of its first batch.
    /// The reason when its end is not that of a batch; then it has to be recovered.
    pub(in super::super) fn load_end(&self) -> Result<(), ReadError> {
        let file = self.file()?;
        let mut state = self.state.lock();
        let last = state.offsets.last(&self.index_path())?;
        let position = last.map_or(0, |last| u64::from(last.position));
        let mut max = match state.times.last(&self.time_index_path())? {
            None => MaxTimestamp { timestamp_ms: -1, last_offset: self.base_offset },
            Some(last) => MaxTimestamp {
                timestamp_ms: last.timestamp_ms,
                last_offset: self.absolute(last.relative_offset),
            },
        };
        let mut next_offset = self.base_offset;
        let mut scanner = Scanner::new(&file, position, state.size);
        while let Some(batch) = self.next_batch(&mut scanner)? {
            let header = batch.header;
            let named = last.map(|last| self.absolute(last.relative_offset));
            let is_wrong =
                batch.position == position && named.is_some_and(|n| n != header.last_offset());
            if is_wrong {
                return Err(Refusal::Corrupt("not the batch that the index names").into());
            }
            if header.record_count > 0 && header.max_timestamp_ms > max.timestamp_ms {
                max = MaxTimestamp {
                    timestamp_ms: header.max_timestamp_ms,
                    last_offset: header.last_offset(),
                };
            }
            next_offset = header.next_offset();
        }
        let first = self.next_batch(&mut Scanner::new(&file, 0, state.size))?;
        state.first_timestamp_ms = first.map(|first| first.header.max_timestamp_ms);
        state.since_entry = state.size - position;
        state.next_offset = next_offset;
        state.max = Some(max);
        Ok(())
    }

    /// Reads every batch and rebuilds the indexes; of what was not flushed, checks the content too. `on_batch` sees the
    /// good ones. Ends at the first bad one, of which the file keeps everything.
    pub(in super::super) fn recover(
        &self,
        rules: &RecoveryRules,
        mut on_batch: impl FnMut(&BatchHeader),
    ) -> Result<Option<Refusal>> {
        let file = self.file()?;
        remove_if_exists(&self.index_path())?;
        remove_if_exists(&self.time_index_path())?;
        let mut state = self.state.lock();
        let size = state.size;
        state.size = 0;
        state.next_offset = self.base_offset;
        (state.offsets, state.times) = (Index::new(), Index::new());
        state.max = None;
        state.since_entry = 0;
        state.checked = Checked::NOTHING;
        let mut epoch_min = rules.epoch_min;
        let mut scanner = Scanner::sequential(&file, 0, size);
        let refusal = loop {
            let batch = match scanner.next() {
                Ok(Some(batch)) => batch,
                Ok(None) => break None,
                Err(ScanError::Refused(refusal)) => break Some(refusal),
                Err(ScanError::Io(error)) => return Err(Error::io("read", self.path())(error)),
            };
            let header = batch.header;
            if header.next_offset() > rules.flushed {
                match scanner.check_crc(&batch) {
                    Ok(()) => state.checked.tail_from = state.checked.tail_from.min(batch.position),
                    Err(ScanError::Refused(refusal)) => break Some(refusal),
                    Err(ScanError::Io(error)) => return Err(Error::io("read", self.path())(error)),
                }
            }
            if header.base_offset < self.base_offset
                || header.last_offset() - self.base_offset > i64::from(i32::MAX)
                || header.next_offset() > rules.end_max
            {
                break Some(Refusal::Corrupt("offsets out of order"));
            }
            if header.leader_epoch < epoch_min {
                break Some(Refusal::Corrupt("leader epochs do not ascend"));
            }
            epoch_min = header.leader_epoch;
            self.index(&mut state, &header, rules.index_interval, false);
            on_batch(&header);
        };
        if state.max.is_none() {
            state.max = Some(MaxTimestamp { timestamp_ms: -1, last_offset: self.base_offset });
        }
        if rules.is_active {
            self.spill(&mut state, |state| state.offsets.wants_spill())?;
        } else {
            self.push_time(&mut state);
            self.spill(&mut state, |_| true)?;
        }
        Ok(refusal)
    }

    /// Drops what the file has beyond the known batches.
    pub(in super::super) fn cut_tail(&self) -> Result<()> {
        fs::truncate(&*self.file()?, self.path(), self.size())
    }

    /// Cuts off the batch that holds `offset`, or the first one above, and what follows. Returns the end offset then,
    /// which is lower than `offset` if that is inside of a batch or in a gap. The indexes go on as those of an active segment.
    pub(in super::super) fn truncate(&self, offset: Offset) -> Result<Offset, ReadError> {
        let file = self.file()?;
        let size = self.size();
        let Some(first) = self.find_batch(&file, offset, size)? else {
            self.load_end()?;
            return Ok(self.next_offset());
        };
        {
            let mut state = self.state.lock();
            // Readers that come now find nothing beyond; those that came before may see the file shrink.
            state.size = first.position;
            state.recent.clear();
            state.checked.truncate(first.position);
            let (position, base_offset) = (first.position, self.base_offset);
            fs::truncate(&file, self.path(), position)?;
            state
                .offsets
                .truncate(&self.index_path(), |entry| u64::from(entry.position) < position)?;
            state.times.truncate(&self.time_index_path(), |entry| {
                base_offset + i64::from(entry.relative_offset) < first.header.base_offset
            })?;
        }
        self.load_end()?;
        Ok(self.next_offset())
    }
}
