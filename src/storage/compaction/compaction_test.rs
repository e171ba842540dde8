//! What compaction keeps and what it drops, case by case; the clock is given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::inspect::verify;
use super::super::segment::file_name;
use super::super::test_support::{Disk, append, read_all, wait_until};
use super::choice::{Verdict, judge};
use super::pass::Stop;
use super::testing::*;
use crate::metadata::config::{CleanupPolicy, TopicConfig};
use crate::record::{Compression, assign_offset, batches};
use crate::storage::{CompactionConfig, PartitionLog};
use crate::types::{LeaderEpoch, Offset};

/// Ends the active segment, so that all of the log may be cleaned.
fn roll(log: &Arc<PartitionLog>) {
    log.roll_active().unwrap();
    settle(log);
}

fn keys(log: &PartitionLog) -> Vec<String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let show = |entry: super::testing::Entry| {
        format!("{}={}", text(entry.key.unwrap()), entry.value.map_or("-".to_owned(), text))
    };
    Reading::of_log(log).committed.into_iter().map(show).collect()
}

#[test]
fn the_last_record_of_each_key_stays_where_it_is() {
    let disk = disk();
    let log = disk.create("t", &compacted(400));
    for n in 0..40 {
        put(&log, 1_000 + n, &format!("k{}", n % 3), Some(&format!("v{n}")));
    }
    roll(&log);
    let before = Reading::of_log(&log);
    log.update_config(Arc::new(compacted(10_000)));
    let done = pass(&log, 5_000, LARGE_MAP).unwrap();
    assert_eq!(done.clean_end, 40);
    assert_eq!(keys(&log), ["k1=v37", "k2=v38", "k0=v39"]);
    assert_eq!(Reading::of_log(&log).committed, before.committed[37..]);
    assert_eq!(shape(&log.view()).len(), 2, "all of it fits into one segment, and the active one");
    // Between any two offsets there is something to go on with.
    for offset in 0..=40 {
        let slice = log.read(offset, Offset::MAX, 1 << 20, true).unwrap();
        assert!(offset == 40 || slice.next_offset > offset);
    }
    assert!(
        disk.files("t").iter().all(|file| !file.ends_with(".cleaned") && !file.ends_with(".swap"))
    );
    // Nothing is dirty, and nothing is written again.
    assert_eq!(dirt_of(&log, 5_000).dirty_bytes, 0);
}

#[test]
fn a_tombstone_stays_until_its_horizon_and_goes_then() {
    let disk = disk();
    let log = disk.create("t", &compacted(10_000));
    put(&log, 10, "a", Some("1"));
    put(&log, 20, "b", Some("2"));
    put(&log, 30, "a", None);
    roll(&log);
    let done = pass(&log, 5_000, LARGE_MAP).unwrap();
    assert_eq!(keys(&log), ["b=2", "a=-"]);
    assert_eq!(done.seen.next_horizon_ms, Some(6_000), "now + delete.retention.ms");
    // A restart changes nothing: the horizon is in the batch.
    put(&log, 40, "c", Some("3"));
    roll(&log);
    let done = pass(&log, 5_999, LARGE_MAP).unwrap();
    assert_eq!(
        (keys(&log), done.seen.next_horizon_ms),
        (vec!["b=2".into(), "a=-".into(), "c=3".into()], Some(6_000))
    );
    let tombstone = Reading::of_log(&log).committed[1].clone();
    assert_eq!(tombstone.timestamp_ms, 30, "timestamps stay");
    // Nothing new is needed for it to go.
    assert!(matches!(
        judge(&log, Some(6_000), 5_999),
        Ok(Verdict::Wait { until_ms: Some(6_000), .. })
    ));
    assert!(matches!(judge(&log, Some(6_000), 6_000), Ok(Verdict::Clean(dirt)) if dirt.is_due));
    let done = pass(&log, 6_000, LARGE_MAP).unwrap();
    assert_eq!((keys(&log), done.seen.next_horizon_ms), (vec!["b=2".into(), "c=3".into()], None));
}

/// The last batch of a producer stays, without records, and is the latest of all: recovery does not count its time for
/// an index, Kafka does.
#[test]
fn what_was_compacted_verifies() {
    let mut disk = disk();
    let log = disk.create("t", &compacted(10_000));
    let producer = Some(Producer { id: 7, sequence: 0, is_transactional: false });
    put(&log, 20, "b", Some("1"));
    append_raw(&log, batch_of(Compression::None, 900, producer, &[(Some(b"a"), Some(b"1"))]));
    put(&log, 30, "a", Some("2"));
    roll(&log);
    pass(&log, 5_000, LARGE_MAP).unwrap();
    assert_eq!(keys(&log), ["b=1", "a=2"]);
    let path = log.path().to_path_buf();
    assert_eq!(verify(&path).unwrap().findings, []);
    drop(log);
    disk.shut_down();
    assert_eq!(verify(&path).unwrap().findings, []);
    for index in ["index", "timeindex"] {
        std::fs::remove_file(path.join(file_name(0, index))).unwrap();
    }
    disk.open();
    assert_eq!(verify(&path).unwrap().findings, [], "and with the indexes that recovery makes");
}

#[test]
fn a_log_of_the_same_name_is_not_taken_for_compacted() {
    let mut disk = disk();
    let log = disk.create("t", &compacted(10_000));
    put(&log, 10, "a", Some("1"));
    roll(&log);
    pass(&log, 5_000, LARGE_MAP).unwrap();
    assert_eq!(log.view().clean_end, 1);
    drop(log);
    disk.shut_down();
    std::fs::remove_dir_all(disk.partition_path("t")).unwrap();
    disk.open();
    let log = disk.create("t", &compacted(10_000));
    put(&log, 20, "b", Some("2"));
    drop(log);
    disk.crash();
    assert_eq!(disk.open().remove(0).view().clean_end, 0);
}

#[test]
fn records_without_key_go_and_are_counted() {
    let disk = disk();
    let log = disk.create("t", &compacted(10_000));
    let pairs: [KeyValue<'_>; 3] = [(None, Some(b"x")), (Some(b"a"), Some(b"1")), (None, None)];
    append_raw(&log, batch_of(Compression::Zstd, 1, None, &pairs));
    roll(&log);
    assert_eq!(pass(&log, 5, LARGE_MAP).unwrap().seen.without_key, 2);
    assert_eq!(keys(&log), ["a=1"]);
    let mut keyless = batch_of(Compression::Lz4, 1, None, &pairs);
    assert!(log.validate(&mut keyless, 1).is_err(), "and producers may not send them");
}

#[test]
fn a_key_that_looks_like_a_marker_is_only_a_key() {
    let disk = disk();
    let log = disk.create("t", &compacted(300));
    let producer = |sequence| Producer { id: 7, sequence, is_transactional: true };
    for (n, commits) in [(0, true), (1, false), (2, true)] {
        for key in [[0, 0, 0, 0], [0, 0, 0, 1]] {
            let value = [n];
            append_raw(
                &log,
                batch_of(
                    Compression::None,
                    1,
                    Some(producer(i32::from(n))),
                    &[(Some(&key), Some(&value))],
                ),
            );
        }
        append_raw(&log, marker(7, 1, commits));
    }
    roll(&log);
    let table = Reading::of_log(&log).table();
    for now_ms in [10, 20, 5_000, 10_000] {
        pass(&log, now_ms, LARGE_MAP).unwrap();
        let reading = Reading::of_log(&log);
        assert_eq!(reading.table(), table);
        assert!(reading.aborted.is_empty());
        assert!(reading.markers.contains(&8), "its records are there");
    }
}

#[test]
fn a_marker_stays_while_anything_of_its_transaction_does() {
    let disk = disk();
    // A segment for each batch.
    let log = disk.create("t", &compacted(100));
    let producer = |sequence| Some(Producer { id: 7, sequence, is_transactional: true });
    for n in 0..5_u8 {
        let pair: KeyValue<'_> = (Some(&[b'k', n]), Some(b"v"));
        append_raw(&log, batch_of(Compression::None, 1, producer(i32::from(n)), &[pair]));
    }
    append_raw(&log, marker(7, 1, true));
    roll(&log);
    let marker_stays = |log: &Arc<PartitionLog>| Reading::of_log(log).markers == [5];
    // A map for two keys at a time: no pass sees the end of the transaction with all of its keys.
    let config = TopicConfig { segment_bytes: 10_000, ..compacted(0) };
    for _ in 0..3 {
        pass(&log, 10, 0).unwrap();
        assert!(marker_stays(&log));
    }
    // All but one record are superseded; then that one, too.
    log.update_config(Arc::new(config));
    for n in 1..5_u8 {
        append_raw(&log, batch_of(Compression::None, 1, None, &[(Some(&[b'k', n]), Some(b"w"))]));
    }
    roll(&log);
    for now_ms in [20, 2_000, 4_000] {
        pass(&log, now_ms, LARGE_MAP).unwrap();
        assert!(marker_stays(&log));
    }
    append_raw(&log, batch_of(Compression::None, 1, None, &[(Some(b"k\0"), Some(b"w"))]));
    // The last batch of the producer stays empty as long as the producer is known, and the marker with it.
    roll(&log);
    for now_ms in [5_000, 5_500, 6_500, 7_500] {
        pass(&log, now_ms, LARGE_MAP).unwrap();
        assert!(marker_stays(&log));
    }
    // Another batch of the producer takes its place.
    let plain = Producer { id: 7, sequence: 5, is_transactional: false };
    append_raw(&log, batch_of(Compression::None, 1, Some(plain), &[(Some(b"z"), Some(b"z"))]));
    roll(&log);
    pass(&log, 8_000, LARGE_MAP).unwrap();
    assert!(marker_stays(&log), "gone now is its last batch");
    assert_eq!(pass(&log, 9_000, LARGE_MAP).unwrap().seen.next_horizon_ms, Some(10_000));
    assert!(marker_stays(&log));
    pass(&log, 10_000, LARGE_MAP).unwrap();
    assert!(!marker_stays(&log));
    assert_eq!(Reading::of_log(&log).table().len(), 6);
}

#[test]
fn nothing_beyond_open_transactions_the_high_watermark_and_the_active_segment() {
    let disk = disk();
    let log = disk.create("t", &compacted(150));
    let transactional = |id| Some(Producer { id, sequence: 0, is_transactional: true });
    for n in 0..6 {
        put(&log, 1, "a", Some(&n.to_string()));
    }
    // An aborted write of a key must not take the place of a committed one; 7 is aborted, but above an open one.
    append_raw(
        &log,
        batch_of(Compression::None, 1, transactional(1), &[(Some(b"b"), Some(b"open"))]),
    );
    append_raw(
        &log,
        batch_of(Compression::None, 1, transactional(2), &[(Some(b"a"), Some(b"no"))]),
    );
    append_raw(&log, marker(2, 1, false));
    for n in 9..15 {
        put(&log, 1, "a", Some(&n.to_string()));
    }
    settle(&log);
    assert_eq!(dirt_of(&log, 10).range, 0..6);
    assert_eq!(pass(&log, 10, LARGE_MAP).unwrap().clean_end, 6);
    assert_eq!(Reading::of_log(&log).committed[0].offset, 5);
    // The transaction ends: the range goes on, to the high watermark.
    append_raw(&log, marker(1, 1, true));
    log.set_high_watermark_checkpoint(11);
    flush_sealed(&log);
    assert_eq!(dirt_of(&log, 10).range, 6..11);
    // Its marker is above the high watermark, and may be another one yet.
    assert_eq!(pass(&log, 10, LARGE_MAP).unwrap().clean_end, 6);
    settle(&log);
    let active = log.view().segments.last().unwrap().base_offset;
    assert_eq!(pass(&log, 10, LARGE_MAP).unwrap().clean_end, active);
    let reading = Reading::of_log(&log);
    assert!(reading.aborted.is_empty());
    let table = reading.table();
    assert_eq!(
        (&table[&b"a".to_vec()], &table[&b"b".to_vec()]),
        (&b"14".to_vec(), &b"open".to_vec())
    );
}

#[test]
fn the_lags_say_when() {
    let disk = disk();
    let config = TopicConfig {
        min_compaction_lag_ms: 1_000,
        max_compaction_lag_ms: 10_000,
        min_cleanable_dirty_ppm: 900_000,
        ..compacted(300)
    };
    let log = disk.create("t", &config);
    for n in 0..4 {
        put(&log, 100 * n, "a", Some("x"));
        roll(&log);
    }
    assert!(
        matches!(judge(&log, None, 999), Ok(Verdict::Wait { until_ms: Some(1_000), dirt: Some(dirt) }) if dirt.range == (0..0))
    );
    assert!(
        matches!(judge(&log, None, 1_150), Ok(Verdict::Clean(dirt)) if dirt.range == (0..2) && !dirt.is_due)
    );
    pass(&log, 1_150, LARGE_MAP).unwrap();
    // A third is clean: not dirty enough, until the oldest of the rest is too old.
    assert!(matches!(judge(&log, None, 5_000), Ok(Verdict::Wait { until_ms: Some(10_200), .. })));
    assert!(matches!(judge(&log, None, 10_200), Ok(Verdict::Clean(dirt)) if dirt.is_due));
    pass(&log, 10_200, LARGE_MAP).unwrap();
    // A lonely record in the active segment makes it end when it is too old.
    put(&log, 20_000, "a", Some("y"));
    settle(&log);
    assert!(matches!(judge(&log, None, 29_999), Ok(Verdict::Wait { until_ms: Some(30_000), .. })));
    assert!(matches!(judge(&log, None, 30_000), Ok(Verdict::Roll)));
    roll(&log);
    assert!(matches!(judge(&log, None, 30_000), Ok(Verdict::Clean(dirt)) if dirt.range == (4..5)));
}

#[test]
fn a_small_map_goes_part_of_the_way_each_time() {
    let disk = disk();
    let log = disk.create("t", &compacted(500));
    for n in 0..200 {
        put(&log, 1, &format!("k{}", n % 50), Some(&n.to_string()));
    }
    roll(&log);
    let table = Reading::of_log(&log).table();
    let mut ends = Vec::new();
    while ends.last() != Some(&200) {
        ends.push(pass(&log, 10, 20 * 20).unwrap().clean_end);
        assert_eq!(Reading::of_log(&log).table(), table);
    }
    // Eighteen keys at a time.
    assert_eq!(ends[..3], [18, 36, 54]);
    assert_eq!(keys(&log).len(), 50);
}

#[test]
fn batches_above_todays_limits_are_compacted_like_others() {
    let disk = disk();
    let log = disk.create("t", &compacted(1 << 20));
    let large = vec![b'x'; 200_000];
    for n in 0..6_u8 {
        let pair: KeyValue<'_> = (Some(&[n % 2]), Some(&large));
        append_raw(&log, batch_of(Compression::None, 1, None, &[pair, (Some(&[n]), Some(b"s"))]));
    }
    log.update_config(Arc::new(TopicConfig { max_message_bytes: 1_000, ..compacted(1_000) }));
    roll(&log);
    pass(&log, 10, LARGE_MAP).unwrap();
    let offsets: Vec<Offset> = Reading::of_log(&log).committed.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, [5, 7, 8, 9, 10, 11]);
}

#[test]
fn groups_end_where_offsets_are_too_far_apart() {
    let disk = disk();
    let log = disk.create("t", &compacted(10_000));
    let mut bases = Vec::new();
    for n in 0..5_i64 {
        let mut bytes =
            batch_of(Compression::None, 1, None, &[(Some(&n.to_be_bytes()), Some(b"v"))]);
        let base = n * i64::from(i32::MAX / 2 + 1);
        assign_offset(&mut bytes, base, LeaderEpoch(0));
        log.append_as_follower(&bytes).unwrap();
        log.roll_active().unwrap();
        bases.push(base);
    }
    settle(&log);
    let whole = read_all(&log, 0);
    // More than a slot of the map can reach in one go.
    for _ in 0..2 {
        pass(&log, 10, LARGE_MAP).unwrap();
    }
    assert!(read_all(&log, 0) == whole);
    let view = log.view();
    let is_near = |segment: &&Arc<crate::storage::segment::Segment>| {
        segment.next_offset() - 1 - segment.base_offset <= i64::from(i32::MAX)
    };
    assert!(view.segments.len() > 2 && view.segments.iter().all(|it| is_near(&it)));
    for base in bases {
        let slice = log.read(base - 1 + i64::from(base == 0), Offset::MAX, 1, true).unwrap();
        assert_eq!(slice.next_offset, base + 1, "a fetch in a gap goes on after it");
    }
}

/// Copies everything as a follower's fetches do.
fn follow(leader: &PartitionLog, follower: &PartitionLog) {
    while follower.end_offset() < leader.end_offset() {
        let slice = leader.read(follower.end_offset(), Offset::MAX, 300, true).unwrap();
        let mut bytes = Vec::new();
        slice.read_into(&mut bytes).unwrap();
        follower.append_as_follower(&bytes).unwrap();
    }
}

#[test]
fn a_follower_catches_up_from_a_compacted_leader() {
    let disk = disk();
    let leader = disk.create("leader", &compacted(600));
    for n in 0..120_i32 {
        if n % 10 == 0 {
            leader.assign_epoch(LeaderEpoch(n / 10), leader.end_offset());
        }
        put(&leader, i64::from(n), &format!("k{}", n % 7), (n % 11 > 0).then_some("v"));
    }
    let early = disk.create("early", &compacted(400));
    follow(&leader, &early);
    roll(&leader);
    pass(&leader, 1_000, LARGE_MAP).unwrap();
    let late = disk.create("late", &compacted(350));
    follow(&leader, &late);
    assert!(read_all(&late, 0) == read_all(&leader, 0));
    for epoch in 0..12 {
        let epoch = LeaderEpoch(epoch);
        let ends = [&leader, &early].map(|log| log.end_offset_for_epoch(epoch));
        assert_eq!(ends[0], ends[1]);
    }
    assert_eq!(late.latest_epoch(), leader.latest_epoch());
    // Compacted at different times, they tell the same.
    for (log, now_ms) in [(&late, 1_500), (&early, 3_000), (&leader, 4_000)] {
        roll(log);
        pass(log, now_ms, LARGE_MAP).unwrap();
    }
    let table = Reading::of_log(&leader).table();
    assert_eq!(Reading::of_log(&late).table(), table);
    assert_eq!(Reading::of_log(&early).table(), table);
    assert_eq!((early.end_offset(), late.end_offset()), (leader.end_offset(), leader.end_offset()));
}

#[test]
fn a_cut_a_deletion_and_a_change_of_policy_end_a_pass() {
    let disk = disk();
    let log = disk.create("t", &compacted(300));
    for n in 0..30 {
        put(&log, 1, "a", Some(&n.to_string()));
    }
    roll(&log);
    let shared = super::Compaction::new(CompactionConfig::default());
    let interrupted = |change: &dyn Fn()| {
        let dirt = dirt_of(&log, 10);
        change();
        let before = shape(&log.view());
        let mut pace = super::pace::Pace::new(&shared);
        let stopped = super::pass::clean(&log, &dirt, 10, LARGE_MAP, &mut pace);
        assert!(matches!(stopped, Err(Stop::Interrupted)));
        log.set_clean_end(&dirt.view, 30);
        assert_eq!((log.view().clean_end, shape(&log.view())), (0, before));
    };
    interrupted(&|| assert_eq!(log.truncate_to(28).unwrap(), 28));
    let neither = CleanupPolicy { compact: false, delete: false };
    interrupted(&|| {
        log.update_config(Arc::new(TopicConfig { cleanup_policy: neither, ..compacted(300) }));
    });
    log.update_config(Arc::new(compacted(300)));
    interrupted(&|| disk.dirs().delete(&log));
    assert!(matches!(judge(&log, None, 10), Ok(Verdict::Forget)));
}

/// With the thread.
fn busy_disk() -> Disk {
    disk_with(CompactionConfig::default())
}

#[test]
fn the_thread_compacts_what_is_dirty_and_sleeps_then() {
    let disk = busy_disk();
    let log = disk.create("t", &compacted(400));
    for n in 0..60 {
        put(&log, n, &format!("k{}", n % 4), Some(&n.to_string()));
    }
    settle(&log);
    let active = log.view().segments.last().unwrap().base_offset;
    wait_until("all complete segments are clean", || log.view().clean_end == active);
    let committed = Reading::of_log(&log).committed;
    let below = committed.iter().filter(|entry| entry.offset < active).count();
    assert_eq!(below, 4);
    let figures = disk.dirs().watch_compaction()();
    assert!(figures.passes > 0 && figures.read_bytes > 0 && figures.written_bytes > 0);
    assert_eq!((figures.uncleanable_logs, figures.records_without_key), (0, 0));
    let checkpoint = disk.path().join("cleaner-offset-checkpoint");
    wait_until("the clean point is on disk", || {
        std::fs::read_to_string(&checkpoint).is_ok_and(|it| it == format!("0\n1\nt 0 {active}\n"))
    });
}

#[test]
fn a_damaged_log_is_left_alone_and_others_are_not() {
    let disk = busy_disk();
    let config = compacted(400);
    let (bad, good) = (disk.create("bad", &config), disk.create("good", &config));
    for log in [&bad, &good] {
        for n in 0..20 {
            put(log, n, "k", Some(&n.to_string()));
        }
    }
    let path = disk.partition_path("bad").join("00000000000000000000.log");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    settle(&bad);
    wait_until("it is known", || disk.dirs().watch_compaction()().uncleanable_logs == 1);
    settle(&good);
    let active = good.view().segments.last().unwrap().base_offset;
    wait_until("the other is compacted", || good.view().clean_end == active);
    assert_eq!(bad.view().clean_end, 0);
    assert!(disk.dirs().offline().is_empty());
    // When its configs change, somebody may have done something about it.
    bad.update_config(Arc::new(compacted(400)));
    wait_until("it was looked at again", || disk.dirs().watch_compaction()().passes > 0);
}

#[test]
fn the_policy_may_change_while_it_is_compacted_and_read() {
    let disk = busy_disk();
    let log = disk.create("t", &compacted(2_000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let neither = CleanupPolicy { compact: false, delete: false };
            while !done.load(Ordering::Relaxed) {
                for (policy, wait_ms) in [(neither, 1), (COMPACT, 60)] {
                    let config = TopicConfig { cleanup_policy: policy, ..compacted(2_000) };
                    log.update_config(Arc::new(config));
                    std::thread::sleep(Duration::from_millis(wait_ms));
                }
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let end = log.end_offset();
                let mut next = 0;
                while next < end {
                    let slice = log.read(next, Offset::MAX, 5_000, true).unwrap();
                    assert!(slice.next_offset > next);
                    let mut bytes = Vec::new();
                    slice.read_into(&mut bytes).unwrap();
                    batches(&bytes).for_each(|batch| batch.unwrap().check_crc().unwrap());
                    next = slice.next_offset;
                }
                log.find_by_timestamp(1_500, Offset::MAX).unwrap();
                log.max_timestamp(Offset::MAX).unwrap();
                while !log.cool() {}
            }
        });
        for n in 0..3_000_i64 {
            put(&log, n, &format!("k{}", n % 13), Some(&n.to_string()));
            if n % 100 == 0 {
                settle(&log);
            }
        }
        wait_until("something was compacted", || log.view().clean_end > 0);
        done.store(true, Ordering::Relaxed);
    });
    log.update_config(Arc::new(compacted(2_000)));
    settle(&log);
    let active = log.view().segments.last().unwrap().base_offset;
    wait_until("all of it is compacted", || log.view().clean_end == active);
    let table = Reading::of_log(&log).table();
    for n in 2_987..3_000_i64 {
        assert_eq!(table[format!("k{}", n % 13).as_bytes()], n.to_string().into_bytes());
    }
    assert_eq!(table.len(), 13);
}

#[test]
fn it_keeps_to_its_pace() {
    let shared = super::Compaction::new(CompactionConfig {
        bytes_per_second_max: 1_000_000,
        ..CompactionConfig::default()
    });
    let mut pace = super::pace::Pace::new(&shared);
    let started = crate::types::time::now();
    for _ in 0..10 {
        assert!(pace.on_read(5_000) && pace.on_written(5_000));
    }
    assert!(started.elapsed() >= Duration::from_millis(80));
    shared.news.add(|news| news.stopping = true);
    assert!(!pace.on_read(1_000_000_000), "and stops at once");
    assert!(started.elapsed() < Duration::from_secs(500));
}

#[test]
fn compacted_logs_take_duplicates_for_what_they_are() {
    let mut disk = disk();
    let log = disk.create("t", &compacted(300));
    let producer = |id, sequence| Some(Producer { id, sequence, is_transactional: false });
    let last = |id| batch_of(Compression::None, 1, producer(id, 1), &[(Some(b"k"), Some(b"v"))]);
    for id in 0..5 {
        append(
            &log,
            0,
            batch_of(Compression::None, 1, producer(id, 0), &[(Some(b"k"), Some(b"u"))]),
        )
        .unwrap();
        append(&log, 0, last(id)).unwrap();
    }
    roll(&log);
    pass(&log, 10, LARGE_MAP).unwrap();
    assert_eq!(keys(&log), ["k=v"]);
    disk.crash();
    drop(log);
    for file in disk.files("t").iter().filter(|file| file.ends_with(".snapshot")) {
        std::fs::remove_file(disk.partition_path("t").join(file)).unwrap();
    }
    let log = disk.open().remove(0);
    log.update_config(Arc::new(compacted(300)));
    for id in 0..5 {
        let again = append(&log, 0, last(id)).unwrap();
        assert!(again.duplicate);
        assert_eq!(again.base_offset, id * 2 + 1);
    }
}

/// Copies what a Kafka broker left.
fn kafka_disk() -> Disk {
    let disk = closed_disk(without_thread());
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka-4.4");
    for partition in ["codecs-0", "compacted-0", "txn-0"] {
        let target = disk.path().join(partition);
        std::fs::create_dir(&target).unwrap();
        for entry in std::fs::read_dir(source.join(partition)).unwrap().map(Result::unwrap) {
            std::fs::copy(entry.path(), target.join(entry.file_name())).unwrap();
        }
    }
    for checkpoint in ["cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"] {
        std::fs::copy(source.join(checkpoint), disk.path().join(checkpoint)).unwrap();
    }
    disk
}

#[test]
fn what_kafka_compacted_is_compacted_on() {
    const NOW_MS: i64 = 1_700_000_000_000;
    let mut disk = kafka_disk();
    for log in disk.open() {
        log.update_config(Arc::new(TopicConfig { segment_bytes: 1 << 20, ..compacted(0) }));
        let clean_end = if log.name().topic.as_ref() == "compacted" { 25 } else { 0 };
        assert_eq!(log.view().clean_end, clean_end);
        let before = Reading::of_log(&log);
        assert!(!before.committed.is_empty());
        roll(&log);
        let done = pass(&log, NOW_MS, LARGE_MAP).unwrap();
        let after = Reading::of_log(&log);
        assert_eq!(after.table(), before.table());
        let is_known = |entry: &Entry| before.committed.contains(entry);
        assert!(after.committed.iter().all(is_known));
        // Open transactions are where it ends.
        assert!(done.clean_end == log.end_offset() || log.view().first_unstable == done.clean_end);
        let aborted_below = |reading: &Reading| {
            reading.aborted.iter().filter(|it| it.offset < done.clean_end).count()
        };
        assert_eq!(aborted_below(&after), 0);
        // Tombstones of Kafka's have a horizon far ahead, ours has passed.
        pass(&log, NOW_MS * 2, LARGE_MAP).unwrap();
        let late = Reading::of_log(&log);
        assert_eq!(late.table(), before.table());
        let tombstones = late.committed.iter().filter(|entry| entry.value.is_none());
        assert_eq!(tombstones.filter(|entry| entry.offset < done.clean_end).count(), 0);
    }
}
