//! What the producer and a consumer were told, and the comparison with what the topic holds.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use kontiki::types::Offset;

use super::reader::{ReadRecords, read_all};
use crate::harness::Cluster;

/// What was told while the load ran.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(super) topic: String,
    pub(super) sent: usize,
    /// Per partition: number of the record to its offset.
    pub(super) acknowledged: BTreeMap<i32, BTreeMap<u64, Offset>>,
    /// Records whose fate is not known, and why.
    pub(super) unknown: Vec<String>,
    /// What a consumer read meanwhile.
    pub(super) seen: ReadRecords,
    /// Longest time between two acknowledgements.
    pub(super) longest_gap: Duration,
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, gap) = (self.sent, self.longest_gap);
        write!(f, "{sent} records acknowledged and read back, longest wait for one {gap:?}")
    }
}

impl Ledger {
    /// Reads the topic from the beginning and compares.
    pub(crate) async fn check(&self, cluster: &Cluster) {
        let read = read_all(cluster, &self.topic, |partition| {
            let offsets = self.acknowledged.get(&partition)?;
            offsets.values().max().map(|last| last + 1)
        })
        .await;
        let total: usize = self.acknowledged.values().map(BTreeMap::len).sum();
        assert!(total > 0, "nothing was acknowledged: the scenario proves nothing");
        for (partition, offsets) in &self.acknowledged {
            check_partition(*partition, offsets, &read[partition]);
        }
        for (partition, seen) in &self.seen {
            let differ = seen.iter().zip(&read[partition]).find(|(seen, read)| seen != read);
            assert_eq!(
                differ, None,
                "partition {partition}: seen before, and read at the end (INV-12)"
            );
            assert!(
                seen.len() <= read[partition].len(),
                "partition {partition} has become shorter"
            );
        }
    }
}

/// `read` is what the partition holds, in order of offsets.
fn check_partition(
    partition: i32,
    acknowledged: &BTreeMap<u64, Offset>,
    read: &[(Offset, String)],
) {
    let mut found = BTreeMap::new();
    let mut last = None;
    for (offset, value) in read {
        let number: u64 = value
            .strip_prefix(&format!("{partition}:"))
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("partition {partition} holds {value:?} at {offset}"));
        assert!(last < Some(number), "partition {partition}: {number} after {last:?} at {offset}");
        last = Some(number);
        found.insert(number, *offset);
    }
    for (number, offset) in acknowledged {
        let found = found.get(number);
        assert_eq!(
            found,
            Some(offset),
            "record {number} of partition {partition} was acknowledged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: &[&str]) -> bool {
        let acknowledged = BTreeMap::from([(0, 0), (2, 1)]);
        let read: Vec<(Offset, String)> = (0..).zip(read.iter().map(ToString::to_string)).collect();
        std::panic::catch_unwind(|| check_partition(7, &acknowledged, &read)).is_ok()
    }

    #[test]
    fn the_checker_sees_loss_duplicates_and_disorder() {
        assert!(check(&["7:0", "7:2"]));
        assert!(check(&["7:0", "7:2", "7:3"]), "an unacknowledged record may be there");
        assert!(!check(&["7:0"]), "lost");
        assert!(!check(&["7:0", "7:2", "7:2"]), "twice");
        assert!(!check(&["7:2", "7:0"]), "out of order");
        assert!(!check(&["7:0", "7:1", "7:2"]), "not at the acknowledged offset");
        assert!(!check(&["7:0", "8:2"]), "of another partition");
    }
}
