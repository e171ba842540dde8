//! How long a start takes: measured, not asserted. `make start-time`.

use std::time::Duration;

use super::test_support::{Disk, TOPIC_ID, append, batch, name};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::Compression;
use crate::types::time::now;

fn timed(what: &str, work: impl FnOnce()) {
    let started = now();
    work();
    let took: Duration = started.elapsed();
    println!("{what}: {took:?}");
}

#[test]
fn start_time_of_many_partitions() {
    let mut disk = Disk::new(Durability::PageCache);
    let config = std::sync::Arc::new(TopicConfig::default());
    timed("10,000 partitions made", || {
        for partition in 0..10_000 {
            let log = disk.dirs().create(&name("t", partition), TOPIC_ID, config.clone()).unwrap();
            append(&log, 0, batch(Compression::None, &[(1, 100), (2, 100)])).unwrap();
        }
    });
    timed("crash", || disk.crash());
    timed("start after a kill", || drop(disk.open()));
    timed("stop", || disk.shut_down());
    timed("start after a clean stop", || drop(disk.open()));
}

#[test]
fn start_time_with_much_data() {
    let mut disk = Disk::new(Durability::PageCache);
    let log = disk.create("t", &TopicConfig::default());
    let records: Vec<_> = (0..60).map(|n| (n, 1_000)).collect();
    timed("3 GiB written", || {
        for _ in 0..3 * 1024 * 17 {
            append(&log, 0, batch(Compression::None, &records)).unwrap();
        }
    });
    drop(log);
    timed("crash", || disk.crash());
    timed("start after a kill", || drop(disk.open()));
    timed("stop", || disk.shut_down());
    timed("start after a clean stop", || drop(disk.open()));
}
