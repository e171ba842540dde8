//! What storage is told: where to keep logs, and the topic configs that it obeys.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;

/// When a record counts as stored (design D9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk.
    Fsync,
    /// When the operating system has it.
    PageCache,
}

/// Called once per directory that goes offline, on that directory's flusher thread.
pub type OnOffline = Arc<dyn Fn(&Path, &Error) + Send + Sync>;

pub struct StorageConfig {
    /// New partitions go to the directory with the fewest.
    pub dirs: Vec<PathBuf>,
    /// Threads that recover partitions at start.
    pub recovery_threads: usize,
    pub on_offline: OnOffline,
}

/// The configs of one topic that matter to its logs, with defaults resolved. Shared by all of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub durability: Durability,
    /// `cleanup.policy` contains `compact`: records need keys.
    pub compacted: bool,
    pub max_message_bytes: u32,
    pub segment_bytes: u32,
    pub segment_ms: i64,
    /// Size limit of each index file.
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    /// `message.timestamp.type=LogAppendTime`.
    pub log_append_time: bool,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    pub file_delete_delay_ms: i64,
}

impl Default for LogConfig {
    /// Kafka's defaults, and our durability.
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            compacted: false,
            max_message_bytes: 1_048_588,
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            log_append_time: false,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            file_delete_delay_ms: 60_000,
        }
    }
}
