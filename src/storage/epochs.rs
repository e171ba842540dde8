//! Which leader epoch starts where (replication.md 2.8). Pure.

use crate::types::{LeaderEpoch, Offset};

/// Ascending in both. `changed` says that the file is behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EpochCache {
    entries: Vec<(LeaderEpoch, Offset)>,
    changed: bool,
}

impl EpochCache {
    pub(super) fn new(entries: Vec<(LeaderEpoch, Offset)>) -> Self {
        Self { entries, changed: false }
    }

    pub(super) fn entries(&self) -> &[(LeaderEpoch, Offset)] {
        &self.entries
    }

    pub(super) fn latest(&self) -> LeaderEpoch {
        self.entries.last().map_or(LeaderEpoch::NONE, |last| last.0)
    }

    /// Says that `epoch` starts at `start`. Entries that contradict it are dropped.
    pub(super) fn assign(&mut self, epoch: LeaderEpoch, start: Offset) {
        if epoch < LeaderEpoch(0)
            || self.entries.last().is_some_and(|last| last.0 == epoch && last.1 <= start)
        {
            return;
        }
        while self.entries.pop_if(|last| last.0 >= epoch || last.1 >= start).is_some() {}
        self.entries.push((epoch, start));
        self.changed = true;
    }

    /// The epoch of the batch at `offset`; `None` when that is not known.
    pub(super) fn epoch_of(&self, offset: Offset) -> Option<LeaderEpoch> {
        let above = self.entries.partition_point(|entry| entry.1 <= offset);
        above.checked_sub(1).map(|index| self.entries[index].0)
    }

    /// The largest known epoch not above `epoch`, and its end. `None` when that is not known.
    pub(super) fn end_offset_for(
        &self,
        epoch: LeaderEpoch,
        end_offset: Offset,
    ) -> Option<(LeaderEpoch, Offset)> {
        let latest = self.latest();
        if epoch < LeaderEpoch(0) || epoch > latest {
            return None;
        }
        if epoch == latest {
            return Some((epoch, end_offset));
        }
        let higher = self.entries.partition_point(|entry| entry.0 <= epoch);
        let end = self.entries[higher].1;
        Some(higher.checked_sub(1).map_or((epoch, end), |floor| (self.entries[floor].0, end)))
    }

    /// Drops what starts at or after `offset`.
    pub(super) fn truncate_from_end(&mut self, offset: Offset) {
        while self.entries.pop_if(|last| last.1 >= offset).is_some() {
            self.changed = true;
        }
    }

    /// Forgets epochs that end at or before `offset`; the one that holds it starts there now.
    pub(super) fn truncate_from_start(&mut self, offset: Offset) {
        let above = self.entries.partition_point(|entry| entry.1 <= offset);
        let Some(floor) = above.checked_sub(1) else {
            return;
        };
        if self.entries[floor].1 < offset {
            self.entries.drain(..floor);
            self.entries[0].1 = offset;
            self.changed = true;
        } else if floor > 0 {
            self.entries.drain(..floor);
            self.changed = true;
        }
    }

    pub(super) fn clear(&mut self) {
        self.changed |= !self.entries.is_empty();
        self.entries.clear();
    }

    /// Whether the file must be written; resets that.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// It was not written after all.
    pub(super) fn set_changed(&mut self) {
        self.changed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, Offset)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for (epoch, start) in entries {
            cache.assign(LeaderEpoch(*epoch), *start);
        }
        cache
    }

    fn entries(cache: &EpochCache) -> Vec<(i32, Offset)> {
        cache.entries().iter().map(|(epoch, start)| (epoch.0, *start)).collect()
    }

    #[test]
    fn assigning_drops_what_contradicts() {
        assert_eq!(entries(&cache(&[(0, 0), (0, 5), (2, 10), (2, 20)])), [(0, 0), (2, 10)]);
        assert_eq!(entries(&cache(&[(0, 0), (2, 10), (3, 10)])), [(0, 0), (3, 10)]);
        assert_eq!(
            entries(&cache(&[(0, 0), (2, 10), (5, 20), (3, 15)])),
            [(0, 0), (2, 10), (3, 15)]
        );
        assert_eq!(entries(&cache(&[(1, 5), (1, 3)])), [(1, 3)]);
        assert_eq!(entries(&cache(&[(-1, 5)])), []);
    }

    #[test]
    fn ends_of_epochs() {
        let cache = cache(&[(1, 10), (3, 20), (4, 30)]);
        let end = |epoch| cache.end_offset_for(LeaderEpoch(epoch), 50).map(|(e, end)| (e.0, end));
        assert_eq!(end(-1), None);
        assert_eq!(end(0), Some((0, 10)));
        assert_eq!(end(1), Some((1, 20)));
        assert_eq!(end(2), Some((1, 20)));
        assert_eq!(end(3), Some((3, 30)));
        assert_eq!(end(4), Some((4, 50)));
        assert_eq!(end(5), None);
        assert_eq!(EpochCache::default().end_offset_for(LeaderEpoch(0), 50), None);
    }

    #[test]
    fn truncation_at_both_ends() {
        let whole = cache(&[(1, 10), (3, 20), (4, 30)]);
        for (offset, left) in [(31, 3), (30, 2), (20, 1), (15, 1), (10, 0)] {
            let mut cache = whole.clone();
            cache.truncate_from_end(offset);
            assert_eq!(entries(&cache), entries(&whole)[..left]);
        }
        for (offset, left) in [
            (5, vec![(1, 10), (3, 20), (4, 30)]),
            (10, vec![(1, 10), (3, 20), (4, 30)]),
            (15, vec![(1, 15), (3, 20), (4, 30)]),
            (20, vec![(3, 20), (4, 30)]),
            (99, vec![(4, 99)]),
        ] {
            let mut cache = whole.clone();
            cache.take_changed();
            cache.truncate_from_start(offset);
            assert_eq!(entries(&cache), left);
            assert_eq!(cache.take_changed(), left != entries(&whole));
        }
    }
}
