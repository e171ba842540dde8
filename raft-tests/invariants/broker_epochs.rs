//! Invariant 7: a broker epoch is the index of a log entry, belongs to one life of one broker, and grows.

use std::collections::BTreeMap;

use super::History;

pub(super) fn check(history: &History) {
    let mut lives = BTreeMap::new();
    for image in history.images() {
        for (node, broker) in &image.brokers {
            let epoch = broker.broker_epoch;
            assert!(
                u64::try_from(epoch.0).is_ok_and(|index| index >= 1 && index <= image.index),
                "INV-7: {epoch} of broker {node} is no index up to {}",
                image.index
            );
            let life = (*node, broker.registration.incarnation);
            let first = *lives.entry(epoch).or_insert(life);
            assert_eq!(first, life, "INV-7: epoch {epoch} was given twice");
        }
    }
    for (before, after) in history.steps() {
        for (node, broker) in &after.brokers {
            let old = before.broker(*node).map(|broker| broker.broker_epoch);
            assert!(old <= Some(broker.broker_epoch), "INV-7: broker {node} went back");
        }
    }
}
