//! Invariant 1: for every index, the images of all nodes are the same; and no node goes back, within one life.

use std::collections::BTreeMap;

use super::History;

pub(super) fn check(history: &History) {
    let mut digests = BTreeMap::new();
    for (node, images) in &history.published {
        for image in images {
            let first = digests.entry(image.index).or_insert((node, image.digest));
            assert_eq!(
                image.digest, first.1,
                "INV-1: nodes {node} and {} differ at index {}",
                first.0, image.index
            );
        }
        for (before, after) in images.iter().zip(images.iter().skip(1)) {
            assert!(before.index <= after.index, "INV-1: node {node} went back");
        }
    }
}
