//! Which log directory takes a new partition: the one with the fewest bytes, counting each partition that came since
//! they were counted as an average one, so that a thousand new ones spread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::log_dir::LogDir;
use crate::types::time::now;

/// Sizes of thousands of logs are not added up for each new one.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// What lay in a directory when it was counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    at: Instant,
    bytes: u64,
    logs: u64,
}

impl Load {
    fn of(dir: &LogDir) -> Self {
        let mut load = dir.load.lock();
        if let Some(load) = load.filter(|load| load.at.elapsed() < COUNT_EVERY) {
            return load;
        }
        let logs = dir.logs.lock();
        let bytes = logs.values().map(|log| log.size()).sum();
        *load.insert(Self { at: now(), bytes, logs: logs.len() as u64 })
    }
}

/// `None` only of none.
pub(super) fn choose<'a>(dirs: &[&'a Arc<LogDir>]) -> Option<&'a Arc<LogDir>> {
    if let [only] = dirs {
        return Some(only);
    }
    let loads: Vec<Load> = dirs.iter().map(|dir| Load::of(dir)).collect();
    let sum = |of: fn(&Load) -> u64| loads.iter().map(of).sum::<u64>();
    let average = sum(|load| load.bytes).div_ceil(sum(|load| load.logs).max(1));
    let expected = |(dir, load): (&&'a Arc<LogDir>, &Load)| {
        let count = dir.logs.lock().len() as u64;
        (load.bytes + count.saturating_sub(load.logs) * average, count)
    };
    let by_load = dirs.iter().zip(&loads).map(|both| (expected(both), *both.0));
    by_load.min_by_key(|(expected, _)| *expected).map(|(_, dir)| dir)
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TOPIC_ID, append, batch, name};
    use super::super::{CompactionConfig, LogDirs, StorageConfig};
    use super::*;
    use crate::metadata::config::{Durability, TopicConfig};
    use crate::record::Compression;

    #[test]
    fn new_logs_go_where_there_is_less_and_still_spread() {
        let temp = tempfile::tempdir().unwrap();
        let config = StorageConfig {
            dirs: ["a", "b"].map(|dir| temp.path().join(dir)).to_vec(),
            durability: Durability::PageCache,
            retention_check_interval: Duration::from_secs(300),
            recovery_threads: 1,
            progress: std::sync::Arc::default(),
            compaction: CompactionConfig::default(),
            min_free: Some(0),
            on_trouble: Arc::new(|| {}),
        };
        let (dirs, _) = LogDirs::open(config, Arc::new(|_| {})).unwrap();
        let create = |partition| {
            dirs.create(&name("t", partition), TOPIC_ID, Arc::new(TopicConfig::default())).unwrap()
        };
        let (large, small) = (create(0), create(1));
        assert!(!Arc::ptr_eq(large.dir(), small.dir()), "both are empty: by count");
        append(&large, 0, batch(Compression::None, &[(1_000, 100_000)])).unwrap();
        large.dir().load.lock().take();
        small.dir().load.lock().take();
        let placed = [2, 3, 4].map(|partition| Arc::ptr_eq(create(partition).dir(), small.dir()));
        assert_eq!(placed, [true, true, false], "until as much is expected on both");
    }
}
