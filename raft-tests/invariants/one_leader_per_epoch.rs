//! Invariant 3: over the whole history, a leader epoch of a partition has one leader.

use std::collections::BTreeMap;

use super::{History, partitions};

pub(super) fn check(history: &History) {
    let mut leaders = BTreeMap::new();
    for image in history.images() {
        for (id, state) in partitions(image) {
            let leader = *leaders.entry((id, state.leader_epoch)).or_insert(state.leader);
            assert_eq!(leader, state.leader, "INV-3: {id:?} at epoch {}", state.leader_epoch);
        }
    }
}
