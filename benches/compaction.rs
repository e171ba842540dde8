//! `make bench-compaction`: 1 GB of records with ten million keys is compacted, beside a plain copy of the same files.
//!
//! Every key is written twice, far apart, so half of the records go. Memory is what the process has at its peak above what
//! it had just before. `DIR`, by default the system's directory for temporary files, needs 4 GB.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kontiki::metadata::config::{CleanupPolicy, Durability, TopicConfig};
use kontiki::record::{BatchBuilder, Compression};
use kontiki::storage::{CompactionConfig, CompactionFigures, LogDirs, PartitionLog, StorageConfig};
use kontiki::types::{LeaderEpoch, TopicPartition, Uuid, time};

const KEYS: u64 = 10_000_000;
const RECORDS: u64 = 2 * KEYS;
const RECORDS_PER_BATCH: u64 = 500;
const VALUE_SIZE: usize = 26;
const MEMORY_MAX: usize = 128 << 20;

fn main() {
    let parent = std::env::var_os("DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = parent.join(format!("kontiki-bench-compaction-{}", std::process::id()));
    let (logs, _) = LogDirs::open(storage(&dir), Arc::new(|_| {})).expect("an empty directory");
    let name = TopicPartition { topic: "bench".into(), partition: 0 };
    let log = logs.create(&name, Uuid([1; 16]), Arc::new(config(false))).expect("a log");
    fill(&log);
    log.set_high_watermark_checkpoint(log.end_offset());
    let size = log.size();
    println!("{RECORDS} records with {KEYS} keys, {} MB", size / 1_000_000);

    let partition = dir.join("bench-0");
    let copied = copy(&partition, &dir.join("copy"));
    println!("plain copy, synced: {:.1} s, {:.0} MB/s", copied.as_secs_f64(), rate(size, copied));

    // What the log had to sync must not count.
    let checkpoint = dir.join("recovery-point-offset-checkpoint");
    while recovery_point(&checkpoint) < RECORDS / 100 * 93 {
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = memory("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").expect("the peak starts anew");
    let started = time::now();
    let watch = logs.watch_compaction();
    log.update_config(Arc::new(config(true)));
    let took = run(&watch, started);
    let figures = watch();
    println!(
        "compaction to {} MB: {:.1} s, {:.0} MB/s of log, in {} passes that read {} MB and wrote {} MB",
        log.size() / 1_000_000,
        took.as_secs_f64(),
        rate(size, took),
        figures.passes,
        figures.read_bytes / 1_000_000,
        figures.written_bytes / 1_000_000,
    );
    println!("memory: {} KB before, {} KB more at the peak", before, memory("VmHWM") - before);
    drop((log, logs));
    std::fs::remove_dir_all(&dir).expect("removed");
}

fn storage(dir: &Path) -> StorageConfig {
    StorageConfig {
        dirs: vec![dir.to_owned()],
        durability: Durability::PageCache,
        retention_check_interval: Duration::from_secs(300),
        recovery_threads: 1,
        progress: std::sync::Arc::default(),
        compaction: CompactionConfig { memory_max: MEMORY_MAX, ..CompactionConfig::default() },
        min_free: Some(0),
        on_trouble: Arc::new(|| panic!("the disk failed")),
    }
}

fn config(compact: bool) -> TopicConfig {
    TopicConfig {
        cleanup_policy: CleanupPolicy { compact, delete: false },
        segment_bytes: 64 << 20,
        min_cleanable_dirty_ppm: 10_000,
        ..TopicConfig::default()
    }
}

fn fill(log: &PartitionLog) {
    let value = [b'v'; VALUE_SIZE];
    let now_ms = time::wall_ms();
    for batch in 0..RECORDS / RECORDS_PER_BATCH {
        let mut builder = BatchBuilder::new(Compression::None);
        for n in batch * RECORDS_PER_BATCH..(batch + 1) * RECORDS_PER_BATCH {
            // Each round has every key once, in no order.
            let key = (n % KEYS) * 7_368_787 % KEYS;
            builder.push(now_ms, Some(format!("key-{key:012}").as_bytes()), Some(&value), &[]);
        }
        let mut batch = builder.build();
        let valid = log.validate(&mut batch, now_ms).expect("a good batch");
        log.append_as_leader(valid, LeaderEpoch(1)).expect("appended");
    }
}

/// How long it takes, until it has had nothing to do for a second.
fn run(watch: &impl Fn() -> CompactionFigures, started: Instant) -> Duration {
    let mut last = (watch(), Duration::ZERO);
    while last.0.passes == 0 || started.elapsed() - last.1 < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(5));
        let figures = watch();
        if (figures.read_bytes, figures.passes) != (last.0.read_bytes, last.0.passes) {
            last = (figures, started.elapsed());
        }
        assert!(started.elapsed() < Duration::from_secs(1_800), "it does not end: {figures:?}");
    }
    last.1
}

fn recovery_point(checkpoint: &Path) -> u64 {
    let text = std::fs::read_to_string(checkpoint).unwrap_or_default();
    text.split_whitespace().last().and_then(|offset| offset.parse().ok()).unwrap_or(0)
}

fn copy(from: &Path, to: &Path) -> Duration {
    std::fs::create_dir(to).expect("a directory");
    let started = time::now();
    let copied =
        std::process::Command::new("cp").args(["-r", "--reflink=never"]).arg(from).arg(to).status();
    assert!(copied.expect("cp is there").success());
    let synced = std::process::Command::new("sync").arg("-f").arg(to).status();
    assert!(synced.expect("sync is there").success());
    let took = started.elapsed();
    std::fs::remove_dir_all(to).expect("removed");
    took
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

/// Of this process, in KB.
fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect("listed");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("a number")
}
