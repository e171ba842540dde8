//! Whether what is about to be served is what was written: looked at once per process and byte, when it is first read.
//!
//! What this process wrote, or recovered with its checksums, needs no look. The rest is walked through: checksums,
//! and that base offsets and leader epochs, which no checksum covers, go on from batch to batch.

use std::fs::File;

use super::super::ReadError;
use super::super::scan::Scanner;
use super::Segment;
use super::lookup::Range;
use crate::record::{BatchHeader, Refusal};

/// Which bytes are known to be good.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    /// The last run that was looked at.
    from: u64,
    to: u64,
    /// Everything from here on.
    pub(super) tail_from: u64,
}

impl Checked {
    pub(super) const ALL: Self = Self { from: 0, to: 0, tail_from: 0 };
    pub(super) const NOTHING: Self = Self { from: 0, to: 0, tail_from: u64::MAX };

    /// What of the bytes is not known to be good.
    fn rest_of(&self, position: u64, end: u64) -> (u64, u64) {
        let is_inside = (self.from..=self.to).contains(&position);
        let position = if is_inside { self.to.max(position) } else { position };
        (position, end.min(self.tail_from))
    }

    fn add(&mut self, from: u64, to: u64) {
        if self.to == from {
            self.to = to;
        } else {
            (self.from, self.to) = (from, to);
        }
    }

    /// The file ends there now, and what comes next is written.
    pub(super) fn truncate(&mut self, size: u64) {
        self.to = self.to.min(size);
        self.from = self.from.min(size);
        self.tail_from = self.tail_from.min(size);
    }
}

impl Segment {
    /// Whatever was good may be so no longer.
    pub(in super::super) fn distrust(&self) {
        let mut state = self.state.lock();
        if state.size > 0 {
            state.checked = Checked::NOTHING;
        }
    }

    /// Looks at those batches of `range` that nobody looked at yet, and at what follows them. `is_right` knows more of a
    /// batch than the segment does.
    pub(super) fn verify(
        &self,
        file: &File,
        range: &Range,
        is_right: &dyn Fn(&BatchHeader) -> bool,
    ) -> Result<(), ReadError> {
        let (from, to, size, end) = {
            let state = self.state.lock();
            let (from, to) = state.checked.rest_of(range.position, range.end);
            (from, to, state.size, state.next_offset)
        };
        if from >= to {
            return Ok(());
        }
        let mut scanner = Scanner::sequential(file, from, to);
        let mut last: Option<BatchHeader> = None;
        while let Some(batch) = self.next_batch(&mut scanner)? {
            scanner.check_crc(&batch).map_err(|error| error.into_read_error(self.path()))?;
            let is_older = last.is_some_and(|last| batch.header.leader_epoch < last.leader_epoch);
            if is_older || !is_right(&batch.header) {
                return Err(Refusal::Corrupt("not of the leader epoch that it names").into());
            }
            last = Some(batch.header);
        }
        let Some(last) = last else {
            return Ok(());
        };
        let next =
            if to < size { self.next_batch(&mut Scanner::new(file, to, size))? } else { None };
        let is_followed = match next {
            Some(next) => {
                next.header.base_offset >= last.next_offset()
                    && next.header.leader_epoch >= last.leader_epoch
            }
            None => last.next_offset() <= end,
        };
        if !is_followed {
            return Err(Refusal::Corrupt("not followed by the next batch").into());
        }
        self.state.lock().checked.add(from, to);
        Ok(())
    }
}
