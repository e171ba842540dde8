//! Invariant 5: nobody leads who is fenced or not registered, and no partition lacks a leader while a member of its ISR
//! could lead.

use kontiki::types::NodeId;

use super::{History, partitions};

pub(super) fn check(history: &History) {
    for image in history.images() {
        for (id, p) in partitions(image) {
            let index = image.index;
            if p.leader == NodeId::NONE {
                let valid = p.isr.iter().find(|node| image.can_serve(**node, id));
                assert_eq!(valid, None, "INV-5: {id:?} at {index} has no leader: {p:?}");
            } else {
                let leader = image.broker(p.leader);
                let is_alive = leader.is_some_and(|broker| !broker.fenced);
                assert!(is_alive, "INV-5: {id:?} at {index} is led by the dead: {p:?}");
            }
        }
    }
}
