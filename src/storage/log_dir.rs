//! One log directory: what its partitions share, and what waits for its threads.
//!
//! ```text
//! append (fsync mode) --flush_soon--> flush queue --> flusher: one sync for everything dirty --> on_durable
//! roll, delete, high watermark ---------------------> housekeeper: sealed segments, checkpoints, deletions, closing files
//! ```
//! Both threads sleep without a timeout when there is nothing to do.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::agenda::Agenda;
use super::checkpoint::{OffsetMap, format_offsets};
use super::compaction::Compaction;
use super::config::OnTrouble;
use super::fs::{self, Durable};
use super::placement::Load;
use super::progress::Progress;
use super::room::Room;
use super::{Error, PartitionLog, Result, StorageConfig};
use crate::metadata::config::{Durability, TopicConfig};
use crate::types::time::now;
use crate::types::{Offset, TopicIdPartition, TopicPartition};

pub(super) const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
pub(super) const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
pub(super) const LOG_STARTS: &str = "log-start-offset-checkpoint";
pub(super) const CLEAN_ENDS: &str = "cleaner-offset-checkpoint";
pub(super) const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
pub(super) const LOCK: &str = ".lock";

/// A log that must not serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfflineLog {
    pub id: TopicIdPartition,
    /// It may lack records that it counted as stored: a page cache that could not be written, or damage.
    pub lossy: bool,
}

pub(super) struct LogDir {
    pub(super) path: PathBuf,
    /// Of topics that do not say themselves.
    durability: Durability,
    offline: OnceLock<Error>,
    /// Logs that have to be repaired before they may serve.
    damaged: Mutex<BTreeSet<TopicIdPartition>>,
    /// Logs that were found damaged, and that were repaired, since the start.
    pub(super) damages: Arc<DamageCount>,
    on_trouble: OnTrouble,
    /// Appends, and rounds of the flusher.
    pub(super) writes: Progress,
    pub(super) syncs: Progress,
    pub(super) room: Room,
    pub(super) load: Mutex<Option<Load>>,
    pub(super) logs: Mutex<BTreeMap<TopicPartition, Arc<PartitionLog>>>,
    pub(super) flush: Queue<FlushQueue>,
    pub(super) chores: Queue<Chores>,
    pub(super) compaction: Arc<Compaction>,
    /// Partitions that are gone, while checkpoints still say something of them. Before one of the same name is made,
    /// they are written anew.
    pub(super) outdated: Mutex<BTreeSet<TopicPartition>>,
    /// One writer of a checkpoint at a time.
    checkpointing: Mutex<()>,
    /// High watermarks that moved since they were written.
    high_watermarks_moved: AtomicBool,
    opened_at: Instant,
    retention_check_interval: Duration,
}

/// Of one directory.
#[derive(Debug, Default)]
pub(super) struct DamageCount {
    pub(super) found: AtomicU64,
    pub(super) repaired: AtomicU64,
}

/// How many logs were found damaged since the start, and how many of them were repaired.
#[derive(Debug, Clone)]
pub struct Damages(pub(super) Vec<Arc<DamageCount>>);

impl Damages {
    pub fn found_and_repaired(&self) -> (u64, u64) {
        let sum = |count: fn(&DamageCount) -> &AtomicU64| {
            self.0.iter().map(|dir| count(dir).load(Ordering::Relaxed)).sum()
        };
        (sum(|dir| &dir.found), sum(|dir| &dir.repaired))
    }
}

/// Work for one thread.
pub(super) struct Queue<T> {
    pub(super) work: Mutex<T>,
    pub(super) wake: Condvar,
}

impl<T: Default> Default for Queue<T> {
    fn default() -> Self {
        Self { work: Mutex::default(), wake: Condvar::new() }
    }
}

impl<T> Queue<T> {
    pub(super) fn add(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.work.lock());
        self.wake.notify_one();
    }

    /// Adds to a list that the thread looks at in its own time; wakes it when it may have no time set.
    pub(super) fn add_when_first<E>(&self, list: impl FnOnce(&mut T) -> &mut Vec<E>, entry: E) {
        let mut work = self.work.lock();
        let list = list(&mut work);
        list.push(entry);
        if list.len() == 1 {
            self.wake.notify_one();
        }
    }
}

#[derive(Default)]
pub(super) struct FlushQueue {
    pub(super) dirty: Vec<Arc<PartitionLog>>,
    pub(super) stopping: bool,
}

#[derive(Default)]
pub(super) struct Chores {
    /// Logs with segments that are complete and not synced.
    pub(super) sealed: Vec<Arc<PartitionLog>>,
    /// Logs with open files.
    pub(super) warm: Vec<Arc<PartitionLog>>,
    /// Renamed directories and files, and when they go.
    doomed: BinaryHeap<Reverse<(Instant, PathBuf)>>,
    pub(super) recovery_points: bool,
    pub(super) high_watermarks: bool,
    pub(super) log_starts: bool,
    /// Logs whose start was moved since it was written.
    pub(super) moved_starts: Vec<Arc<PartitionLog>>,
    /// When retention looks at which log.
    pub(super) retention: Agenda<TopicPartition>,
    /// When which log is flushed, in page-cache mode.
    pub(super) flushes: Agenda<TopicPartition>,
    pub(super) clean_ends: bool,
    pub(super) stopping: bool,
}

impl Chores {
    /// Unlinks what was renamed to `paths` when it is `due`.
    pub(super) fn doom(&mut self, due: Instant, paths: impl IntoIterator<Item = PathBuf>) {
        self.doomed.extend(paths.into_iter().map(|path| Reverse((due, path))));
    }

    pub(super) fn next_removal(&self) -> Option<Instant> {
        self.doomed.peek().map(|Reverse((due, _))| *due)
    }

    /// What is due at `now`, if anything.
    pub(super) fn take_doomed(&mut self, now: Instant) -> Option<PathBuf> {
        self.next_removal().filter(|due| *due <= now)?;
        self.doomed.pop().map(|Reverse((_, path))| path)
    }
}

impl LogDir {
    pub(super) fn new(path: PathBuf, config: &StorageConfig, compaction: &Arc<Compaction>) -> Self {
        Self {
            path,
            durability: config.durability,
            offline: OnceLock::new(),
            damaged: Mutex::default(),
            damages: Arc::default(),
            on_trouble: Arc::clone(&config.on_trouble),
            writes: Progress::new(),
            syncs: Progress::new(),
            room: Room::new(config.min_free),
            load: Mutex::default(),
            logs: Mutex::default(),
            flush: Queue::default(),
            chores: Queue::default(),
            compaction: Arc::clone(compaction),
            outdated: Mutex::default(),
            checkpointing: Mutex::new(()),
            high_watermarks_moved: AtomicBool::new(false),
            opened_at: now(),
            retention_check_interval: config.retention_check_interval,
        }
    }

    pub(super) fn durability_of(&self, config: &TopicConfig) -> Durability {
        config.durability.unwrap_or(self.durability)
    }

    pub(super) fn offline(&self) -> Option<&Error> {
        self.offline.get()
    }

    /// For whoever is about to write.
    pub(super) fn check_online(&self) -> Result<()> {
        match self.offline() {
            None => Ok(()),
            Some(error) => {
                Err(Error::Offline { dir: self.path.clone(), reason: error.to_string() })
            }
        }
    }

    /// Takes the directory out of service for good, because `error` was a failed write or sync. Gives the error back.
    /// A lack of descriptors says nothing about the disk, and whoever met it may try again.
    pub(super) fn fail(&self, error: Error) -> Error {
        if error.is_resource_limit() {
            return error;
        }
        if self.offline.set(error.clone()).is_ok() {
            tracing::error!(dir = %self.path.display(), %error, "log directory goes offline");
            (self.on_trouble)();
        }
        error
    }

    /// A log was found damaged, so that it must not serve; or it is whole again.
    pub(super) fn set_damaged(&self, log: TopicIdPartition, is_damaged: bool) {
        let mut damaged = self.damaged.lock();
        if if is_damaged { damaged.insert(log) } else { damaged.remove(&log) } {
            drop(damaged);
            (self.on_trouble)();
        }
    }

    /// What cannot serve here, and whether it may lack records that counted as stored.
    pub(super) fn offline_logs(&self, found: &mut Vec<OfflineLog>) {
        found.extend(self.damaged.lock().iter().map(|&id| OfflineLog { id, lossy: true }));
        if self.offline().is_some() {
            let logs = self.logs.lock();
            found.extend(logs.values().map(|log| OfflineLog {
                id: log.id(),
                lossy: log.config().durability.unwrap_or(self.durability) == Durability::PageCache,
            }));
        }
    }

    /// As [`LogDir::fail`], for what leaves everything as it was and may be tried again when there is room.
    pub(super) fn fail_unless_full(&self, error: Error) -> Error {
        if error.is_full() {
            tracing::warn!(dir = %self.path.display(), %error, "a log directory is full");
            return error;
        }
        self.fail(error)
    }

    /// Asks the housekeeper to write the high watermarks in a while.
    pub(super) fn on_high_watermark(&self) {
        let moved = &self.high_watermarks_moved;
        if !moved.load(Ordering::Relaxed) && !moved.swap(true, Ordering::AcqRel) {
            self.chores.add(|chores| chores.high_watermarks = true);
        }
    }

    /// When retention does what comes up at `at`: at the end of that interval, together with what else comes up then.
    /// `None`: never.
    pub(super) fn end_of_interval(&self, at: Instant) -> Option<Instant> {
        let interval = self.retention_check_interval.as_nanos().max(1);
        let intervals = at.duration_since(self.opened_at).as_nanos() / interval + 1;
        let nanos = u64::try_from(intervals.saturating_mul(interval)).ok()?;
        self.opened_at.checked_add(Duration::from_nanos(nanos))
    }

    /// Before a directory is made for `name`.
    pub(super) fn forget_outdated(&self, name: &TopicPartition) -> Result<()> {
        let mut outdated = self.outdated.lock();
        if outdated.contains(name) {
            self.write_recovery_points()?;
            self.write_high_watermarks()?;
            self.write_log_starts()?;
            self.write_clean_ends()?;
            outdated.clear();
        }
        Ok(())
    }

    /// Whether more of some log is on disk than the checkpoint says.
    pub(super) fn has_recovery_points_to_write(&self) -> bool {
        self.logs.lock().values().any(|log| log.recovery_point() > log.recovery_point_written())
    }

    pub(super) fn write_recovery_points(&self) -> Result<()> {
        self.write_offsets(
            RECOVERY_POINTS,
            |log| {
                let offset = log.on_recovery_point_writing();
                Some(offset).filter(|&offset| offset > 0 && log.is_on_disk())
            },
            PartitionLog::on_recovery_point_written,
        )
    }

    pub(super) fn write_high_watermarks(&self) -> Result<()> {
        self.high_watermarks_moved.store(false, Ordering::Release);
        self.write_offsets(
            HIGH_WATERMARKS,
            |log| Some(log.high_watermark_checkpoint()).filter(|&offset| offset > 0),
            |_, _| {},
        )
    }

    pub(super) fn write_log_starts(&self) -> Result<()> {
        self.write_offsets(
            LOG_STARTS,
            PartitionLog::start_offset_to_write,
            PartitionLog::on_start_offset_written,
        )
    }

    pub(super) fn write_clean_ends(&self) -> Result<()> {
        self.write_offsets(CLEAN_ENDS, PartitionLog::clean_end_to_write, |_, _| {})
    }

    /// Writes the `offset` of each log that has one; then `on_written` is told what the file says of each.
    fn write_offsets(
        &self,
        file: &str,
        offset: impl Fn(&PartitionLog) -> Option<Offset>,
        on_written: impl Fn(&PartitionLog, Offset),
    ) -> Result<()> {
        let _one_at_a_time = self.checkpointing.lock();
        self.check_online()?;
        let logs: Vec<Arc<PartitionLog>> = self.logs.lock().values().cloned().collect();
        let written: Vec<_> = logs.into_iter().map(|log| (offset(&log), log)).collect();
        let offsets: OffsetMap = written
            .iter()
            .filter_map(|(offset, log)| Some((log.name().clone(), (*offset)?)))
            .collect();
        fs::replace(&self.path.join(file), format_offsets(&offsets).as_bytes(), Durable::Now)
            .map_err(|error| self.fail_unless_full(error))?;
        for (offset, log) in written {
            on_written(&log, offset.unwrap_or(0));
        }
        Ok(())
    }
}

/// The directory of a partition, in its log directory.
pub(super) fn partition_dir(log_dir: &Path, name: &TopicPartition) -> PathBuf {
    log_dir.join(name.to_string())
}
