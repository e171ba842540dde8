//! Restarts, after clean shutdowns, crashes and damage.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::test_support::{
    Disk, TOPIC_ID, append, batch, idempotent_batch, name, read_all, small_config, wait_until,
};
use super::{AppendError, CompactionConfig, Error, LogDirs, ReadError, StorageConfig};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::{Compression, batches};
use crate::types::{BrokerEpoch, LeaderEpoch, Offset};

const LOG_0: &str = "00000000000000000000.log";

/// A log of several segments, epochs and producers; everything in it.
fn fill(disk: &Disk) -> Vec<u8> {
    fill_with(disk, &small_config(), 1)
}

fn fill_with(disk: &Disk, config: &TopicConfig, scale: usize) -> Vec<u8> {
    let log = disk.create("t", config);
    for n in 0..30_i32 {
        let epoch = n / 8;
        append(&log, epoch, idempotent_batch(i64::from(n % 3), n / 3 * 2, 2)).unwrap();
        let records =
            [(i64::from(n * 37 % 100), 40 * scale), (i64::from(n * 53 % 100), 90 * scale)];
        append(&log, epoch, batch(Compression::ALL[n as usize % 5], &records)).unwrap();
    }
    read_all(&log, 0)
}

fn file_contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

#[test]
fn a_torn_or_damaged_tail_is_cut_off_and_nothing_else() {
    let mut disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &TopicConfig::default());
    for n in 0..3 {
        append(&log, n, idempotent_batch(9, n, 1)).unwrap();
    }
    let whole = read_all(&log, 0);
    let last_at = batches(&whole).take(2).map(|b| b.unwrap().bytes.len()).sum::<usize>();
    disk.crash();
    drop(log);
    let path = disk.partition_path("t").join(LOG_0);

    let mut check = |content: &[u8], kept: Option<&[u8]>| {
        fs::write(&path, content).unwrap();
        let log = disk.open().remove(0);
        if let Some(kept) = kept {
            assert!(read_all(&log, 0) == kept);
            let end = batches(kept).last().map_or(0, |b| b.unwrap().header.next_offset());
            assert_eq!(log.end_offset(), end);
            let count = i32::try_from(end).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), kept.len() as u64);
            assert_eq!(log.latest_epoch(), LeaderEpoch(count - 1));
            // The producer state is that of the log, neither behind it nor ahead.
            let next = idempotent_batch(9, count, 1);
            let appended = append(&log, 9, next.clone()).unwrap();
            assert_eq!((appended.base_offset, appended.duplicate), (end, false));
            assert!(append(&log, 9, next).unwrap().duplicate);
        }
        disk.crash();
    };
    for cut in last_at..whole.len() {
        check(&whole[..cut], Some(&whole[..last_at]));
    }
    for position in last_at..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x10;
        // Base offset and leader epoch are not covered by the checksum.
        let is_covered = !matches!(position - last_at, 0..8 | 12..16);
        check(&damaged, is_covered.then_some(&whole[..last_at]));
    }
    for garbage in [vec![0; 512], vec![0; 4096], vec![0xa5; 100], whole[..30].to_vec()] {
        check(&[&whole[..], &garbage[..]].concat(), Some(&whole));
    }
    check(&whole, Some(&whole));
    check(&[], Some(&[]));
}

#[test]
fn recovery_gives_what_a_clean_shutdown_wrote() {
    let mut disk = Disk::new(Durability::PageCache);
    // Recovery does not know the configs of topics yet: it indexes at the default distance.
    let config = TopicConfig { segment_bytes: 16_000, ..TopicConfig::default() };
    let whole = fill_with(&disk, &config, 100);
    disk.shut_down();
    let clean = file_contents(&disk.partition_path("t"));
    assert!(clean.keys().filter(|name| name.ends_with(".log")).count() > 3);

    for extensions in [&["index"][..], &["timeindex"], &["snapshot"], &["index", "timeindex"]] {
        for keep_mark in [true, false] {
            for (name, content) in &clean {
                fs::write(disk.partition_path("t").join(name), content).unwrap();
                if extensions.iter().any(|extension| name.ends_with(extension)) {
                    fs::remove_file(disk.partition_path("t").join(name)).unwrap();
                }
            }
            if !keep_mark {
                fs::remove_file(disk.path().join(".kafka_cleanshutdown")).unwrap();
                fs::remove_file(disk.path().join("recovery-point-offset-checkpoint")).unwrap();
                fs::remove_file(disk.partition_path("t").join("leader-epoch-checkpoint")).unwrap();
            }
            let log = disk.open().remove(0);
            assert!(read_all(&log, 0) == whole);
            for producer_id in 0..3 {
                // The newest batch of each producer is known again, whatever was lost.
                let newest = idempotent_batch(producer_id, 9 * 2, 2);
                assert!(append(&log, 3, newest).unwrap().duplicate);
            }
            disk.shut_down();
            let again = file_contents(&disk.partition_path("t"));
            for (name, content) in &clean {
                let is_rebuilt = !name.ends_with(".snapshot") || again.contains_key(name);
                assert!(!is_rebuilt || again.get(name) == Some(content), "{name} {extensions:?}");
            }
        }
    }
}

#[test]
fn a_wrong_index_gives_no_wrong_data() {
    let mut disk = Disk::new(Durability::PageCache);
    let whole = fill(&disk);
    disk.shut_down();
    let dir = disk.partition_path("t");
    let clean = file_contents(&dir);
    for (name, content) in &clean {
        if !name.ends_with("index") || content.is_empty() {
            continue;
        }
        for damage in 0..4 {
            let mut damaged = content.clone();
            match damage {
                0 => damaged.truncate(content.len() - 1),
                1 => damaged.iter_mut().for_each(|byte| *byte ^= 0x01),
                2 => damaged.fill(0),
                _ => damaged.clear(),
            }
            fs::write(dir.join(name), damaged).unwrap();
            let log = disk.open().remove(0);
            for offset in 0..log.end_offset() {
                let slice = log.read(offset, Offset::MAX, 300, true).unwrap();
                let mut bytes = Vec::new();
                slice.read_into(&mut bytes).unwrap();
                let first = batches(&bytes).next().unwrap().unwrap().header;
                assert!(first.base_offset <= offset && offset <= first.last_offset());
            }
            assert!(read_all(&log, 0) == whole);
            disk.shut_down();
            for (name, content) in &clean {
                fs::write(dir.join(name), content).unwrap();
            }
        }
    }
}

/// Every field of the header, and the records, of a batch in a sealed segment and of the last one.
#[test]
fn flushed_records_that_are_damaged_are_neither_served_nor_cut_off() {
    const FIELDS: [usize; 14] = [7, 0, 11, 15, 12, 16, 20, 22, 26, 34, 42, 50, 60, 70];
    let mut disk = Disk::new(Durability::PageCache);
    let whole = fill(&disk);
    let log_count = disk.files("t").iter().filter(|name| name.ends_with(".log")).count();
    disk.shut_down();
    let clean = file_contents(&disk.partition_path("t"));
    let mark = fs::read(disk.path().join(".kafka_cleanshutdown")).unwrap();
    let bases: Vec<&String> = clean.keys().filter(|name| name.ends_with(".log")).collect();
    for (name, is_clean) in [(bases[1], true), (bases[1], false), (bases[bases.len() - 1], true)] {
        let content = &clean[name];
        let starts: Vec<usize> = batches(content)
            .scan(0, |at, batch| Some(std::mem::replace(at, *at + batch.unwrap().bytes.len())))
            .collect();
        for (start, field) in [starts[1], starts[starts.len() - 1]]
            .into_iter()
            .flat_map(|start| FIELDS.map(|field| (start, field)))
        {
            let mut damaged = content.clone();
            damaged[start + field] ^= 1;
            let path = disk.partition_path("t").join(name);
            fs::write(&path, &damaged).unwrap();
            if is_clean {
                fs::write(disk.path().join(".kafka_cleanshutdown"), &mark).unwrap();
            } else {
                let _ = fs::remove_file(disk.path().join(".kafka_cleanshutdown"));
            }
            let log = disk.open().remove(0);
            let mut served = Vec::new();
            let mut next = 0;
            let refused = loop {
                match log.read(next, Offset::MAX, 500, true) {
                    Ok(slice) if slice.is_empty() => break None,
                    Ok(slice) => {
                        slice.read_into(&mut served).unwrap();
                        next = slice.next_offset;
                    }
                    Err(error) => break Some(error),
                }
            };
            let context = format!("field {field} of the batch at {start} of {name}, {is_clean}");
            assert!(whole.starts_with(&served), "{context}");
            assert!(
                matches!(refused, Some(ReadError::Storage(Error::Damaged { .. }))),
                "{context}: {refused:?}"
            );
            assert!(
                log.is_damaged() && disk.dirs().damages().found_and_repaired() == (1, 0),
                "{context}"
            );
            assert_eq!(disk.dirs().offline_logs().len(), 1);
            assert!(append(&log, 9, batch(Compression::None, &[(1, 1)])).is_err());
            disk.crash();
            assert_eq!(fs::read(&path).unwrap(), damaged, "{context}");
            for (name, content) in &clean {
                fs::write(disk.partition_path("t").join(name), content).unwrap();
            }
            let now = disk.files("t").iter().filter(|name| name.ends_with(".log")).count();
            assert_eq!(now, log_count, "{context}");
        }
    }
}

#[test]
fn a_damaged_log_is_repaired_by_what_a_leader_has() {
    let mut disk = Disk::new(Durability::Fsync);
    let whole = fill(&disk);
    disk.shut_down();
    let logs: Vec<String> =
        disk.files("t").into_iter().filter(|name| name.ends_with(".log")).collect();
    let path = disk.partition_path("t").join(&logs[1]);
    let mut content = fs::read(&path).unwrap();
    let at = content.len() / 2;
    content[at] ^= 0x40;
    fs::write(&path, &content).unwrap();
    let log = disk.open().remove(0);
    // A read finds it; the file is there still.
    let found = (0..log.end_offset()).find(|&at| log.read(at, Offset::MAX, 500, true).is_err());
    assert!(found.is_some() && log.is_damaged() && !log.takes_batches());

    log.begin_repair().unwrap();
    let base: Offset = logs[1].trim_end_matches(".log").parse().unwrap();
    assert_eq!((log.end_offset(), log.is_damaged()), (base, true));
    assert_eq!(fs::read(path.with_added_extension("damaged")).unwrap(), content);
    // The repair goes on after a crash.
    disk.crash();
    drop(log);
    let log = disk.open().remove(0);
    assert!(log.is_damaged() && log.takes_batches() && log.end_offset() == base);
    assert!(log.read(0, Offset::MAX, 500, true).is_err(), "it does not serve yet");
    for batch in batches(&whole).map(|batch| batch.unwrap()) {
        if batch.header.base_offset >= base {
            log.append_as_follower(batch.bytes).unwrap();
        }
    }
    log.end_repair().unwrap();
    assert!(!log.is_damaged() && read_all(&log, 0) == whole);
    assert_eq!(disk.dirs().damages().found_and_repaired(), (0, 1));
    wait_until("what was set aside is gone", || {
        !disk.files("t").iter().any(|name| name.ends_with(".damaged") || name == "kontiki-repair")
    });
    disk.shut_down();
    let log = disk.open().remove(0);
    assert!(!log.is_damaged() && read_all(&log, 0) == whole);
}

#[test]
fn what_follows_a_damaged_segment_is_dropped_after_a_crash() {
    let mut disk = Disk::new(Durability::PageCache);
    let whole = fill(&disk);
    disk.shut_down();
    for mark in [".kafka_cleanshutdown", "recovery-point-offset-checkpoint"] {
        fs::remove_file(disk.path().join(mark)).unwrap();
    }
    let logs: Vec<String> =
        disk.files("t").into_iter().filter(|name| name.ends_with(".log")).collect();
    let second = disk.partition_path("t").join(&logs[1]);
    let size = fs::metadata(&second).unwrap().len();
    fs::OpenOptions::new().write(true).open(&second).unwrap().set_len(size - 1).unwrap();
    let log = disk.open().remove(0);
    let left = read_all(&log, 0);
    assert!(whole.starts_with(&left) && !left.is_empty());
    assert_eq!(disk.files("t").iter().filter(|name| name.ends_with(".log")).count(), 2);
    append(&log, 9, batch(Compression::None, &[(1, 1)])).unwrap();
}

#[test]
fn a_clean_shutdown_is_marked_and_closes_the_logs() {
    let mut disk = Disk::new(Durability::Fsync);
    assert_eq!(disk.dirs().previous_broker_epoch(), BrokerEpoch::NONE);
    let log = disk.create("t", &TopicConfig::default());
    append(&log, 4, idempotent_batch(9, 0, 2)).unwrap();
    log.set_high_watermark_checkpoint(2);
    disk.shut_down();
    let refused = append(&log, 4, idempotent_batch(9, 2, 2));
    assert!(matches!(refused, Err(AppendError::Closed)));
    assert_eq!(
        disk.files("t"),
        [
            "00000000000000000000.index",
            LOG_0,
            "00000000000000000000.timeindex",
            "00000000000000000002.snapshot",
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
    );
    let text = |file: &str| fs::read_to_string(disk.path().join(file)).unwrap();
    assert_eq!(text(".kafka_cleanshutdown"), "{\"version\":0,\"brokerEpoch\":42}");
    assert_eq!(text("recovery-point-offset-checkpoint"), "0\n1\nt 0 2\n");
    assert_eq!(text("replication-offset-checkpoint"), "0\n1\nt 0 2\n");
    assert_eq!(text("t-0/leader-epoch-checkpoint"), "0\n1\n4 0\n");

    let log = disk.open().remove(0);
    assert_eq!(disk.dirs().previous_broker_epoch(), BrokerEpoch(42));
    assert_eq!((log.high_watermark_checkpoint(), log.durable_end_offset()), (2, 2));
    assert_eq!((log.topic_id(), log.name()), (TOPIC_ID, &name("t", 0)));
    assert!(!disk.path().join(".kafka_cleanshutdown").exists(), "a crash from now on is one");
    disk.crash();
    disk.open();
    assert_eq!(disk.dirs().previous_broker_epoch(), BrokerEpoch::NONE);
}

#[test]
fn deleted_logs_free_their_name_at_once_and_their_files_soon() {
    let mut disk = Disk::new(Durability::PageCache);
    let config = TopicConfig { file_delete_delay_ms: 0, ..TopicConfig::default() };
    let old = disk.create("t", &config);
    append(&old, 0, batch(Compression::None, &[(1, 1)])).unwrap();
    let slice = old.read(0, 1, 1_000, true).unwrap();
    disk.dirs().delete(&old);
    assert!(append(&old, 0, batch(Compression::None, &[(1, 1)])).is_err());
    slice.read_into(&mut Vec::new()).expect("a reader may finish");

    let new = disk.create("t", &config);
    assert_eq!(new.end_offset(), 0);
    append(&new, 0, batch(Compression::None, &[(2, 2)])).unwrap();
    disk.dirs().set_aside(&new);
    let directories = || {
        fs::read_dir(disk.path()).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count()
    };
    wait_until("the files are gone", || directories() == 0);
    disk.dirs().delete(&disk.create("never-written", &config));
    disk.shut_down();
    assert!(disk.open().is_empty());
}

#[test]
fn foreign_directories_are_left_alone_or_set_aside() {
    let mut disk = Disk::new(Durability::PageCache);
    disk.crash();
    for dir in ["snapshots", "-0", "t--1", "no-id-0", "old-0.00ff-delete", "older-0.00ff-stray"] {
        fs::create_dir(disk.path().join(dir)).unwrap();
    }
    assert!(disk.open().is_empty());
    wait_until("leftovers are removed", || {
        !disk.path().join("old-0.00ff-delete").exists()
            && !disk.path().join("older-0.00ff-stray").exists()
    });
    assert!(disk.path().join("snapshots").exists());
    assert!(!disk.path().join("no-id-0").exists());
    let config = StorageConfig {
        dirs: vec![disk.path().to_path_buf()],
        durability: Durability::PageCache,
        retention_check_interval: std::time::Duration::from_secs(300),
        recovery_threads: 1,
        compaction: CompactionConfig::default(),
        min_free: Some(0),
        progress: std::sync::Arc::default(),
        on_trouble: std::sync::Arc::new(|| {}),
    };
    let second = LogDirs::open(config, std::sync::Arc::new(|_| {})).map(|_| ());
    assert!(matches!(second, Err(Error::Locked { .. })));
}

#[test]
fn damaged_epochs_and_snapshots_are_read_again_from_the_batches() {
    let mut disk = Disk::new(Durability::Fsync);
    let whole = fill(&disk);
    disk.shut_down();
    let clean = file_contents(&disk.partition_path("t"));
    let mark = fs::read(disk.path().join(".kafka_cleanshutdown")).unwrap();
    let newest = clean.keys().rfind(|name| name.ends_with(".snapshot")).unwrap();
    let too_new = format!("{:020}.snapshot", 10_000);
    for name in ["leader-epoch-checkpoint", newest, &too_new] {
        for damage in 0..5 {
            let content = clean.get(name).unwrap_or(&clean[newest]);
            let mut damaged = content.clone();
            match damage {
                0 => damaged.clear(),
                1 => damaged.truncate(content.len() / 2),
                2 if name == "leader-epoch-checkpoint" => damaged[0] ^= 1,
                2 => damaged[content.len() - 2] ^= 1,
                3 => damaged.fill(0),
                _ => {}
            }
            fs::write(disk.partition_path("t").join(name), damaged).unwrap();
            if damage == 4 && clean.contains_key(name) {
                fs::remove_file(disk.partition_path("t").join(name)).unwrap();
            }
            for is_clean in [true, false] {
                if is_clean {
                    fs::write(disk.path().join(".kafka_cleanshutdown"), &mark).unwrap();
                }
                let log = disk.open().remove(0);
                assert!(!log.is_damaged() && read_all(&log, 0) == whole, "{name} {damage}");
                for (producer, last) in [(0, 19), (1, 19), (2, 19)] {
                    assert_eq!(log.last_sequences()[&producer], last, "{name} {damage}");
                }
                assert!(!disk.files("t").contains(&too_new));
                for batch in batches(&whole).map(|batch| batch.unwrap().header) {
                    let end = log.end_offset_for_epoch(batch.leader_epoch).unwrap().1;
                    assert!(batch.last_offset() < end, "{name} {damage}");
                }
                disk.crash();
            }
            for (name, content) in &clean {
                fs::write(disk.partition_path("t").join(name), content).unwrap();
            }
        }
    }
}

#[test]
fn gaps_larger_than_a_segment_can_address_are_recovered() {
    let mut disk = Disk::new(Durability::Fsync);
    let log = disk.create("t", &small_config());
    append(&log, 0, batch(Compression::None, &[(1, 1)])).unwrap();
    let mut whole = read_all(&log, 0);
    for base in [10, 5_000_000_000, 5_000_000_001, 9_000_000_000] {
        let mut bytes = batch(Compression::None, &[(2, 20), (3, 20)]);
        crate::record::assign_offset(&mut bytes, base * 2, LeaderEpoch(0));
        log.append_as_follower(&bytes).unwrap();
        whole.extend_from_slice(&bytes);
    }
    wait_until("it is durable", || log.durable_end_offset() == log.end_offset());
    for is_clean in [false, true, false] {
        if is_clean {
            disk.shut_down();
        } else {
            disk.crash();
        }
        let log = disk.open().remove(0);
        assert!(!log.is_damaged() && read_all(&log, 0) == whole);
        assert_eq!(log.end_offset(), 18_000_000_002);
    }
}

#[test]
fn an_empty_last_segment_is_where_the_log_goes_on() {
    let mut disk = Disk::new(Durability::Fsync);
    let log = disk.create("t", &small_config());
    append(&log, 0, batch(Compression::None, &[(1, 1)])).unwrap();
    let whole = read_all(&log, 0);
    wait_until("it is durable", || log.durable_end_offset() == 1);
    for is_clean in [false, true] {
        if is_clean {
            disk.shut_down();
        } else {
            disk.crash();
        }
        fs::write(disk.partition_path("t").join("00000000000000000001.log"), []).unwrap();
        let log = disk.open().remove(0);
        assert_eq!((log.is_damaged(), log.end_offset()), (false, 1));
        assert!(read_all(&log, 0) == whole);
    }
}
