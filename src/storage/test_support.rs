//! Logs in a temporary directory, for tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

use super::{
    AppendError, Appended, CompactionConfig, Error, LogDirs, PartitionLog, RecoveredLogs,
    StorageConfig,
};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::{BatchBuilder, Compression};
use crate::types::time::now;
use crate::types::{BrokerEpoch, LeaderEpoch, Offset, TopicId, TopicPartition, Uuid};

pub(super) const TOPIC_ID: TopicId = Uuid([7; 16]);

/// A log directory that can be closed, or left as a crash leaves it, and opened again.
pub(super) struct Disk {
    pub(super) temp: TempDir,
    pub(super) durability: Durability,
    pub(super) retention_check_interval: Duration,
    compaction: CompactionConfig,
    dirs: Option<LogDirs>,
}

impl Disk {
    pub(super) fn new(durability: Durability) -> Self {
        Self::new_in(tempfile::tempdir().unwrap(), durability)
    }

    pub(super) fn new_in(temp: TempDir, durability: Durability) -> Self {
        let mut disk = Self::new_in_unopened(temp, durability);
        assert!(disk.open().is_empty());
        disk
    }

    /// Not opened yet.
    pub(super) fn closed(
        temp: TempDir,
        durability: Durability,
        compaction: CompactionConfig,
    ) -> Self {
        let retention_check_interval = Duration::from_millis(20);
        Self { temp, durability, retention_check_interval, compaction, dirs: None }
    }

    pub(super) fn new_in_unopened(temp: TempDir, durability: Durability) -> Self {
        Self::closed(temp, durability, CompactionConfig::default())
    }

    pub(super) fn path(&self) -> &Path {
        self.temp.path()
    }

    pub(super) fn dirs(&self) -> &LogDirs {
        self.dirs.as_ref().unwrap()
    }

    pub(super) fn open(&mut self) -> RecoveredLogs {
        self.try_open().unwrap()
    }

    pub(super) fn try_open(&mut self) -> Result<RecoveredLogs, Error> {
        let config = StorageConfig {
            dirs: vec![self.path().to_path_buf()],
            durability: self.durability,
            retention_check_interval: self.retention_check_interval,
            recovery_threads: 2,
            compaction: self.compaction.clone(),
            min_free: Some(0),
            progress: std::sync::Arc::default(),
            on_trouble: Arc::new(|| {}),
        };
        let (dirs, logs) = LogDirs::open(config, Arc::new(|_| {}))?;
        self.dirs = Some(dirs);
        Ok(logs)
    }

    pub(super) fn shut_down(&mut self) {
        self.dirs.take().unwrap().shut_down(BrokerEpoch(42));
    }

    /// What `kill -9` leaves.
    pub(super) fn crash(&mut self) {
        self.dirs = None;
    }

    pub(super) fn create(&self, topic: &str, config: &TopicConfig) -> Arc<PartitionLog> {
        self.dirs().create(&name(topic, 0), TOPIC_ID, Arc::new(config.clone())).unwrap()
    }

    pub(super) fn partition_path(&self, topic: &str) -> PathBuf {
        self.path().join(format!("{topic}-0"))
    }

    /// Names of the files of a partition, sorted.
    pub(super) fn files(&self, topic: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.partition_path(topic))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

pub(super) fn name(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition { topic: topic.into(), partition }
}

/// Tiny segments and indexes, so that rare things happen often.
pub(super) fn small_config() -> TopicConfig {
    TopicConfig {
        segment_bytes: 2_000,
        index_interval_bytes: 250,
        segment_index_bytes: 120,
        message_timestamp_after_max_ms: i64::MAX,
        ..TopicConfig::default()
    }
}

pub(super) fn batch(compression: Compression, records: &[(i64, usize)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    for (timestamp_ms, size) in records {
        let value: Vec<u8> = (0..=250).cycle().take(*size).collect();
        builder.push(*timestamp_ms, Some(b"key"), Some(&value), &[]);
    }
    builder.build()
}

pub(super) fn idempotent_batch(producer_id: i64, sequence: i32, records: i32) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.set_producer(producer_id, 0, sequence);
    for index in 0..records {
        builder.push(1_000 + i64::from(index), None, Some(&[0; 50]), &[]);
    }
    builder.build()
}

pub(super) fn append(
    log: &PartitionLog,
    leader_epoch: i32,
    mut batch: Vec<u8>,
) -> Result<Appended, AppendError> {
    log.append_as_leader(log.validate(&mut batch, 1_000_000)?, LeaderEpoch(leader_epoch))
}

/// Everything from `from` to the end.
pub(super) fn read_all(log: &PartitionLog, from: Offset) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = from;
    while next < log.end_offset() {
        let slice = log.read(next, Offset::MAX, 1_000, true).unwrap();
        assert!(slice.next_offset > next, "a read below the end gives something");
        slice.read_into(&mut bytes).unwrap();
        next = slice.next_offset;
    }
    bytes
}

pub(super) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = now() + Duration::from_secs(60);
    while !condition() {
        assert!(now() < deadline, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
