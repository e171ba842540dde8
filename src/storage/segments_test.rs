//! The set of segments while it is rolled, cut at both ends and read at the same time (D18), and while the whole log goes
//! (C14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;

use super::test_support::{Disk, append, read_all, small_config, wait_until};
use super::{AppendError, PartitionLog, ReadError};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::{BatchBuilder, Compression, batches, records};
use crate::types::Offset;
use crate::types::time::now;

/// A batch of one record that says at which offset it is. Its size depends on the offset.
fn batch_at(offset: Offset) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    let padding = vec![b'.'; usize::try_from(offset % 7 * 50).unwrap()];
    builder.push(offset * 10, Some(offset.to_string().as_bytes()), Some(&padding), &[]);
    builder.build()
}

/// Checks that `bytes` are the batches from `from` on; returns the offset after them.
fn check_batches(bytes: &[u8], from: Offset) -> Offset {
    let mut next = from;
    for batch in batches(bytes) {
        let batch = batch.unwrap();
        batch.check_crc().unwrap();
        for record in records(&batch, 1 << 20).unwrap().iter() {
            let record = record.unwrap();
            let key = std::str::from_utf8(record.key.unwrap()).unwrap();
            assert_eq!((record.offset, key), (next, next.to_string().as_str()));
            next += 1;
        }
    }
    next
}

/// A source of choices that needs no lock.
struct Dice(AtomicU64);

impl Dice {
    /// Below `sides`; 0 when there is no choice.
    fn roll(&self, sides: i64) -> i64 {
        let mixed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        i64::try_from((mixed ^ (mixed >> 27)) >> 1).unwrap() % sides.max(1)
    }
}

fn config(retention_bytes: i64) -> Arc<TopicConfig> {
    let kept = TopicConfig { retention_ms: -1, file_delete_delay_ms: 0, ..small_config() };
    Arc::new(TopicConfig { retention_bytes, ..kept })
}

/// Appends, cuts off what is not committed, commits.
fn write(log: &PartitionLog, dice: &Dice, steps: u32) {
    for _ in 0..steps {
        let (end, committed) = (log.end_offset(), log.high_watermark_checkpoint());
        match dice.roll(12) {
            0 => {
                let to = committed + dice.roll(end - committed + 1);
                assert_eq!(log.truncate_to(to).unwrap(), to);
            }
            1..4 => log.set_high_watermark_checkpoint(committed + dice.roll(end - committed + 1)),
            _ => {
                append(log, 0, batch_at(end)).unwrap();
            }
        }
    }
}

/// Deletes at the beginning, by offset and by size.
fn delete(log: &PartitionLog, dice: &Dice, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let (start, committed) = (log.start_offset(), log.high_watermark_checkpoint());
        match dice.roll(3) {
            0 => log.raise_start_offset(start + dice.roll(committed - start + 1) / 4).unwrap(),
            1 => log.update_config(config(dice.roll(4) * 5_000 - 1)),
            _ => while !log.cool() {},
        }
        thread::sleep(Duration::from_micros(200));
    }
}

/// Reads what is committed, by offset and by time.
fn read(log: &PartitionLog, dice: &Dice, stop: &AtomicBool) -> u32 {
    let mut found = 0;
    while !stop.load(Ordering::Relaxed) {
        let (start, committed) = (log.start_offset(), log.high_watermark_checkpoint());
        let from = start + dice.roll(committed - start);
        match log.read(from, committed, usize::try_from(dice.roll(5_000)).unwrap(), true) {
            Ok(slice) if from < committed => {
                let mut bytes = Vec::new();
                slice.read_into(&mut bytes).unwrap();
                assert_eq!(check_batches(&bytes, from), slice.next_offset);
                assert!(from < slice.next_offset && slice.next_offset <= committed);
                found += 1;
            }
            Ok(slice) => assert!(slice.is_empty()),
            Err(ReadError::OutOfRange { .. }) => {
                assert!(from < log.start_offset(), "{from} was committed and is not deleted");
            }
            Err(error) => panic!("{error}"),
        }
        let at_time = log.find_by_timestamp(from * 10, committed).unwrap();
        if let Some(at_time) = at_time {
            assert!(at_time.offset >= from && at_time.timestamp_ms == at_time.offset * 10);
        }
    }
    found
}

fn run(seed: u64, durability: Durability, is_clean: bool) {
    let mut disk = Disk::new(durability);
    disk.retention_check_interval = Duration::from_millis(1);
    disk.crash();
    disk.open();
    let log = disk.create("t", &config(-1));
    let (dice, stop) = (Dice(AtomicU64::new(seed)), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| delete(&log, &dice, &stop));
        let readers = [(); 2].map(|()| scope.spawn(|| read(&log, &dice, &stop)));
        // The others stop even when this one fails.
        let written = scope.spawn(|| write(&log, &dice, 500)).join();
        stop.store(true, Ordering::Relaxed);
        let found: u32 = readers.map(|reader| reader.join().unwrap()).iter().sum();
        written.unwrap();
        assert!(found > 0, "nothing was ever read");
    });
    log.update_config(config(-1));
    let (start, end) = (log.start_offset(), log.end_offset());
    let logs_on_disk = || {
        let files = disk.files("t").into_iter();
        files.filter(|name| name.ends_with(".log")).collect::<Vec<_>>()
    };
    let logs_in_list = || {
        let bases = log.segment_bases();
        bases.iter().map(|base| format!("{base:020}.log")).collect::<Vec<_>>()
    };
    wait_until("the directory holds what the list holds", || {
        logs_in_list() == logs_on_disk() && disk.files("t").iter().all(|f| !f.ends_with(".deleted"))
    });
    let bases = log.segment_bases();
    assert!(bases.is_sorted_by(|a, b| a < b) && bases[0] <= start && bases[bases.len() - 1] <= end);
    assert_eq!(check_batches(&read_all(&log, start), start), end);

    if is_clean {
        disk.shut_down();
    } else {
        disk.crash();
    }
    drop(log);
    let log = disk.open().remove(0);
    assert!(is_clean.then_some(start).is_none_or(|start| log.start_offset() == start));
    assert_eq!(log.end_offset(), end);
    assert_eq!(check_batches(&read_all(&log, log.start_offset()), log.start_offset()), end);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_see_what_is_committed_whatever_happens_at_the_ends(
        seed in any::<u64>(), is_fsync in any::<bool>(), is_clean in any::<bool>(),
    ) {
        run(seed, if is_fsync { Durability::Fsync } else { Durability::PageCache }, is_clean);
    }
}

#[test]
fn a_log_that_is_deleted_in_the_middle_of_everything_is_no_error() {
    let mut disk = Disk::new(Durability::PageCache);
    disk.retention_check_interval = Duration::from_millis(1);
    disk.crash();
    disk.open();
    let dice = Dice(AtomicU64::new(7));
    for _ in 0..40 {
        let log = disk.create("t", &config(5_000));
        let deadline = now() + Duration::from_micros(dice.roll(30_000).cast_unsigned());
        thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    match append(&log, 0, batch_at(log.end_offset())) {
                        Ok(_) => log.set_high_watermark_checkpoint(log.end_offset()),
                        Err(AppendError::Closed) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            scope.spawn(|| {
                loop {
                    let (start, committed) = (log.start_offset(), log.high_watermark_checkpoint());
                    match log.read(start, committed, 10_000, true) {
                        Ok(_) | Err(ReadError::OutOfRange { .. }) if !log.is_gone() => {}
                        Ok(_) | Err(ReadError::OutOfRange { .. } | ReadError::Closed) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
            while now() < deadline {
                thread::yield_now();
            }
            disk.dirs().delete(&log);
        });
        assert!(disk.dirs().offline().is_empty());
    }
    wait_until("everything is removed", || {
        let names = std::fs::read_dir(disk.path()).unwrap();
        names
            .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
            .all(|name| !name.ends_with("-delete"))
    });
    assert!(disk.dirs().offline().is_empty());
}
