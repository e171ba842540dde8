//! A crash at any moment of a pass, and what other crashes may have left: the old content or the new one.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::super::fs::tape::{Crash, Tape};
use super::super::test_support::{Disk, read_all, wait_until};
use super::testing::*;
use crate::metadata::config::Durability;
use crate::storage::PartitionLog;

/// Several groups of segments, with tombstones.
fn fill(disk: &Disk) -> Arc<PartitionLog> {
    let log = disk.create("t", &compacted(700));
    for n in 0..40_i64 {
        put(&log, n, &format!("k{}", n % 9), (n % 10 > 0).then_some("value"));
    }
    log.roll_active().unwrap();
    put(&log, 100, "last", Some("x"));
    settle(&log);
    wait_until("all is on disk", || log.durable_end_offset() == log.end_offset());
    log
}

#[test]
fn a_crash_leaves_the_old_content_or_the_new() {
    let mut disk = disk_on_tape();
    let log = fill(&disk.0);
    let before = read_all(&log, 0);
    let table = Reading::of(&before).table();
    let from = disk.1.len();
    pass(&log, 1_000, LARGE_MAP).unwrap();
    // Nothing but what later passes over the clean log may remove.
    pass(&log, 5_000, LARGE_MAP).unwrap();
    let after = read_all(&log, 0);
    let (mut old, mut new) = (0, 0);
    for len in from..=disk.1.len() {
        for crash in
            [Crash::Killed, Crash::Torn(500), Crash::PowerLost, Crash::Reordered(len as u64)]
        {
            let mut target = disk_at(|path| disk.1.restore(len, crash, path));
            let reopened = target.open().remove(0);
            let content = read_all(&reopened, 0);
            let reading = Reading::of(&content);
            assert_eq!(reading.table(), table, "{crash:?} after {len}");
            assert_eq!(reopened.end_offset(), log.end_offset());
            old += u32::from(content == before);
            new += u32::from(content == after);
            let leftover = |file: &String| {
                [".cleaned", ".swap", ".deleted"].iter().any(|suffix| file.ends_with(suffix))
            };
            assert!(!target.files("t").iter().any(leftover));
            // And it can be compacted from there.
            reopened.update_config(Arc::new(compacted(700)));
            settle(&reopened);
            pass(&reopened, 6_000, LARGE_MAP).unwrap();
            assert_eq!(Reading::of_log(&reopened).table(), table);
        }
    }
    assert!(old > 0 && new > 0);
    drop(log);
    disk.0.crash();
}

fn disk_on_tape() -> (Disk, Tape) {
    let mut tape = None;
    let mut disk = disk_at(|path| tape = Some(Tape::record(path)));
    disk.durability = Durability::Fsync;
    assert!(disk.open().is_empty());
    (disk, tape.unwrap())
}

/// Not opened yet.
fn disk_at(prepare: impl FnOnce(&Path)) -> Disk {
    let disk = closed_disk(without_thread());
    prepare(disk.path());
    disk
}

fn copy_of(disk: &Disk, change: impl FnOnce(&Path)) -> Disk {
    disk_at(|path| {
        let target = path.join("t-0");
        fs::create_dir(&target).unwrap();
        for file in disk.files("t") {
            fs::copy(disk.partition_path("t").join(&file), target.join(file)).unwrap();
        }
        for entry in fs::read_dir(disk.path()).unwrap().map(Result::unwrap) {
            if entry.path().is_file() && entry.file_name() != ".lock" {
                fs::copy(entry.path(), path.join(entry.file_name())).unwrap();
            }
        }
        change(&target);
    })
}

#[test]
fn leftovers_in_any_mix_come_to_one_content() {
    let mut old_disk = disk();
    let log = fill(&old_disk);
    let old = read_all(&log, 0);
    drop(log);
    old_disk.shut_down();
    let mut new_disk = copy_of(&old_disk, |_| {});
    let log = new_disk.open().remove(0);
    log.update_config(Arc::new(compacted(700)));
    pass(&log, 1_000, LARGE_MAP).unwrap();
    let new = read_all(&log, 0);
    drop(log);
    new_disk.shut_down();
    assert!(old != new);

    let first = "00000000000000000000";
    let new_file =
        |extension: &str| new_disk.partition_path("t").join(format!("{first}.{extension}"));
    let check = |expected: Option<&[u8]>, change: &dyn Fn(&Path)| {
        let mut disk = copy_of(&old_disk, change);
        let log = disk.open().remove(0);
        let content = read_all(&log, 0);
        assert_eq!(Reading::of(&content).table(), Reading::of(&old).table());
        if let Some(expected) = expected {
            assert!(content == expected);
        }
        content
    };
    // Written, but not whole.
    let untouched = check(Some(&old), &|dir| {
        for extension in ["log", "index", "timeindex"] {
            fs::copy(new_file(extension), dir.join(format!("{first}.{extension}.cleaned")))
                .unwrap();
        }
    });
    assert!(untouched == old);
    // Indexes had their next name already, the segment had not.
    check(Some(&old), &|dir| {
        for (extension, suffix) in [("log", "cleaned"), ("index", "swap"), ("timeindex", "swap")] {
            fs::copy(new_file(extension), dir.join(format!("{first}.{extension}.{suffix}")))
                .unwrap();
        }
    });
    // Whole: with its originals there, some of them, or none.
    let swapped = check(None, &|dir| {
        for extension in ["log", "index", "timeindex"] {
            fs::copy(new_file(extension), dir.join(format!("{first}.{extension}.swap"))).unwrap();
        }
    });
    assert!(swapped != old);
    for kept in [0, 1, 2] {
        let mixed = check(None, &|dir| {
            fs::copy(new_file("log"), dir.join(format!("{first}.log.swap"))).unwrap();
            let size = fs::metadata(new_file("log")).unwrap().len();
            assert!(size > 0);
            if kept == 0 {
                fs::rename(
                    dir.join(format!("{first}.log")),
                    dir.join(format!("{first}.log.deleted")),
                )
                .unwrap();
            }
            if kept < 2 {
                // The index is the new one already.
                fs::copy(new_file("index"), dir.join(format!("{first}.index"))).unwrap();
            }
        });
        assert!(mixed == swapped);
    }
    // The segment has its name; an index has not.
    check(None, &|dir| {
        fs::copy(new_file("index"), dir.join(format!("{first}.index.swap"))).unwrap();
    });
}
