//! Invariant 4: the sets of a partition fit together, in every image.

use std::collections::BTreeSet;

use kontiki::metadata::LeaderRecovery;
use kontiki::types::NodeId;

use super::{History, partitions};

pub(super) fn check(history: &History) {
    for image in history.images() {
        for (id, p) in partitions(image) {
            let context = || format!("INV-4: {id:?} at {}: {p:?}", image.index);
            let distinct = |nodes: &[NodeId]| {
                let set: BTreeSet<_> = nodes.iter().copied().collect();
                assert_eq!(set.len(), nodes.len(), "{}", context());
                set
            };
            let replicas = distinct(&p.replicas);
            let (isr, elr) = (distinct(&p.isr), distinct(&p.elr));
            let (adding, removing) = (distinct(&p.adding), distinct(&p.removing));
            assert!(p.leader == NodeId::NONE || isr.contains(&p.leader), "{}", context());
            assert!(isr.is_subset(&replicas) && elr.is_subset(&replicas), "{}", context());
            assert!(isr.is_disjoint(&elr) && adding.is_disjoint(&removing), "{}", context());
            assert!(adding.is_subset(&replicas) && removing.is_subset(&replicas), "{}", context());
            assert!(p.recovery == LeaderRecovery::Recovered || p.isr.len() == 1, "{}", context());
        }
    }
}
