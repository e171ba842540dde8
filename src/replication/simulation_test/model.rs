//! What the simulation has instead of a disk and of chance.

use crate::replication::LogEnds;
use crate::types::{LeaderEpoch, Offset};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) epoch: LeaderEpoch,
    /// Unique over the whole run.
    pub(super) id: u64,
}

/// A log as a list, with its leader epoch cache (replication.md 2.8).
#[derive(Debug, Default)]
pub(super) struct ModelLog {
    pub(super) entries: Vec<Entry>,
    pub(super) durable: usize,
    epochs: Vec<(LeaderEpoch, usize)>,
}

pub(super) fn offset(index: usize) -> Offset {
    Offset::try_from(index).expect("logs are short here")
}

pub(super) fn index(offset: Offset) -> usize {
    usize::try_from(offset).expect("offsets are not negative here")
}

impl ModelLog {
    pub(super) fn ends(&self) -> LogEnds {
        LogEnds { start: 0, end: offset(self.entries.len()), durable: offset(self.durable) }
    }

    pub(super) fn append(&mut self, entry: Entry) {
        self.assign_epoch(entry.epoch, self.entries.len());
        self.entries.push(entry);
    }

    pub(super) fn assign_epoch(&mut self, epoch: LeaderEpoch, start: usize) {
        if self.epochs.last().is_some_and(|last| last.0 == epoch && last.1 <= start) {
            return;
        }
        self.epochs.retain(|entry| entry.0 < epoch && entry.1 < start);
        self.epochs.push((epoch, start));
    }

    pub(super) fn latest_epoch(&self) -> LeaderEpoch {
        self.epochs.last().map_or(LeaderEpoch::NONE, |last| last.0)
    }

    pub(super) fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let above = self.epochs.iter().position(|entry| entry.0 > epoch);
        match above {
            None if self.latest_epoch() == epoch => Some((epoch, offset(self.entries.len()))),
            None => None,
            Some(0) => Some((epoch, offset(self.epochs[0].1))),
            Some(next) => Some((self.epochs[next - 1].0, offset(self.epochs[next].1))),
        }
    }

    pub(super) fn truncate(&mut self, end: usize) {
        self.entries.truncate(end);
        self.durable = self.durable.min(end);
        self.epochs.retain(|entry| entry.1 < end);
    }
}
