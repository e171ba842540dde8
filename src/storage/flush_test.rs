//! What counts as durable, what a failed write does, and what idle partitions cost.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::test_support::{
    Disk, TOPIC_ID, append, batch, idempotent_batch, name, read_all, small_config, wait_until,
};
use super::{AppendError, CompactionConfig, LogDirs, StorageConfig};
use crate::metadata::config::{Durability, TopicConfig};
use crate::protocol::ErrorCode;
use crate::record::Compression;

fn one_record() -> Vec<u8> {
    batch(Compression::None, &[(1, 1)])
}

#[test]
fn in_fsync_mode_the_durable_end_follows_and_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let config = StorageConfig {
        dirs: vec![temp.path().to_path_buf()],
        durability: Durability::Fsync,
        retention_check_interval: std::time::Duration::from_secs(300),
        recovery_threads: 1,
        compaction: CompactionConfig::default(),
        min_free: Some(0),
        progress: std::sync::Arc::default(),
        on_trouble: Arc::new(|| {}),
    };
    let on_durable = move |log: &super::PartitionLog| {
        assert!(log.durable_end_offset() > 0);
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let (dirs, _) = LogDirs::open(config, Arc::new(on_durable)).unwrap();
    let topic = Arc::new(TopicConfig::default());
    // More at once than are synced one by one.
    let logs: Vec<_> = (0..300)
        .map(|partition| dirs.create(&name("t", partition), TOPIC_ID, Arc::clone(&topic)).unwrap())
        .collect();
    for log in &logs {
        append(log, 0, one_record()).unwrap();
        assert!(log.durable_end_offset() <= log.end_offset());
    }
    wait_until("everything is durable", || logs.iter().all(|log| log.durable_end_offset() == 1));
    wait_until("everybody was told", || calls.load(Ordering::SeqCst) >= 300);

    let lax = TopicConfig { durability: Some(Durability::PageCache), ..TopicConfig::default() };
    let log = dirs.create(&name("lax", 0), TOPIC_ID, Arc::new(lax)).unwrap();
    append(&log, 0, one_record()).unwrap();
    assert_eq!(log.durable_end_offset(), 1, "the page cache is enough");
    log.update_config(topic);
    wait_until("the switch to fsync took effect", || log.durable_end_offset() == 1);
}

#[test]
fn a_sync_that_began_before_a_truncation_does_not_count() {
    let disk = Disk::new(Durability::Fsync);
    let log = disk.create("t", &TopicConfig::default());
    append(&log, 0, one_record()).unwrap();
    wait_until("the first record is durable", || log.durable_end_offset() == 1);
    append(&log, 0, one_record()).unwrap();
    let dirty = log.begin_flush().unwrap();
    log.truncate_to(1).unwrap();
    assert!(!log.end_flush(&dirty), "it saw bytes that are gone");
    assert_eq!((log.durable_end_offset(), log.end_offset()), (1, 1));
}

#[test]
fn segments_that_rolled_are_synced_with_the_active_one() {
    let mut disk = Disk::new(Durability::Fsync);
    let log = disk.create("t", &small_config());
    for n in 0..60 {
        append(&log, 0, idempotent_batch(9, n, 1)).unwrap();
    }
    wait_until("everything is durable", || log.durable_end_offset() == 60);
    wait_until("the recovery point moves on", || {
        let checkpoint = fs::read_to_string(disk.path().join("recovery-point-offset-checkpoint"));
        checkpoint.is_ok_and(|text| text.starts_with("0\n1\nt 0 "))
    });
    let snapshots = disk.files("t").iter().filter(|name| name.ends_with("snapshot")).count();
    assert!((1..60).contains(&snapshots));
    let whole = read_all(&log, 0);
    drop(log);
    disk.crash();
    let log = disk.open().remove(0);
    assert!(read_all(&log, 0) == whole);
    wait_until("what was recovered is durable", || log.durable_end_offset() == 60);
}

#[test]
fn a_failed_write_takes_the_directory_offline_for_good() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("logs");
    let reports = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&reports);
    let config = StorageConfig {
        dirs: vec![dir.clone()],
        durability: Durability::Fsync,
        retention_check_interval: std::time::Duration::from_secs(300),
        recovery_threads: 1,
        compaction: CompactionConfig::default(),
        min_free: Some(0),
        progress: std::sync::Arc::default(),
        on_trouble: Arc::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        }),
    };
    let (dirs, _) = LogDirs::open(config, Arc::new(|_| {})).unwrap();
    let topic = Arc::new(TopicConfig::default());
    let log = dirs.create(&name("t", 0), TOPIC_ID, Arc::clone(&topic)).unwrap();
    append(&log, 0, one_record()).unwrap();
    wait_until("the first record is durable", || log.durable_end_offset() == 1);
    let other = dirs.create(&name("t", 1), TOPIC_ID, Arc::clone(&topic)).unwrap();

    fs::rename(&dir, temp.path().join("moved")).unwrap();
    let error = append(&other, 0, one_record()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::KafkaStorageError);
    fs::rename(temp.path().join("moved"), &dir).unwrap();
    for log in [&log, &other] {
        let error = append(log, 0, one_record()).unwrap_err();
        assert!(matches!(error, AppendError::Storage(_)), "not even when the disk is back");
    }
    assert_eq!(log.read(0, 1, 1_000, true).unwrap().next_offset, 1, "reads go on");
    assert_eq!(dirs.offline().len(), 1);
    wait_until("the directory is reported", || reports.load(Ordering::SeqCst) == 1);
    assert!(dirs.create(&name("t", 2), TOPIC_ID, topic).is_err());
}

#[test]
fn logs_without_records_have_no_files_and_idle_ones_no_descriptors() {
    let disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &TopicConfig::default());
    log.assign_epoch(crate::types::LeaderEpoch(3), 0);
    assert!(log.read(0, 10, 1_000, true).unwrap().is_empty());
    assert!(!disk.partition_path("t").exists());
    append(&log, 3, one_record()).unwrap();
    let open = || {
        let links = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let is_ours = |link: &fs::DirEntry| {
            fs::read_link(link.path())
                .is_ok_and(|target| target.starts_with(disk.partition_path("t")))
        };
        links.filter(is_ours).count()
    };
    if cfg!(target_os = "linux") {
        assert_eq!(open(), 1, "the log; indexes are written in larger pieces");
        wait_until("it is idle for a while", || log.cool());
        assert_eq!(open(), 0);
    }
    append(&log, 3, one_record()).unwrap();
    assert_eq!(read_all(&log, 0).len(), 2 * one_record().len());
}
