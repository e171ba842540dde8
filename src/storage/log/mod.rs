//! One replica of one partition.
//!
//! ```text
//! start_offset <= high watermark (the broker's) <= durable_end_offset <= end_offset
//! ```
//! One writer at a time holds `writer`; readers take the list of segments and a segment's own short lock. Offsets are
//! published after the bytes are in the file. Lock order: `writer`, `epochs`, `flush`, a segment.

mod append;
mod close;
mod damage;
mod discard;
mod flush;
mod open;
mod read;
mod replace;
mod retention;
mod truncate;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

pub use append::{Appended, ValidBatch};
pub(super) use flush::Dirty;
pub(super) use open::{FoundLog, open_log};
pub use read::TimestampedOffset;
pub(super) use replace::View;

use super::checkpoint::format_epochs;
use super::epochs::EpochCache;
use super::fs::{self, Durable};
use super::log_dir::{LogDir, partition_dir};
use super::producers::Producers;
use super::segment::{Segment, file_name};
use super::{AppendError, Result};
use crate::metadata::config::{Durability, TopicConfig};
use crate::types::time::now;
use crate::types::{LeaderEpoch, Offset, TopicId, TopicIdPartition, TopicPartition};
use damage::Health;
use flush::FlushState;

pub(super) const EPOCHS: &str = "leader-epoch-checkpoint";
pub(super) const PARTITION_METADATA: &str = "partition.metadata";
/// Producer snapshots that are kept, and all that the next recovery may ask for.
const SNAPSHOTS_KEPT: usize = 3;

/// One writer at a time (a mutex inside); readers wait neither for a write nor for a flush.
pub struct PartitionLog {
    me: Weak<PartitionLog>,
    name: TopicPartition,
    topic_id: TopicId,
    dir: Arc<LogDir>,
    path: PathBuf,
    config: ArcSwap<TopicConfig>,
    page_cache: AtomicBool,
    /// Its topic's configs are known. A log that was found at start does not know them at first.
    is_configured: AtomicBool,
    start_offset: AtomicI64,
    /// As the checkpoint has it.
    start_offset_written: AtomicI64,
    end_offset: AtomicI64,
    durable_end_offset: AtomicI64,
    high_watermark: AtomicI64,
    /// Below, compaction has been.
    clean_end: AtomicI64,
    /// In order; the last one is active. Empty until the first write, which makes the directory.
    segments: ArcSwap<Vec<Arc<Segment>>>,
    epochs: Mutex<EpochCache>,
    writer: Mutex<Writer>,
    flush: Mutex<FlushState>,
    flush_queued: AtomicBool,
    compaction_queued: AtomicBool,
    /// On the housekeeper's list of logs with open files.
    warm: AtomicBool,
    /// Its directory was renamed, to be deleted.
    gone: AtomicBool,
    is_damaged: AtomicBool,
    health: Mutex<Health>,
}

/// What only the writer looks at.
#[derive(Debug)]
struct Writer {
    producers: Producers,
    /// Offsets of the producer snapshots on disk, ascending.
    snapshots: Vec<Offset>,
    /// Something was written since the log was opened, or recovered: closing has work to do.
    changed: bool,
    /// Deleted, or shut down.
    closed: bool,
    /// Bytes that may be appended before retention may have something to do.
    retention_slack: u64,
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            producers: Producers::default(),
            snapshots: Vec::new(),
            changed: false,
            closed: false,
            retention_slack: u64::MAX,
        }
    }
}

impl std::fmt::Debug for PartitionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionLog")
            .field("name", &self.name)
            .field("topic_id", &self.topic_id)
            .field("start_offset", &self.start_offset())
            .field("end_offset", &self.end_offset())
            .finish_non_exhaustive()
    }
}

impl PartitionLog {
    /// A log without any file.
    pub(super) fn new(
        dir: &Arc<LogDir>,
        name: TopicPartition,
        topic_id: TopicId,
        config: Arc<TopicConfig>,
    ) -> Arc<Self> {
        let path = partition_dir(&dir.path, &name);
        let page_cache = dir.durability_of(&config) == Durability::PageCache;
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            name,
            topic_id,
            dir: Arc::clone(dir),
            path,
            config: ArcSwap::new(config),
            page_cache: AtomicBool::new(page_cache),
            is_configured: AtomicBool::new(true),
            start_offset: AtomicI64::new(0),
            start_offset_written: AtomicI64::new(0),
            end_offset: AtomicI64::new(0),
            durable_end_offset: AtomicI64::new(0),
            high_watermark: AtomicI64::new(0),
            clean_end: AtomicI64::new(0),
            segments: ArcSwap::default(),
            epochs: Mutex::default(),
            writer: Mutex::default(),
            flush: Mutex::default(),
            flush_queued: AtomicBool::new(false),
            compaction_queued: AtomicBool::new(false),
            warm: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
            health: Mutex::default(),
        })
    }

    pub fn name(&self) -> &TopicPartition {
        &self.name
    }
    pub fn topic_id(&self) -> TopicId {
        self.topic_id
    }
    pub fn id(&self) -> TopicIdPartition {
        TopicIdPartition { topic_id: self.topic_id, partition: self.name.partition }
    }

    /// First offset that may be read.
    pub fn start_offset(&self) -> Offset {
        self.start_offset.load(Ordering::Acquire)
    }
    /// The offset of the next record.
    pub fn end_offset(&self) -> Offset {
        self.end_offset.load(Ordering::Acquire)
    }
    /// Everything below counts as stored: `end_offset` itself in page-cache mode, what is on disk in fsync mode.
    pub fn durable_end_offset(&self) -> Offset {
        if self.is_page_cache() {
            self.end_offset()
        } else {
            self.durable_end_offset.load(Ordering::Acquire)
        }
    }
    fn is_page_cache(&self) -> bool {
        self.page_cache.load(Ordering::Relaxed)
    }

    /// The largest known epoch not above `epoch`, and where it ends (replication.md 2.8).
    pub fn end_offset_for_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        self.epochs.lock().end_offset_for(epoch, self.end_offset())
    }
    /// NONE when no epoch is known.
    pub fn latest_epoch(&self) -> LeaderEpoch {
        self.epochs.lock().latest()
    }
    /// Says that `epoch` starts at `start`, even without a record yet. Touches no file.
    pub fn assign_epoch(&self, epoch: LeaderEpoch, start: Offset) {
        self.epochs.lock().assign(epoch, start);
    }

    pub fn config(&self) -> Arc<TopicConfig> {
        self.config.load_full()
    }
    pub fn update_config(&self, config: Arc<TopicConfig>) {
        let page_cache = self.dir.durability_of(&config) == Durability::PageCache;
        let retention = config.retention();
        let before = self.config.swap(config);
        self.page_cache.store(page_cache, Ordering::Relaxed);
        if !self.is_configured.swap(true, Ordering::Relaxed) {
            self.retain_by(now());
        } else if before.retention() != retention {
            self.dir.chores.add(|chores| chores.retention.set(&self.name, now()));
        }
        if self.durable_end_offset() < self.end_offset() {
            self.flush_soon();
        }
        self.compact_soon();
    }

    /// The high watermark that was on disk at start, or was set since.
    pub fn high_watermark_checkpoint(&self) -> Offset {
        self.high_watermark.load(Ordering::Acquire)
    }
    /// Remembered on disk within seconds. Cheap enough to be called whenever it moves.
    pub fn set_high_watermark_checkpoint(&self, offset: Offset) {
        if self.high_watermark.swap(offset, Ordering::AcqRel) != offset {
            self.dir.on_high_watermark();
        }
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        self.segments.load().iter().map(|segment| segment.size()).sum()
    }

    /// What was flushed, in either mode.
    #[cfg(test)]
    pub(super) fn flushed_offset(&self) -> Offset {
        self.durable_end_offset.load(Ordering::Acquire)
    }

    /// Base offsets of its segments.
    #[cfg(test)]
    pub(super) fn segment_bases(&self) -> Vec<Offset> {
        self.segments.load().iter().map(|segment| segment.base_offset).collect()
    }

    /// Where its directory is, or will be.
    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }
    pub(super) fn dir(&self) -> &Arc<LogDir> {
        &self.dir
    }
    /// Whether there are files.
    pub(super) fn is_on_disk(&self) -> bool {
        !self.segments.load().is_empty()
    }

    /// For `log-start-offset-checkpoint`. Also where the first segment says the same: earlier ones might come back in a
    /// crash.
    pub(super) fn start_offset_to_write(&self) -> Option<Offset> {
        Some(self.start_offset()).filter(|&start| start > 0 && self.is_on_disk())
    }

    fn check_writable(&self, writer: &Writer) -> Result<(), AppendError> {
        if writer.closed {
            return Err(AppendError::Closed);
        }
        self.dir.check_online()?;
        Ok(self.check_repairable()?)
    }

    /// Brings `leader-epoch-checkpoint` up to date, when a segment ends and when the log is cut off or closed. What is
    /// newer than that is in the active segment, and is read from its batches after a crash.
    fn write_epochs_if_changed(&self) -> Result<()> {
        if !self.is_on_disk() {
            return Ok(());
        }
        let mut epochs = self.epochs.lock();
        if !epochs.take_changed() {
            return Ok(());
        }
        let text = format_epochs(epochs.entries());
        fs::replace(&self.path.join(EPOCHS), text.as_bytes(), Durable::Later).map_err(|error| {
            epochs.set_changed();
            self.dir.fail_unless_full(error)
        })
    }

    /// Writes the producer state as of `offset`, the end of the log, and removes the oldest snapshots.
    fn write_snapshot(&self, writer: &mut Writer, offset: Offset) -> Result<()> {
        if writer.snapshots.last() != Some(&offset) {
            fs::replace(&self.snapshot_path(offset), &writer.producers.encode(), Durable::Later)?;
            writer.snapshots.push(offset);
        }
        let surplus = writer.snapshots.len().saturating_sub(SNAPSHOTS_KEPT);
        let recovery_point = self.recovery_point_written();
        let is_old = |offset: &&Offset| **offset < recovery_point;
        let surplus = writer.snapshots.iter().take(surplus).take_while(is_old).count();
        self.remove_oldest_snapshots(writer, surplus)
    }

    fn remove_oldest_snapshots(&self, writer: &mut Writer, count: usize) -> Result<()> {
        for offset in writer.snapshots.drain(..count) {
            fs::remove_if_exists(&self.snapshot_path(offset))?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn last_sequences(&self) -> std::collections::BTreeMap<i64, i32> {
        self.writer.lock().producers.last_sequences()
    }

    fn snapshot_path(&self, offset: Offset) -> PathBuf {
        self.path.join(file_name(offset, "snapshot"))
    }

    /// Puts the log on the housekeeper's list when it opens files.
    fn keep_warm(&self) {
        if !self.warm.load(Ordering::Relaxed)
            && !self.warm.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            self.dir.chores.add_when_first(|chores| &mut chores.warm, me);
        }
    }

    /// Closes the files that were not used since the last call. True when none is left open.
    pub(super) fn cool(&self) -> bool {
        // Whoever opens a file from now on puts the log on the list again.
        self.warm.store(false, Ordering::Release);
        let waits_for_sync = self.durable_end_offset() < self.end_offset();
        let segments = self.segments.load_full();
        // Each of them is asked, also after one that is in use.
        let in_use = segments.iter().filter(|segment| waits_for_sync || !segment.cool()).count();
        let is_cold = in_use == 0;
        is_cold || self.warm.swap(true, Ordering::AcqRel)
    }
}
