//! `cargo bench --bench storage`: what storage costs beside the least that could do its work. With an argument, only the
//! part of that name: `validate`, `append` or `sync`.
//!
//! Figures are CPU-seconds per GB where they can be: those hold from run to run, also beside other programs.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kontiki::metadata::config::{Durability, TopicConfig};
use kontiki::record::{BatchBuilder, Compression, ProduceRules, validate};
use kontiki::storage::{CompactionConfig, LogDirs, OnDurable, PartitionLog, StorageConfig};
use kontiki::types::{LeaderEpoch, TopicPartition, Uuid, time};
use parking_lot::{Condvar, Mutex};

const RECORD_SIZE: usize = 1000;
const BATCH_SIZE: usize = 64 << 10;
const ROUNDS: usize = 5;
const ROUND_BYTES: usize = 2_000_000_000;
const WRITERS: usize = 64;
const SYNC_SECONDS: Duration = Duration::from_secs(5);

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let parts: [(&str, fn()); 3] =
        [("validate", validating), ("append", appending), ("sync", syncing)];
    for (name, part) in parts {
        if wanted.as_ref().is_none_or(|wanted| wanted == name) {
            part();
        }
    }
}

/// Half words, half digits: what compresses to a third or so.
fn batch(compression: Compression, size: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    let mut state = 12_345_u64;
    let mut value = Vec::with_capacity(2 * RECORD_SIZE);
    while builder.size() + RECORD_SIZE < size {
        value.clear();
        while value.len() < RECORD_SIZE {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            write!(value, "word{}:{},", state % 512 * 7919 % 997, state % 100_000)
                .expect("a vector");
        }
        builder.push(0, None, Some(&value[..RECORD_SIZE]), &[]);
    }
    builder.build()
}

/// What it costs to look into a batch.
fn validating() {
    let rules = ProduceRules {
        now_ms: 0,
        size_max: u32::MAX,
        record_size_max: u32::MAX,
        compacted: false,
        log_append_time: false,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        compression: None,
    };
    println!("validating, CPU-s per GB of what it decompresses to");
    for compression in Compression::ALL {
        let costs = [16 << 10, BATCH_SIZE, 1 << 20].map(|size| {
            let mut batch = batch(compression, size);
            let count = 500_000_000 / size;
            let before = cpu_seconds();
            for _ in 0..count {
                validate(&mut batch, &rules).expect("valid");
            }
            format!("{} KiB: {:.2}", size >> 10, per_gb(before, count * size))
        });
        println!("{:>10}  {}", compression.name(), costs.join("   "));
    }
}

/// One partition, batch after batch, beside a loop that checks the CRC and writes.
fn appending() {
    let temp = tempfile::tempdir().expect("a directory");
    println!(
        "appending records of {RECORD_SIZE} bytes in batches of {} KiB, page cache",
        BATCH_SIZE >> 10
    );
    let batch = batch(Compression::None, BATCH_SIZE);
    let count = ROUND_BYTES / batch.len();
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let bare = bare_loop(&temp.path().join("bare"), &batch, count);
        let (dirs, log) =
            open(&temp.path().join(round.to_string()), Durability::PageCache, 1, Arc::new(|_| {}));
        let log = &log[0];
        let before = cpu_seconds();
        let mut copy = batch.clone();
        for _ in 0..count {
            copy.copy_from_slice(&batch);
            let valid = log.validate(&mut copy, 0).expect("valid");
            log.append_as_leader(valid, LeaderEpoch(1)).expect("appended");
        }
        let ours = per_gb(before, count * batch.len());
        ratios.push(ours / bare);
        println!("   bare loop {bare:.3}   log {ours:.3} CPU-s/GB   ratio {:.2}", ours / bare);
        drop(dirs);
        fs::remove_dir_all(temp.path().join(round.to_string())).expect("removed");
    }
    ratios.sort_by(f64::total_cmp);
    println!("   median ratio {:.2}", ratios[ROUNDS / 2]);
}

fn bare_loop(path: &Path, batch: &[u8], count: usize) -> f64 {
    let file = File::create(path).expect("created");
    let mut copy = batch.to_vec();
    let before = cpu_seconds();
    for index in 0..count {
        copy.copy_from_slice(batch);
        assert_ne!(crc32c::crc32c(&copy[21..]), 0);
        file.write_all_at(&copy, (index * batch.len()) as u64).expect("written");
    }
    let cost = per_gb(before, count * batch.len());
    fs::remove_file(path).expect("removed");
    cost
}

/// Many writers that each wait until their record is on disk, beside one sync per write.
fn syncing() {
    let temp = tempfile::tempdir().expect("a directory");
    let batch = batch(Compression::None, 2 * RECORD_SIZE);
    println!("{WRITERS} writers of {} bytes that wait for the disk", batch.len());
    let alone = one_sync_per_write(&temp.path().join("alone"), &batch);
    println!("   one sync per write          {alone:>8.0} writes/s");
    for partitions in [1, WRITERS] {
        let grouped = grouped(&temp.path().join(partitions.to_string()), &batch, partitions);
        println!(
            "   grouped, {partitions:>2} partitions      {grouped:>8.0} writes/s   {:.1} times",
            grouped / alone
        );
    }
}

fn one_sync_per_write(path: &Path, batch: &[u8]) -> f64 {
    let file = File::create(path).expect("created");
    let start = time::now();
    let mut count = 0_u32;
    while start.elapsed() < SYNC_SECONDS {
        file.write_all_at(batch, u64::from(count) * batch.len() as u64).expect("written");
        file.sync_data().expect("synced");
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn grouped(path: &Path, batch: &[u8], partitions: usize) -> f64 {
    let durable = Arc::new((Mutex::new(()), Condvar::new()));
    let woken = Arc::clone(&durable);
    let on_durable: OnDurable = Arc::new(move |_| {
        drop(woken.0.lock());
        woken.1.notify_all();
    });
    let (_dirs, logs) = open(path, Durability::Fsync, partitions, on_durable);
    let start = time::now();
    let counts: u32 = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (log, durable) = (&logs[writer % partitions], &durable);
                scope.spawn(move || {
                    let mut count = 0;
                    while start.elapsed() < SYNC_SECONDS {
                        let mut copy = batch.to_vec();
                        let valid = log.validate(&mut copy, 0).expect("valid");
                        let end = log
                            .append_as_leader(valid, LeaderEpoch(1))
                            .expect("appended")
                            .last_offset;
                        let mut guard = durable.0.lock();
                        while log.durable_end_offset() <= end {
                            durable.1.wait(&mut guard);
                        }
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("wrote")).sum()
    });
    f64::from(counts) / start.elapsed().as_secs_f64()
}

fn open(
    path: &Path,
    durability: Durability,
    partitions: usize,
    on_durable: OnDurable,
) -> (LogDirs, Vec<Arc<PartitionLog>>) {
    let config = StorageConfig {
        dirs: vec![path.to_path_buf()],
        durability,
        retention_check_interval: Duration::from_secs(300),
        recovery_threads: 1,
        progress: std::sync::Arc::default(),
        compaction: CompactionConfig { enabled: false, ..CompactionConfig::default() },
        min_free: Some(0),
        on_trouble: Arc::new(|| panic!("the disk failed")),
    };
    let (dirs, _) = LogDirs::open(config, on_durable).expect("opened");
    let create = |partition| {
        let name = TopicPartition { topic: "bench".into(), partition };
        dirs.create(&name, Uuid([1; 16]), Arc::new(TopicConfig::default())).expect("created")
    };
    let logs = (0..i32::try_from(partitions).expect("few")).map(create).collect();
    (dirs, logs)
}

/// Of all threads that live.
fn cpu_seconds() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let on_cpu = |task: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    tasks.filter_map(on_cpu).sum::<f64>() / 1e9
}

fn per_gb(before: f64, bytes: usize) -> f64 {
    (cpu_seconds() - before) / (bytes as f64 / 1e9)
}
