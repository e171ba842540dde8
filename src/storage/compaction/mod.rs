//! Compaction: of each key, the log keeps the last record (replication.md 3.9).
//!
//! ```text
//! segment on disk, config change --news--> cleaner thread: choice (which log, which range)
//!     --> pass: offset_map (last offset of each key) --> rules (what stays of a batch) --> rewrite --> log::replace
//! ```
//! One thread for all logs, so that its memory has one bound. It sleeps without a timeout when no log waits for a moment
//! in time, and holds no memory then.
//!
//! Invariant: only complete segments below the high watermark and the first open transaction are rewritten, and only
//! once they are on disk. Offsets, epochs and sequences stay, and so does the last offset of every segment: a gap
//! between segments would mean to recovery that something was lost.

mod choice;
mod chunks;
mod cleaner;
mod offset_map;
mod pace;
mod pass;
mod rewrite;
mod rules;
mod transactions;

#[cfg(test)]
mod compaction_model_test;
#[cfg(test)]
mod compaction_test;
#[cfg(test)]
mod swap_test;
#[cfg(test)]
mod testing;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub(super) use cleaner::run;
pub(super) use rules::LastBatches;

use super::PartitionLog;
use super::log_dir::Queue;
use crate::types::TimestampMs;
use crate::types::time::wall_ms;

/// What the thread needs beside its map.
const BUFFERS_SIZE: usize = 8 << 20;

/// What the operator chooses.
#[derive(Debug, Clone)]
pub struct CompactionConfig {
    pub enabled: bool,
    /// Bytes of memory, all together, while it runs. Batches of many megabytes need more.
    pub memory_max: usize,
    /// Bytes read and written.
    pub bytes_per_second_max: u64,
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self { enabled: true, memory_max: 128 << 20, bytes_per_second_max: u64::MAX }
    }
}

/// What the cleaner thread shares with the logs.
pub(super) struct Compaction {
    config: CompactionConfig,
    pub(super) news: Queue<News>,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    state: Mutex<State>,
}

/// What wakes the thread.
#[derive(Default)]
pub(super) struct News {
    /// Logs of which more is on disk now, or whose configs have changed.
    pub(super) logs: Vec<Arc<PartitionLog>>,
    pub(super) stopping: bool,
}

/// As of the last look.
#[derive(Debug, Default, Clone, Copy)]
struct State {
    passes: u64,
    records_without_key: u64,
    dirtiest_ppm: u32,
    oldest_dirty_ms: Option<TimestampMs>,
    uncleanable: u64,
}

/// For metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CompactionFigures {
    pub passes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Records that were dropped because they have no key.
    pub records_without_key: u64,
    /// The largest share of a log that is not compacted.
    pub dirtiest_percent: u64,
    /// The age of the oldest record that is not compacted.
    pub oldest_dirty_seconds: u64,
    /// Logs that cannot be compacted, because of what is in them.
    pub uncleanable_logs: u64,
}

impl Compaction {
    pub(super) fn new(config: CompactionConfig) -> Self {
        Self {
            config,
            news: Queue::default(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.config.enabled
    }

    /// Bytes of the offset map.
    fn map_bytes_max(&self) -> usize {
        self.config.memory_max.saturating_sub(BUFFERS_SIZE)
    }

    pub(super) fn figures(&self) -> CompactionFigures {
        let state = *self.state.lock();
        let age_ms = state.oldest_dirty_ms.map_or(0, |oldest_ms| wall_ms() - oldest_ms);
        CompactionFigures {
            passes: state.passes,
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            records_without_key: state.records_without_key,
            dirtiest_percent: u64::from(state.dirtiest_ppm / 10_000),
            oldest_dirty_seconds: u64::try_from(age_ms / 1000).unwrap_or(0),
            uncleanable_logs: state.uncleanable,
        }
    }
}
