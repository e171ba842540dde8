//! What goes at the beginning of a log, and when.

use std::sync::Arc;
use std::time::Duration;

use super::test_support::{Disk, append, batch, read_all, small_config, wait_until};
use super::{PartitionLog, ReadError};
use crate::metadata::config::{CleanupPolicy, Durability, TopicConfig};
use crate::record::Compression;
use crate::types::Offset;
use crate::types::time::wall_ms;

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

const HOUR: i64 = 3_600_000;

/// Nothing expires.
fn endless() -> TopicConfig {
    TopicConfig { retention_ms: -1, ..small_config() }
}

/// A log with segments, all below the high watermark.
fn filled(disk: &Disk, count: usize, timestamp_ms: i64) -> Arc<PartitionLog> {
    let log = disk.create("t", &endless());
    fill(&log, count, timestamp_ms);
    log.set_high_watermark_checkpoint(log.end_offset());
    log
}

/// Has retention look at the log now, with everything that follows.
fn looked(log: &PartitionLog) {
    log.retain(wall_ms()).unwrap();
    wait_until("segments are gone", || {
        log.segment_bases().get(1).is_none_or(|&second| second > log.start_offset())
    });
}

#[test]
fn the_oldest_segments_go_while_the_rest_is_as_large_as_it_may_be() {
    let disk = Disk::new(Durability::PageCache);
    let log = filled(&disk, 5, 1_000);
    let (bases, size) = (log.segment_bases(), log.size());
    let first_size = log.read(0, bases[1], 1 << 20, true).unwrap().size as i64;
    let config = |retention_bytes| Arc::new(TopicConfig { retention_bytes, ..endless() });

    log.update_config(config(size as i64 - first_size + 1));
    looked(&log);
    assert_eq!(log.start_offset(), 0, "without the first one there would be too little");
    log.update_config(config(size as i64 - first_size));
    wait_until("the first segment goes", || log.segment_bases() == bases[1..]);

    // From now on it keeps its size as it grows.
    for _ in 0..40 {
        append(&log, 0, batch(Compression::None, &[(1_000, 400)])).unwrap();
        log.set_high_watermark_checkpoint(log.end_offset());
    }
    wait_until("retention keeps up", || {
        looked(&log);
        (log.size() as i64) < size as i64 + first_size
    });
    assert!(log.size() as i64 >= size as i64 - first_size);
    assert_eq!(read_all(&log, log.start_offset()).len() as u64, log.size());
}

#[test]
fn old_segments_go_and_an_expired_active_one_is_rolled_first() {
    let disk = Disk::new(Durability::PageCache);
    let (old, young) = (wall_ms() - 3 * HOUR, wall_ms() - HOUR);
    let log = filled(&disk, 3, old);
    // The last segment has a record that is younger.
    append(&log, 0, batch(Compression::None, &[(young, 10)])).unwrap();
    log.set_high_watermark_checkpoint(log.end_offset());
    let bases = log.segment_bases();
    let config = |retention_ms| Arc::new(TopicConfig { retention_ms, ..small_config() });

    log.update_config(config(4 * HOUR));
    looked(&log);
    assert_eq!(log.segment_bases(), bases);
    log.update_config(config(2 * HOUR));
    wait_until("the old ones go", || log.segment_bases() == bases[2..]);
    assert_eq!(log.start_offset(), bases[2]);

    let end = log.end_offset();
    log.update_config(config(HOUR / 2));
    wait_until("all of it goes", || log.segment_bases() == [end]);
    assert_eq!((log.start_offset(), log.end_offset(), log.size()), (end, end, 0));
    append(&log, 0, batch(Compression::None, &[(wall_ms(), 10)])).unwrap();
    assert_eq!(log.end_offset(), end + 1);
}

#[test]
fn nothing_goes_that_is_not_committed() {
    let disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &endless());
    fill(&log, 4, 1_000);
    let bases = log.segment_bases();
    log.set_high_watermark_checkpoint(bases[2] - 1);
    log.update_config(Arc::new(TopicConfig { retention_ms: 0, retention_bytes: 0, ..endless() }));
    wait_until("the first one goes", || log.segment_bases() == bases[1..]);
    // No event tells that more is committed: it is looked at again.
    log.set_high_watermark_checkpoint(bases[2]);
    wait_until("the next one goes", || log.segment_bases() == bases[2..]);
    assert_eq!(log.start_offset(), bases[2]);
}

#[test]
fn a_compacted_topic_loses_only_what_is_below_its_log_start() {
    let disk = Disk::new(Durability::PageCache);
    let log = filled(&disk, 4, 1_000);
    let bases = log.segment_bases();
    let compact = TopicConfig {
        retention_ms: 0,
        retention_bytes: 0,
        cleanup_policy: CleanupPolicy { delete: false, compact: true },
        ..endless()
    };
    log.update_config(Arc::new(compact));
    looked(&log);
    assert_eq!(log.segment_bases(), bases);
    log.raise_start_offset(bases[1]).unwrap();
    wait_until("the first one goes", || log.segment_bases() == bases[1..]);
}

/// E11: the age of a segment is that of its largest timestamp, however wrong.
#[test]
fn timestamps_far_away_expire_at_once_or_not_at_all_and_none_is_the_time_of_writing() {
    const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;
    for (timestamp_ms, is_kept) in
        [(wall_ms() - TEN_YEARS, false), (wall_ms() + TEN_YEARS, true), (-1, true)]
    {
        let disk = Disk::new(Durability::PageCache);
        let log = filled(&disk, 3, timestamp_ms);
        let bases = log.segment_bases();
        log.update_config(Arc::new(TopicConfig { retention_ms: HOUR, ..endless() }));
        if is_kept {
            looked(&log);
            assert_eq!(log.segment_bases(), bases, "{timestamp_ms}");
        } else {
            wait_until("all of it goes", || log.segment_bases() == [log.end_offset()]);
        }
    }
}

#[test]
fn after_a_start_nothing_goes_before_the_configs_are_known() {
    let mut disk = Disk::new(Durability::PageCache);
    let log = filled(&disk, 3, 1_000);
    let bases = log.segment_bases();
    disk.shut_down();
    drop(log);
    let log = disk.open().remove(0);
    assert_eq!(log.dir().chores.work.lock().retention.next(), None, "it knows the defaults only");
    log.update_config(Arc::new(endless()));
    looked(&log);
    assert_eq!(log.segment_bases(), bases);
    log.update_config(Arc::new(small_config()));
    wait_until("all of it goes", || log.segment_bases() == [log.end_offset()]);
}

#[test]
fn an_idle_log_is_looked_at_when_its_oldest_segment_will_have_expired() {
    let mut disk = Disk::new(Durability::PageCache);
    disk.retention_check_interval = Duration::from_millis(1);
    disk.crash();
    disk.open();
    let log = filled(&disk, 3, wall_ms());
    log.update_config(Arc::new(TopicConfig { retention_ms: 24 * HOUR, ..endless() }));
    let next = || log.dir().chores.work.lock().retention.next();
    let nearly_a_day = crate::types::time::now() + Duration::from_secs(23 * 3600);
    wait_until("retention has looked", || next().is_some_and(|next| next > nearly_a_day));
    log.update_config(Arc::new(endless()));
    wait_until("there is nothing to wait for", || next().is_none());
}

/// A crash between the checkpoint and the renames, and renames that reached the disk in any order.
#[test]
fn files_below_the_log_start_are_no_hole_in_the_log() {
    let mut disk = Disk::new(Durability::PageCache);
    let log = filled(&disk, 4, 1_000);
    let bases = log.segment_bases();
    let records = read_all(&log, bases[3]);
    disk.crash();
    drop(log);
    let checkpoint = format!("0\n1\nt 0 {}\n", bases[3]);
    std::fs::write(disk.path().join("log-start-offset-checkpoint"), checkpoint).unwrap();
    let middle = format!("{:020}.log", bases[1]);
    std::fs::remove_file(disk.partition_path("t").join(middle)).unwrap();
    let log = disk.open().remove(0);
    assert_eq!((log.start_offset(), log.segment_bases()), (bases[3], bases[3..].to_vec()));
    assert_eq!(read_all(&log, bases[3]), records);
}

#[test]
fn in_page_cache_mode_logs_are_flushed_as_configured() {
    let disk = Disk::new(Durability::PageCache);
    let flushed = |log: &PartitionLog| log.flushed_offset();
    let log = disk.create("t", &TopicConfig { flush_messages: 3, ..endless() });
    for _ in 0..2 {
        append(&log, 0, batch(Compression::None, &[(1_000, 10)])).unwrap();
    }
    assert_eq!(flushed(&log), 0);
    append(&log, 0, batch(Compression::None, &[(1_000, 10), (1_000, 10)])).unwrap();
    wait_until("four records are flushed", || flushed(&log) == 4);

    append(&log, 0, batch(Compression::None, &[(1_000, 10)])).unwrap();
    assert_eq!(flushed(&log), 4);
    log.update_config(Arc::new(TopicConfig { flush_ms: 1, ..endless() }));
    append(&log, 0, batch(Compression::None, &[(1_000, 10)])).unwrap();
    wait_until("time has passed", || flushed(&log) == 6);
}
