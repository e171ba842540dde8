//! When a segment ends and the next one begins (replication.md 3.3).

use super::PartitionLog;
use super::test_support::{Disk, batch, small_config};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::{Compression, assign_offset};
use crate::types::{LeaderEpoch, Offset};

/// Far away from every bound but the one under test.
fn roomy() -> TopicConfig {
    let (segment_bytes, segment_index_bytes) = (1 << 20, 1 << 20);
    TopicConfig { segment_bytes, segment_index_bytes, retention_ms: -1, ..small_config() }
}

/// Appends one record; how many segments there are then.
fn append_at(log: &PartitionLog, timestamp_ms: i64, now_ms: i64) -> usize {
    let mut batch = batch(Compression::None, &[(timestamp_ms, 100)]);
    let valid = log.validate(&mut batch, now_ms).unwrap();
    log.append_as_leader(valid, LeaderEpoch(0)).unwrap();
    log.segment_bases().len()
}

#[test]
fn a_segment_holds_no_more_bytes_than_it_may() {
    let disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &TopicConfig { segment_bytes: 1_000, ..roomy() });
    for _ in 0..50 {
        append_at(&log, 0, 0);
    }
    let bases = log.segment_bases();
    for pair in bases.windows(2) {
        let size = log.read(pair[0], pair[1], 1 << 20, true).unwrap().size;
        assert!(size <= 1_000 && size + size / 5 > 1_000, "{size}");
    }
}

#[test]
fn its_age_is_counted_in_the_time_of_its_records_if_they_have_one() {
    let disk = Disk::new(Durability::PageCache);
    let config = TopicConfig { segment_ms: 1_000, ..roomy() };
    let log = disk.create("t", &config);
    assert_eq!(append_at(&log, 5_000, 0), 1);
    assert_eq!(append_at(&log, 6_000, 900_000), 1, "the clock does not count");
    assert_eq!(append_at(&log, 3_000, 900_000), 1, "nor does a record from before");
    assert_eq!(append_at(&log, 6_001, 900_000), 2, "older than its first record allows");
    assert_eq!(append_at(&log, 7_001, 900_000), 2);

    let log = disk.create("without", &config);
    assert_eq!(append_at(&log, -1, 100_000), 1);
    assert_eq!(append_at(&log, -1, 101_000), 1);
    assert_eq!(append_at(&log, -1, 101_001), 2);
}

#[test]
fn jitter_ends_each_segment_a_little_earlier_and_each_log_at_another_time() {
    let disk = Disk::new(Durability::PageCache);
    let config = TopicConfig { segment_ms: 10_000, segment_jitter_ms: 8_000, ..roomy() };
    let mut ages: Vec<i64> = (0..8)
        .map(|index| {
            let log = disk.create(&format!("t{index}"), &config);
            append_at(&log, 0, 0);
            (0..).step_by(100).find(|&age| append_at(&log, age, 0) == 2).unwrap()
        })
        .collect();
    assert!(ages.iter().all(|age| (2_000..=10_100).contains(age)), "{ages:?}");
    ages.sort_unstable();
    ages.dedup();
    assert!(ages.len() > 4, "{ages:?}");
    // More jitter than age is no more than the age.
    let log = disk.create("t", &TopicConfig { segment_ms: 1, segment_jitter_ms: 9_000, ..roomy() });
    assert_eq!((append_at(&log, 0, 0), append_at(&log, 0, 0), append_at(&log, 2, 0)), (1, 1, 2));
}

#[test]
fn full_indexes_and_offsets_too_far_apart_end_it() {
    let disk = Disk::new(Durability::PageCache);
    let config = TopicConfig { index_interval_bytes: 0, segment_index_bytes: 120, ..roomy() };
    let log = disk.create("t", &config);
    // The time index has ten entries of which one is kept for the end; the offset index would take fifteen.
    let counts: Vec<usize> = (0..20).map(|timestamp| append_at(&log, timestamp, 0)).collect();
    let first = counts.iter().take_while(|count| **count == 1).count();
    assert!((9..=10).contains(&first), "{counts:?}");

    let log = disk.create("far", &roomy());
    let follow = |base: Offset| {
        let mut batch = batch(Compression::None, &[(0, 10)]);
        assign_offset(&mut batch, base, LeaderEpoch(0));
        log.append_as_follower(&batch).unwrap();
        log.segment_bases()
    };
    let far = i64::from(i32::MAX);
    assert_eq!(follow(0), [0]);
    assert_eq!(follow(far), [0], "the last one that fits");
    assert_eq!(follow(far + 1), [0, far + 1]);
}
