//! What goes at the beginning of a log, and when.

use super::test_support::{Disk, append, batch, small_config, wait_until};
use super::{PartitionLog, ReadError};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::Compression;
use crate::types::Offset;

/// Appends batches of one record until there are `count` segments.
fn fill(log: &PartitionLog, count: usize, timestamp_ms: i64) {
    while log.segment_bases().len() < count {
        append(log, 0, batch(Compression::None, &[(timestamp_ms, 400)])).unwrap();
    }
}

fn with_suffix(disk: &Disk, suffix: &str) -> usize {
    disk.files("t").iter().filter(|name| name.ends_with(suffix)).count()
}

#[test]
fn what_is_below_the_log_start_goes_after_a_while_and_readers_finish() {
    let mut disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &TopicConfig { file_delete_delay_ms: 60_000, ..small_config() });
    fill(&log, 4, 1_000);
    let bases = log.segment_bases();
    let slice = log.read(0, Offset::MAX, 10_000, true).unwrap();
    log.raise_start_offset(bases[2] + 1).unwrap();

    wait_until("the segments are taken out", || log.segment_bases() == bases[2..]);
    assert!(matches!(log.read(0, Offset::MAX, 1, true), Err(ReadError::OutOfRange { .. })));
    let mut bytes = Vec::new();
    slice.read_into(&mut bytes).unwrap();
    assert!(!bytes.is_empty());
    wait_until("the files have their other names", || with_suffix(&disk, ".deleted") >= 2);

    disk.crash();
    drop(log);
    let logs = disk.open();
    assert_eq!(with_suffix(&disk, ".deleted"), 0);
    assert_eq!(logs[0].segment_bases(), bases[2..]);
}

#[test]
fn deleted_files_are_unlinked_when_their_time_has_come() {
    let disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &TopicConfig { file_delete_delay_ms: 0, ..small_config() });
    fill(&log, 3, 1_000);
    let before = with_suffix(&disk, ".log");
    log.raise_start_offset(log.segment_bases()[2]).unwrap();
    wait_until("the files are unlinked", || {
        with_suffix(&disk, ".log") == before - 2 && with_suffix(&disk, ".deleted") == 0
    });
}
