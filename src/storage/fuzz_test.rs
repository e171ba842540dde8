//! Damaged files: nothing panics, wrong indexes give no wrong data, and after a crash only whole batches are left.

use std::fs;

use super::PartitionLog;
use super::checkpoint::{parse_epochs, parse_offsets, parse_topic_id};
use super::log_dir::CLEAN_SHUTDOWN;
use super::producers::Producers;
use super::test_support::{Disk, append, batch, idempotent_batch, small_config};
use crate::metadata::config::Durability;
use crate::record::testing::{damage, fuzz};
use crate::record::{BatchHeader, Compression, batches};
use crate::types::Offset;
use crate::types::random::Seeded;

#[test]
fn fuzz_snapshots_and_checkpoints() {
    fuzz(3_000, |random| {
        let mut producers = Producers::default();
        for id in 0..random.below(5) {
            let bytes = idempotent_batch(id as i64, 3, 2);
            producers.on_appended(&BatchHeader::parse(&bytes).unwrap(), 1);
        }
        let mut content = producers.encode();
        damage(random, &mut content);
        if content.len() > 6 && random.below(2) == 0 {
            let crc = crc32c::crc32c(&content[6..]);
            content[2..6].copy_from_slice(&crc.to_be_bytes());
        }
        if let Some(decoded) = Producers::decode(&content, i64::MAX, 1) {
            assert!(Producers::decode(&decoded.encode(), i64::MAX, 1).is_some());
        }
        let mut text = b"0\n2\n0 0\n3 17\n".to_vec();
        damage(random, &mut text);
        let _ = (parse_epochs(&text), parse_offsets(&text), parse_topic_id(&text));
    });
}

/// Everything that can be read, as far as it can.
fn read(log: &PartitionLog) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = log.start_offset();
    while next < log.end_offset() {
        let Ok(slice) = log.read(next, Offset::MAX, 1_000, true) else { break };
        if slice.is_empty() || slice.next_offset <= next || slice.read_into(&mut bytes).is_err() {
            break;
        }
        next = slice.next_offset;
    }
    bytes
}

fn look_everywhere(log: &PartitionLog, random: &mut Seeded) {
    for _ in 0..10 {
        let (from, upper) = (random.below(80) as i64, random.below(80) as i64);
        let _ = log.read(from, upper, random.below(2_000), random.below(2) == 0);
        let _ = log.find_by_timestamp(random.below(1_200) as i64, upper);
        let _ = log.max_timestamp(upper);
    }
}

fn fill(disk: &Disk) -> Vec<u8> {
    let log = disk.create("t", &small_config());
    for n in 0..25_i32 {
        append(&log, n / 8, idempotent_batch(i64::from(n % 3), n / 3, 1)).unwrap();
        let records = [(i64::from(n * 37 % 1_000), 90), (i64::from(n * 53 % 1_000), 140)];
        append(&log, n / 8, batch(Compression::ALL[n as usize % 5], &records)).unwrap();
    }
    read(&log)
}

#[test]
fn fuzz_segments_and_indexes() {
    let mut template = Disk::new(Durability::PageCache);
    let whole = fill(&template);
    template.shut_down();
    let from = template.partition_path("t");
    fuzz(40, |random| {
        let mut disk = Disk::new(Durability::PageCache);
        disk.shut_down();
        let to = disk.partition_path("t");
        fs::create_dir(&to).unwrap();
        let names = template.files("t");
        let damaged = &names[random.below(names.len())];
        for name in &names {
            let mut content = fs::read(from.join(name)).unwrap();
            if name == damaged && !content.is_empty() {
                damage(random, &mut content);
            }
            fs::write(to.join(name), content).unwrap();
        }
        for name in fs::read_dir(template.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if name.is_file() && !name.ends_with(".lock") {
                fs::copy(&name, disk.path().join(name.file_name().unwrap())).unwrap();
            }
        }
        let is_crash = random.below(2) == 0;
        if is_crash {
            // Nothing is known to have been flushed either: everything is read.
            for name in [CLEAN_SHUTDOWN, "recovery-point-offset-checkpoint"] {
                let _ = fs::remove_file(disk.path().join(name));
            }
        }
        let Ok(logs) = disk.try_open() else { return };
        for log in &logs {
            look_everywhere(log, random);
            let left = read(log);
            if damaged.ends_with("index") {
                assert!(whole == left, "{damaged} is wrong, not the log");
            }
            if is_crash {
                for batch in batches(&left) {
                    batch.unwrap().check_crc().unwrap();
                }
            }
        }
    });
}
