//! Invariant 6: a broker that is fenced or not registered is in no ISR, except as the last member of one that has no
//! leader.

use kontiki::types::NodeId;

use super::{History, partitions};

pub(super) fn check(history: &History) {
    for image in history.images() {
        for (id, p) in partitions(image) {
            let dead = |node: &&NodeId| image.broker(**node).is_none_or(|broker| broker.fenced);
            let is_last = p.isr.len() == 1 && p.leader == NodeId::NONE;
            let counted = p.isr.iter().find(dead);
            assert!(
                counted.is_none() || is_last,
                "INV-6: {id:?} at {} counts on a fenced broker: {p:?}",
                image.index
            );
        }
    }
}
