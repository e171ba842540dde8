//! The tools' view of partition directories: Kafka's files, ours, and damaged ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Error;
use super::inspect::{Aborted, Content, Fault, LogFile, read, stats, verify};
use super::repair::{repair, repair_of};
use super::test_support::{Disk, append, batch, idempotent_batch, read_all, small_config};
use crate::metadata::config::Durability;
use crate::record::{Compression, DECOMPRESSED_SIZE_MAX, records};
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// Written by Kafka 4.4; its README says how.
fn kafka(partition: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka-4.4").join(partition)
}

type Shown = (Offset, TimestampMs, Option<String>, Option<String>);

fn shown(log: &Path) -> Vec<Shown> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found = Vec::new();
    let log = LogFile::open(log).unwrap();
    let (end, refusal) = log
        .walk(|_, batch| {
            batch.check_crc().unwrap();
            for record in records(&batch, DECOMPRESSED_SIZE_MAX).unwrap().iter() {
                let record = record.unwrap();
                let (key, value) = (record.key.map(text), record.value.map(text));
                found.push((record.offset, record.timestamp_ms, key, value));
            }
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!((end, refusal), (log.size(), None));
    found
}

fn some(text: impl Into<String>) -> Option<String> {
    Some(text.into())
}

#[test]
fn every_codec_as_kafka_wrote_it() {
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let expected: Vec<Shown> = (0..15)
        .map(|n: i64| {
            let (codec, index) = (codecs[usize::try_from(n).unwrap() / 3], n % 3);
            let key = (index != 2).then(|| format!("k{n}"));
            let value = (index != 1).then(|| format!("{codec}-{index}-{}", "x".repeat(20)));
            (n, 1_700_000_000_000 + n * 1000, key, value)
        })
        .collect();
    let dir = kafka("codecs-0");
    assert_eq!(shown(&dir.join("00000000000000000000.log")), expected);

    let stats = stats(&dir).unwrap();
    assert_eq!(stats.codecs.keys().copied().collect::<Vec<u8>>(), [0, 1, 2, 3, 4]);
    assert!(stats.codecs.values().all(|tally| (tally.batches, tally.records) == (1, 3)));
    assert_eq!(stats.timestamps_ms, Some((1_700_000_002_000, 1_700_000_014_000)));
    assert_eq!((stats.producers.len(), stats.total.size, stats.unreadable_size), (5, 658, 0));

    let Content::Producers(producers) = read(&dir.join("00000000000000000015.snapshot")).unwrap()
    else {
        panic!("a snapshot holds producers");
    };
    let found: Vec<_> =
        producers.iter().map(|p| (p.producer_id, p.last_sequence, p.last_offset)).collect();
    assert_eq!(found, [(0, 2, 2), (1, 2, 5), (2, 2, 8), (3, 2, 11), (4, 2, 14)]);
    let Content::Times(times) = read(&dir.join("00000000000000000000.timeindex")).unwrap() else {
        panic!("a time index holds times");
    };
    assert_eq!(
        times.iter().map(|t| (t.timestamp_ms, t.offset)).collect::<Vec<_>>(),
        [(1_700_000_014_000, 14)]
    );
    let epochs = read(&dir.join("leader-epoch-checkpoint")).unwrap();
    assert_eq!(epochs, Content::LeaderEpochs(vec![(LeaderEpoch(0), 0)]));
    let topic_id = read(&dir.join("partition.metadata")).unwrap();
    assert_eq!(topic_id, Content::TopicId("elGkQd5jSyiqxmQ3rKBpXQ".parse().unwrap()));
}

#[test]
fn transactions_as_kafka_wrote_them() {
    let dir = kafka("txn-0");
    let data: Vec<Shown> = shown(&dir.join("00000000000000000002.log"))
        .into_iter()
        .filter(|record| ![2, 5, 8].contains(&record.0))
        .collect();
    let record = |offset: Offset, round: i64, index: i64| {
        let at_ms = 1_700_000_000_000 + round * 10 + index;
        (offset, at_ms, some(format!("k{index}")), some(format!("round-{round}-{index}")))
    };
    assert_eq!(data, [record(3, 1, 0), record(4, 1, 1), record(6, 2, 0), record(7, 2, 1)]);
    let aborted =
        Aborted { producer_id: 5, first_offset: 3, last_offset: 5, last_stable_offset: 6 };
    let index = read(&dir.join("00000000000000000002.txnindex")).unwrap();
    assert_eq!(index, Content::Aborted(vec![aborted]));
    let Content::Producers(open) = read(&dir.join("00000000000000000002.snapshot")).unwrap() else {
        panic!("a snapshot holds producers");
    };
    assert_eq!((open[0].producer_id, open[0].transaction_first_offset), (5, 0));
}

#[test]
fn a_compacted_log_as_kafka_wrote_it() {
    let dir = kafka("compacted-0");
    let found = shown(&dir.join("00000000000000000000.log"));
    let pairs: Vec<(Offset, Option<String>)> =
        found.into_iter().map(|(offset, _, _, value)| (offset, value)).collect();
    let value = |round: i64, index: i64| some(format!("v{round}-{index}"));
    let expected = [
        (14, value(2, 4)),
        (15, value(3, 0)),
        (20, None),
        (21, value(4, 1)),
        (22, value(4, 2)),
        (23, value(4, 3)),
        (24, value(4, 4)),
    ];
    assert_eq!(pairs, expected);
    let mut horizons = Vec::new();
    let log = LogFile::open(&dir.join("00000000000000000000.log")).unwrap();
    log.walk(|position, batch| {
        if batch.header.has_delete_horizon() {
            horizons.push((position, batch.header.base_timestamp_ms));
        }
        Ok::<(), Error>(())
    })
    .unwrap();
    assert_eq!(horizons, [(172, 1_796_161_392_302)]);
}

#[test]
fn what_kafka_wrote_verifies() {
    for (partition, end, count) in [("codecs-0", 15, 15), ("txn-0", 9, 9), ("compacted-0", 30, 12)]
    {
        let seen = verify(&kafka(partition)).unwrap();
        assert_eq!(seen.findings, [], "{partition}");
        assert_eq!((seen.end_offset, seen.records), (end, count), "{partition}");
    }
}

/// A copy, because an opened directory is written to.
fn copy(partition: &str) -> Disk {
    let mut disk = Disk::new(Durability::PageCache);
    disk.retention_check_interval = Duration::from_secs(3600);
    disk.crash();
    let files = |dir: PathBuf| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let target = disk.path().join(partition);
    fs::create_dir(&target).unwrap();
    for path in files(kafka(partition)) {
        fs::copy(&path, target.join(path.file_name().unwrap())).unwrap();
    }
    for path in files(kafka("")).filter(|path| path.is_file()) {
        fs::copy(&path, disk.path().join(path.file_name().unwrap())).unwrap();
    }
    disk
}

#[test]
fn a_directory_of_kafka_is_opened_and_served_as_it_is() {
    for partition in ["codecs-0", "txn-0", "compacted-0"] {
        for is_clean in [true, false] {
            let mut disk = copy(partition);
            if !is_clean {
                fs::remove_file(disk.path().join(".kafka_cleanshutdown")).unwrap();
                fs::remove_file(disk.path().join("recovery-point-offset-checkpoint")).unwrap();
            }
            let logs = disk.open();
            let log = &logs[0];
            let mut expected = Vec::new();
            for base in verify(&kafka(partition)).unwrap().files.segments {
                let path = kafka(partition).join(super::segment::file_name(base, "log"));
                expected.extend(fs::read(path).unwrap());
            }
            assert_eq!(read_all(log, log.start_offset()), expected, "{partition} {is_clean}");
            assert_eq!(log.latest_epoch(), LeaderEpoch(0));
        }
    }
}

/// Some segments with producers, epochs and every codec.
fn written(is_clean: bool) -> Disk {
    let mut disk = Disk::new(Durability::Fsync);
    let log = disk.create("t", &small_config());
    for round in 0..12 {
        let epoch = round / 4;
        append(&log, epoch, idempotent_batch(9, round * 3, 3)).unwrap();
        let compression = Compression::ALL[usize::try_from(round).unwrap() % 5];
        append(&log, epoch, batch(compression, &[(i64::from(round) * 100, 300), (7, 20)])).unwrap();
    }
    drop(log);
    if is_clean {
        disk.shut_down();
    } else {
        disk.crash();
    }
    disk
}

#[test]
fn our_own_logs_verify_whether_they_were_closed_or_not() {
    for is_clean in [true, false] {
        let disk = written(is_clean);
        let seen = verify(&disk.partition_path("t")).unwrap();
        assert_eq!(seen.findings, [], "clean: {is_clean}");
        assert_eq!((seen.end_offset, seen.records, seen.batches), (60, 60, 24));
        assert!(seen.files.segments.len() > 2, "{seen:?}");
    }
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn every_damage_is_found_where_it_is() {
    type Damage = fn(&Path, &[Offset], &[Offset]);
    let damages: [(&str, Fault, Damage); 11] = [
        ("a record", Fault::Records, |dir, bases, _| flip(&log(dir, bases[0], "log"), 80)),
        ("a length", Fault::Records, |dir, bases, _| flip(&log(dir, bases[1], "log"), 9)),
        ("a base offset", Fault::Records, |dir, bases, _| flip(&log(dir, bases[1], "log"), 0)),
        ("a segment", Fault::Records, |dir, bases, _| {
            fs::remove_file(log(dir, bases[1], "log")).unwrap();
            // Otherwise it bears witness that the gap was there before.
            let _ = fs::remove_file(log(dir, bases[1], "snapshot"));
        }),
        ("the last segment", Fault::Records, |dir, bases, _| {
            fs::remove_file(log(dir, *bases.last().unwrap(), "log")).unwrap();
        }),
        ("an offset index", Fault::Index, |dir, bases, _| flip(&log(dir, bases[0], "index"), 3)),
        ("a time index", Fault::Index, |dir, bases, _| flip(&log(dir, bases[0], "timeindex"), 7)),
        ("no index", Fault::Index, |dir, bases, _| {
            fs::remove_file(log(dir, bases[1], "index")).unwrap();
        }),
        ("epochs", Fault::Epochs, |dir, _, _| {
            fs::write(dir.join("leader-epoch-checkpoint"), "0\n2\n0 0\n1 13\n").unwrap();
        }),
        ("a snapshot", Fault::Producers, |dir, _, snapshots| {
            flip(&log(dir, snapshots[0], "snapshot"), 30);
        }),
        ("an identity", Fault::Identity, |dir, _, _| flip(&dir.join("partition.metadata"), 0)),
    ];
    for (what, fault, damage) in damages {
        let disk = written(true);
        let dir = disk.partition_path("t");
        let files = verify(&dir).unwrap().files;
        damage(&dir, &files.segments, &files.snapshots);
        let findings = verify(&dir).unwrap().findings;
        assert!(findings.iter().any(|finding| finding.fault == fault), "{what}: {findings:?}");
    }
}

fn log(dir: &Path, base: Offset, kind: &str) -> PathBuf {
    dir.join(super::segment::file_name(base, kind))
}

#[test]
fn a_torn_end_is_told_from_a_damaged_middle() {
    let disk = written(false);
    let dir = disk.partition_path("t");
    let bases = verify(&dir).unwrap().files.segments;
    let last = log(&dir, *bases.last().unwrap(), "log");
    let whole = fs::read(&last).unwrap();
    fs::write(&last, &whole[..whole.len() - 5]).unwrap();
    let found = verify(&dir).unwrap().findings;
    assert_eq!(found.iter().map(|f| f.fault).collect::<Vec<_>>(), [Fault::Tail], "{found:?}");
    // The same, of which a checkpoint says that it was flushed.
    fs::write(disk.path().join("recovery-point-offset-checkpoint"), "0\n1\nt 0 60\n").unwrap();
    let found = verify(&dir).unwrap().findings;
    assert_eq!(found.iter().map(|f| f.fault).collect::<Vec<_>>(), [Fault::Records], "{found:?}");
}

#[test]
fn what_can_be_mended_is_mended() {
    type Damage = fn(&Path, &[Offset], &[Offset]);
    let damages: [(&str, bool, Damage); 6] = [
        ("an offset index", true, |dir, bases, _| flip(&log(dir, bases[0], "index"), 3)),
        ("a time index", true, |dir, bases, _| flip(&log(dir, bases[0], "timeindex"), 7)),
        ("no index", true, |dir, bases, _| {
            fs::remove_file(log(dir, bases[1], "index")).unwrap();
        }),
        ("epochs", true, |dir, _, _| {
            fs::write(dir.join("leader-epoch-checkpoint"), "0\n2\n0 0\n1 13\n").unwrap();
        }),
        ("a snapshot", true, |dir, _, snapshots| flip(&log(dir, snapshots[0], "snapshot"), 30)),
        ("a torn end", false, |dir, bases, _| {
            let last = log(dir, *bases.last().unwrap(), "log");
            let mut bytes = fs::read(&last).unwrap();
            bytes.extend([0; 100]);
            fs::write(&last, bytes).unwrap();
        }),
    ];
    for (what, is_clean, damage) in damages {
        let disk = written(is_clean);
        let dir = disk.partition_path("t");
        let before = verify(&dir).unwrap();
        damage(&dir, &before.files.segments, &before.files.snapshots);
        let seen = verify(&dir).unwrap();
        assert_ne!(seen.findings, [], "{what}");
        for finding in &seen.findings {
            let mending = repair_of(finding).unwrap_or_else(|| panic!("{what}: {finding:?}"));
            repair(&dir, &mending).unwrap();
        }
        let after = verify(&dir).unwrap();
        assert_eq!(after.findings, [], "{what}");
        assert_eq!(
            (after.records, after.end_offset),
            (before.records, before.end_offset),
            "{what}"
        );
    }
}

#[test]
fn lost_records_are_left_to_another_replica() {
    let disk = written(true);
    let dir = disk.partition_path("t");
    let bases = verify(&dir).unwrap().files.segments;
    flip(&log(&dir, bases[0], "log"), 80);
    let findings = verify(&dir).unwrap().findings;
    assert_eq!(findings.iter().map(repair_of).collect::<Vec<_>>(), [None], "{findings:?}");
}

#[test]
fn imported_batches_keep_their_offsets() {
    for partition in ["codecs-0", "txn-0", "compacted-0"] {
        let source = kafka(partition);
        let mut expected = Vec::new();
        for base in verify(&source).unwrap().files.segments {
            expected.extend(fs::read(log(&source, base, "log")).unwrap());
        }
        let disk = Disk::new(Durability::PageCache);
        let imported = disk.create("t", &small_config());
        let epoch = LeaderEpoch(4);
        let mut bytes = expected.clone();
        let appended = imported.append_imported(&mut bytes, 0, epoch).unwrap();
        assert_eq!(imported.end_offset(), verify(&source).unwrap().end_offset);
        assert!(!appended.duplicate);
        // An attempt whose answer was lost.
        assert!(imported.append_imported(&mut bytes, 0, epoch).unwrap().duplicate);
        let other = imported.append_imported(&mut expected.clone()[..], 3, epoch);
        assert!(other.is_err() || other.unwrap().duplicate, "not behind what is there");

        let read = read_all(&imported, 0);
        let theirs = |bytes: &[u8]| -> Vec<u8> {
            let mut bytes = bytes.to_vec();
            let starts = crate::record::batches(&bytes.clone())
                .scan(0, |at, batch| {
                    let start = *at;
                    *at += batch.unwrap().header.size;
                    Some(start)
                })
                .collect::<Vec<usize>>();
            // All but the leader epoch.
            starts.into_iter().for_each(|at| bytes[at + 12..at + 16].fill(0));
            bytes
        };
        assert_eq!(theirs(&read), theirs(&expected), "{partition}");
        assert_eq!(imported.latest_epoch(), LeaderEpoch(4));
    }
}

#[test]
fn what_compaction_took_out_is_not_missing() {
    let disk = written(true);
    let dir = disk.partition_path("t");
    let files = verify(&dir).unwrap().files;
    fs::remove_file(log(&dir, files.segments[1], "log")).unwrap();
    for offset in files.snapshots {
        fs::remove_file(log(&dir, offset, "snapshot")).unwrap();
    }
    let faults = |dir: &Path| -> Vec<Fault> {
        verify(dir).unwrap().findings.iter().map(|finding| finding.fault).collect()
    };
    assert_eq!(faults(&dir), [Fault::Records]);
    fs::write(disk.path().join("cleaner-offset-checkpoint"), "0\n1\nt 0 50\n").unwrap();
    assert_eq!(faults(&dir), []);
}

#[test]
fn a_thousand_small_faults_do_not_hide_a_grave_one() {
    let disk = written(false);
    let dir = disk.partition_path("t");
    for offset in 0..1_100 {
        fs::write(log(&dir, 10_000 + offset, "snapshot"), "").unwrap();
    }
    fs::write(disk.path().join("recovery-point-offset-checkpoint"), "0\n1\nt 0 5000\n").unwrap();
    let found = verify(&dir).unwrap().findings;
    assert_eq!(found.iter().filter(|finding| finding.fault == Fault::Records).count(), 1);
    assert!(found.len() < 1_010, "and not all of them are listed: {}", found.len());
}
