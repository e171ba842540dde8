//! What is on disk, and what has to be synced before more may count as that.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::Result;
use super::super::fs::{self, sync_if_exists};
use super::super::segment::Segment;
use super::{EPOCHS, PARTITION_METADATA, PartitionLog};
use crate::metadata::config::TopicConfig;
use crate::types::Offset;
use crate::types::time::now;

#[derive(Debug, Default)]
pub(super) struct FlushState {
    /// Grows when the log is cut off, so that a sync that began before does not count.
    generation: u64,
    /// Segments before the active one with bytes that are not on disk.
    unsynced: Vec<Arc<Segment>>,
    /// Segments whose indexes and snapshots are not on disk.
    sealed: Vec<Arc<Segment>>,
    /// Files in the partition's directory came or went.
    names_changed: bool,
    /// The directory is new.
    is_new: bool,
    /// Below, recovery trusts what it finds.
    recovery_point: Offset,
    /// The one in the checkpoint file.
    recovery_point_written: Offset,
    /// The largest that may be in the file at the moment.
    recovery_point_in_file_max: Offset,
}

impl FlushState {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn recovery_point_written(&self) -> Offset {
        self.recovery_point_written
    }

    pub(super) fn on_directory_made(&mut self) {
        self.is_new = true;
        self.names_changed = true;
    }

    pub(super) fn on_rolled(&mut self, sealed: &Arc<Segment>) {
        self.unsynced.push(Arc::clone(sealed));
        self.sealed.push(Arc::clone(sealed));
        self.names_changed = true;
    }

    /// Complete segments that are not on disk with all that belongs to them.
    pub(super) fn unsealed(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.sealed.iter()
    }

    /// Nothing from `end_offset` on is in the files any more.
    pub(super) fn on_truncated(&mut self, end_offset: Offset) {
        self.generation += 1;
        self.names_changed = true;
        self.recovery_point = self.recovery_point.min(end_offset);
        self.unsynced.retain(|segment| segment.base_offset < end_offset);
        // The one that is cut is complete no longer.
        self.sealed.retain(|segment| segment.next_offset() <= end_offset);
    }

    /// They need no sync any more.
    pub(super) fn on_discarded(&mut self, segments: &[Arc<Segment>]) {
        let is_left = |it: &Arc<Segment>| !segments.iter().any(|gone| Arc::ptr_eq(gone, it));
        self.unsynced.retain(is_left);
        self.sealed.retain(is_left);
    }

    /// The state of a log that was just opened; `suspects` were recovered.
    pub(super) fn on_opened(
        &mut self,
        recovery_point: Offset,
        written: Offset,
        suspects: &[Arc<Segment>],
    ) {
        self.recovery_point = recovery_point;
        self.recovery_point_written = written;
        self.recovery_point_in_file_max = written;
        self.names_changed = !suspects.is_empty();
        // What was made just before the crash may be known to the page cache only, the directory itself too.
        self.is_new = self.names_changed;
        if let Some((_active, complete)) = suspects.split_last() {
            self.unsynced = complete.to_vec();
            self.sealed = complete.to_vec();
        }
    }
}

/// What one flush of one log has to sync.
pub(in super::super) struct Dirty {
    pub(in super::super) log: Arc<PartitionLog>,
    pub(in super::super) files: Vec<Arc<File>>,
    /// Files that are not open.
    pub(in super::super) paths: Vec<PathBuf>,
    pub(in super::super) dirs: Vec<PathBuf>,
    end_offset: Offset,
    generation: u64,
}

impl PartitionLog {
    /// Asks the flusher for a round. Appends in fsync mode do that themselves.
    pub fn flush_soon(&self) {
        if !self.flush_queued.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            self.dir.flush.add(|queue| queue.dirty.push(me));
        }
    }

    /// In page-cache mode nobody waits for a flush; `flush.messages` and `flush.ms` say when there is one all the same.
    pub(super) fn flush_as_configured(&self, config: &TopicConfig) {
        let flushed = self.durable_end_offset.load(Ordering::Acquire);
        if self.end_offset() - flushed >= config.flush_messages {
            self.flush_soon();
        } else if config.flush_ms < i64::MAX
            && let Ok(ms) = u64::try_from(config.flush_ms)
            && let Some(due) = now().checked_add(Duration::from_millis(ms))
        {
            self.dir.chores.add(|chores| chores.flushes.bring_forward(&self.name, due));
        }
    }

    /// Whether its directory was made since the last flush.
    pub(in super::super) fn is_new_on_disk(&self) -> bool {
        self.flush.lock().is_new
    }

    /// Takes what has to be synced so that everything before the present end offset is on disk.
    pub(in super::super) fn begin_flush(self: &Arc<Self>) -> Result<Dirty> {
        // From here on an append asks for another round.
        self.flush_queued.store(false, Ordering::Release);
        let mut flush = self.flush.lock();
        let end_offset = self.end_offset();
        let segments = self.segments.load();
        let mut files = Vec::with_capacity(1 + flush.unsynced.len());
        for segment in flush.unsynced.iter().chain(segments.last()) {
            files.push(segment.file()?);
        }
        let (mut paths, mut dirs) = (Vec::new(), Vec::new());
        if flush.is_new {
            paths.push(self.path.join(PARTITION_METADATA));
            dirs.push(self.dir.path.clone());
        }
        if flush.names_changed && !segments.is_empty() {
            dirs.push(self.path.clone());
        }
        flush.unsynced.clear();
        (flush.is_new, flush.names_changed) = (false, false);
        let generation = flush.generation;
        Ok(Dirty { log: Arc::clone(self), files, paths, dirs, end_offset, generation })
    }

    /// Everything in `dirty` was synced. True when the durable end moved.
    pub(in super::super) fn end_flush(&self, dirty: &Dirty) -> bool {
        let flush = self.flush.lock();
        let before = self.durable_end_offset.load(Ordering::Acquire);
        if flush.generation != dirty.generation || dirty.end_offset <= before {
            return false;
        }
        self.durable_end_offset.store(dirty.end_offset, Ordering::Release);
        true
    }

    /// Before the log is cut off: what is written there from now on is not on disk, whatever the checkpoint says.
    pub(super) fn cut_durable_end(&self, end_offset: Offset) -> Result<()> {
        let is_above = {
            let mut flush = self.flush.lock();
            flush.on_truncated(end_offset);
            self.durable_end_offset.fetch_min(end_offset, Ordering::AcqRel);
            flush.recovery_point_in_file_max > end_offset
        };
        if is_above { self.dir.write_recovery_points() } else { Ok(()) }
    }

    /// Makes complete segments durable with all that belongs to them, and moves the recovery point behind them. True
    /// when it moved.
    pub(in super::super) fn sync_sealed(&self) -> Result<bool> {
        let (sealed, generation) = {
            let flush = self.flush.lock();
            (flush.sealed.clone(), flush.generation)
        };
        let mut recovery_point = 0;
        for segment in &sealed {
            match segment.file() {
                Ok(file) => fs::sync(&file, segment.path())?,
                // It was taken out of the log.
                Err(error) if error.is_not_found() && !self.holds(segment) => continue,
                Err(error) => return Err(error),
            }
            sync_if_exists(&segment.index_path())?;
            sync_if_exists(&segment.time_index_path())?;
            recovery_point = segment.next_offset();
            sync_if_exists(&self.snapshot_path(recovery_point))?;
        }
        if sealed.is_empty() {
            return Ok(false);
        }
        sync_if_exists(&self.path.join(EPOCHS))?;
        fs::sync_dir(&self.path)?;
        let mut flush = self.flush.lock();
        if flush.generation != generation {
            return Ok(false);
        }
        flush.sealed.retain(|segment| !sealed.iter().any(|synced| Arc::ptr_eq(synced, segment)));
        let moved = recovery_point > flush.recovery_point;
        flush.recovery_point = flush.recovery_point.max(recovery_point);
        Ok(moved)
    }

    /// For the checkpoint file: what is on disk with all that belongs to it. Only what was committed counts, so that a
    /// replica that is cut off for another leader's sake hardly ever has to take it back.
    pub(in super::super) fn recovery_point(&self) -> Offset {
        self.recovery_point_of(&self.flush.lock())
    }

    /// The same, when it is about to be written. A cut that comes now knows that it may be there already.
    pub(in super::super) fn on_recovery_point_writing(&self) -> Offset {
        let mut flush = self.flush.lock();
        let offset = self.recovery_point_of(&flush);
        flush.recovery_point_in_file_max = flush.recovery_point_in_file_max.max(offset);
        offset
    }

    fn recovery_point_of(&self, flush: &FlushState) -> Offset {
        let durable = self.durable_end_offset.load(Ordering::Acquire);
        let committed = durable.min(self.high_watermark_checkpoint());
        // Without its indexes and snapshot, a segment has to be read again.
        let unsealed = flush.sealed.first().map_or(Offset::MAX, |first| first.next_offset() - 1);
        flush.recovery_point.max(committed.min(unsealed))
    }

    pub(in super::super) fn recovery_point_written(&self) -> Offset {
        self.flush.lock().recovery_point_written
    }

    /// The checkpoint file says `offset` now.
    pub(in super::super) fn on_recovery_point_written(&self, offset: Offset) {
        let before = {
            let mut flush = self.flush.lock();
            flush.recovery_point_in_file_max = offset;
            std::mem::replace(&mut flush.recovery_point_written, offset)
        };
        if offset > before {
            self.compact_soon();
        }
    }

    /// Everything is on disk, because the whole file system was synced after the last append.
    pub(super) fn on_closed(&self) {
        let end_offset = self.end_offset();
        self.flush.lock().recovery_point = end_offset;
        self.durable_end_offset.store(end_offset, Ordering::Release);
    }
}
