//! Invariant 2: a partition that changes has a higher partition epoch; its leader epoch never falls, grows only with the
//! partition epoch, and grows with every change of leader.

use super::{History, partitions};

pub(super) fn check(history: &History) {
    for (before, after) in history.steps() {
        for (id, new) in partitions(after) {
            let Some(old) = before.partition(id) else { continue };
            if old == new {
                continue;
            }
            assert!(new.partition_epoch > old.partition_epoch, "INV-2: {id:?}: {old:?}, {new:?}");
            assert!(new.leader_epoch >= old.leader_epoch, "INV-2: {id:?}: {old:?}, {new:?}");
            assert!(
                new.leader == old.leader || new.leader_epoch > old.leader_epoch,
                "INV-2: {id:?} changed its leader under one epoch: {old:?}, {new:?}"
            );
        }
    }
}
