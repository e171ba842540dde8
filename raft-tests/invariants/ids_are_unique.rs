//! Invariant 9: a topic id names one topic for ever, producer-id blocks are disjoint and grow, and a disk has one Raft
//! node id that no other disk ever had.

use std::collections::{BTreeMap, BTreeSet};

use super::History;

pub(super) fn check(history: &History) {
    let mut names = BTreeMap::new();
    let mut gone = BTreeSet::new();
    for (before, after) in history.steps() {
        for (topic_id, topic) in &after.topics {
            let name = names.entry(*topic_id).or_insert_with(|| topic.name.clone());
            assert_eq!(*name, topic.name, "INV-9: topic id {topic_id} was reused");
            assert!(!gone.contains(topic_id), "INV-9: topic {topic_id} came back");
        }
        gone.extend(before.topics.keys().filter(|id| !after.topics.contains_key(*id)).copied());
        assert!(before.next_producer_id <= after.next_producer_id, "INV-9: producer ids go back");
    }
    let mut blocks = history.blocks.clone();
    blocks.sort_by_key(|block| block.first);
    for (a, b) in blocks.iter().zip(blocks.iter().skip(1)) {
        assert!(a.first + a.count <= b.first, "INV-9: {a:?} and {b:?} overlap");
    }
    let mut disks = BTreeMap::new();
    for image in history.images() {
        for broker in image.brokers.values() {
            let registration = &broker.registration;
            let disk = disks.entry(registration.raft_node_id).or_insert(registration.node_id);
            assert_eq!(*disk, registration.node_id, "INV-9: a Raft node id has two nodes");
        }
    }
}
