//! What storage is told at start.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::CompactionConfig;
use super::recovery_progress::RecoveryProgress;
use crate::metadata::config::Durability;

/// Called when [`super::LogDirs::offline_logs`] may have changed. On any thread, under a log's lock: it must only notify.
pub type OnTrouble = Arc<dyn Fn() + Send + Sync>;

pub struct StorageConfig {
    /// New partitions go to the one with the fewest bytes.
    pub dirs: Vec<PathBuf>,
    /// Of topics that do not say themselves.
    pub durability: Durability,
    /// `log.retention.check.interval.ms`: what expires in one interval goes at its end.
    pub retention_check_interval: Duration,
    /// Threads that recover partitions at start.
    pub recovery_threads: usize,
    /// How far they are.
    pub progress: Arc<RecoveryProgress>,
    pub compaction: CompactionConfig,
    /// `log.dirs.min.free`; `None`: what suits the file system.
    pub min_free: Option<u64>,
    pub on_trouble: OnTrouble,
}

#[cfg(test)]
impl StorageConfig {
    /// One directory, fsync.
    pub fn test_min(dir: &std::path::Path) -> Self {
        Self {
            dirs: vec![dir.to_owned()],
            durability: Durability::Fsync,
            retention_check_interval: Duration::from_secs(300),
            recovery_threads: 1,
            progress: Arc::default(),
            min_free: Some(0),
            compaction: CompactionConfig::default(),
            on_trouble: Arc::new(|| {}),
        }
    }
}

impl fmt::Debug for StorageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageConfig")
            .field("dirs", &self.dirs)
            .field("durability", &self.durability)
            .field("recovery_threads", &self.recovery_threads)
            .finish_non_exhaustive()
    }
}
