//! What happens when records that were synced are not what was written (reliability.md D5).
//!
//! ```text
//! good --found by recovery, or by a read--> damaged --a leader is followed--> repairing --caught up--> good
//! ```
//! A damaged log neither serves nor takes anything, and nothing of it is cut away. To be repaired it has a leader: then
//! its files from the damaged segment on are renamed to `.damaged` and the log goes on as a follower's that lacks them.
//! The renamed files go when it has caught up. A crash in between is remembered by a mark in the directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::fs::{self, Durable};
use super::super::segment::{Segment, base_offset};
use super::super::{AppendError, Error, ReadError, Result};
use super::PartitionLog;
use crate::types::Offset;
use crate::types::time::{now, wall_ms};

/// In the directory of a partition that is being repaired.
pub(super) const REPAIR_MARK: &str = "kontiki-repair";

/// Where a log is not what was written.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    /// Everything below is good.
    pub(super) from: Offset,
    /// Base offset of the segment.
    pub(super) segment: Offset,
    pub(super) reason: String,
}

#[derive(Debug, Default)]
pub(super) enum Health {
    #[default]
    Good,
    Damaged(Damage),
    Repairing,
}

impl PartitionLog {
    /// It must not serve, until a leader has repaired it.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Whether a leader can push to it.
    pub fn takes_batches(&self) -> bool {
        self.check_repairable().is_ok()
    }

    /// Verifies what is read from `offset` on, also if it was good before.
    pub fn look_again_from(&self, offset: Offset) {
        if offset < self.end_offset() {
            let segments = self.segments.load();
            let first = segments.partition_point(|segment| segment.base_offset <= offset);
            segments[first.saturating_sub(1)..].iter().for_each(|segment| segment.distrust());
        }
    }

    /// For whoever reads.
    pub(super) fn check_whole(&self) -> Result<()> {
        if !self.is_damaged() {
            return Ok(());
        }
        let reason = match &*self.health.lock() {
            Health::Good => return Ok(()),
            Health::Damaged(damage) => damage.reason.clone(),
            Health::Repairing => "being repaired".to_owned(),
        };
        Err(Error::Damaged { path: self.path.clone(), reason })
    }

    /// For whoever writes, which a repair does.
    pub(super) fn check_repairable(&self) -> Result<()> {
        let is_repairing = || matches!(*self.health.lock(), Health::Repairing);
        if self.is_damaged() && is_repairing() { Ok(()) } else { self.check_whole() }
    }

    /// `is_marked`: it was being repaired when the process ended.
    pub(super) fn on_opened(&self, damage: Option<Damage>, is_marked: bool) {
        match damage {
            Some(damage) => self.on_damaged(damage),
            None if is_marked => {
                *self.health.lock() = Health::Repairing;
                self.publish_health(true);
            }
            None => {}
        }
    }

    fn on_damaged(&self, damage: Damage) {
        tracing::error!(
            log = %self.name, from = damage.from, reason = damage.reason,
            "records that were on disk are damaged; the replica is out of service until a leader repairs it"
        );
        {
            let mut health = self.health.lock();
            if matches!(*health, Health::Damaged(_)) {
                return;
            }
            *health = Health::Damaged(damage);
        }
        self.dir.damages.found.fetch_add(1, Ordering::Relaxed);
        self.publish_health(true);
    }

    /// A cut met damage, or its operations on the disk failed.
    pub(super) fn on_cut_failed(&self, error: Error) -> Error {
        if !matches!(error, Error::Malformed { .. }) {
            return self.dir.fail(error);
        }
        let segment = self.segments.load().last().map_or(0, |last| last.base_offset);
        self.on_damaged(Damage { from: segment, segment, reason: error.to_string() });
        error
    }

    fn publish_health(&self, is_damaged: bool) {
        self.is_damaged.store(is_damaged, Ordering::Release);
        self.dir.set_damaged(self.id(), is_damaged);
    }

    /// Reads by [`PartitionLog::with_segments`], and finds out about damage: what is malformed even while nobody writes.
    pub(super) fn read_checked<T>(
        &self,
        from: Offset,
        read: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.check_whole()?;
        let error = match read() {
            Err(error) if error.is_damage() => error,
            done => return done,
        };
        let segments = self.segments.load();
        let index = segments.partition_point(|segment| segment.base_offset <= from);
        let segment = segments.get(index.saturating_sub(1)).map_or(from, |it| it.base_offset);
        self.on_damaged(Damage { from, segment, reason: error.to_string() });
        self.check_whole()?;
        Err(error)
    }

    /// There is a leader to repair a damaged log from: sets the damaged files aside. The log ends before them now.
    pub fn begin_repair(&self) -> Result<(), AppendError> {
        let mut writer = self.writer.lock();
        let damage = match &*self.health.lock() {
            Health::Damaged(damage) => damage.clone(),
            Health::Good | Health::Repairing => return Ok(()),
        };
        if writer.closed {
            return Err(AppendError::Closed);
        }
        self.dir.check_online()?;
        let segments = self.segments.load_full();
        let kept = segments.partition_point(|segment| segment.base_offset < damage.segment);
        let end = damage.segment.max(self.start_offset());
        let mut set_aside = || -> Result<()> {
            self.end_offset.store(end, Ordering::Release);
            self.set_high_watermark_checkpoint(self.high_watermark_checkpoint().min(end));
            self.cut_durable_end(end)?;
            let mark = format!("version: 0\nfrom: {}\nreason: {}\n", damage.from, damage.reason);
            fs::replace(&self.path.join(REPAIR_MARK), mark.as_bytes(), Durable::Now)?;
            for path in self.files_from(damage.segment)?.iter().rev() {
                fs::rename(path, &path.with_added_extension("damaged"))?;
            }
            writer.snapshots.retain(|&snapshot| snapshot <= damage.segment);
            let mut left = segments[..kept].to_vec();
            left.push(Arc::new(Segment::create(&self.path, end, wall_ms())?));
            self.segments.store(left.into());
            fs::sync_dir(&self.path)?;
            writer.changed = true;
            self.epochs.lock().truncate_from_end(damage.segment);
            self.reload_producers(&mut writer, end)
        };
        set_aside().map_err(|error| self.on_cut_failed(error))?;
        *self.health.lock() = Health::Repairing;
        self.write_epochs_if_changed()?;
        tracing::warn!(log = %self.name, from = end, "a damaged replica is repaired from its leader");
        Ok(())
    }

    /// A log that is being repaired has everything that counts again.
    pub fn end_repair(&self) -> Result<(), AppendError> {
        let writer = self.writer.lock();
        if !matches!(*self.health.lock(), Health::Repairing) {
            return Ok(());
        }
        self.check_writable(&writer)?;
        let finish = || -> Result<Vec<PathBuf>> {
            let files = self.files_from(0)?;
            let is_damaged = |path: &PathBuf| path.extension().is_some_and(|it| it == "damaged");
            fs::remove_if_exists(&self.path.join(REPAIR_MARK))?;
            fs::sync_dir(&self.path)?;
            Ok(files.into_iter().filter(is_damaged).collect())
        };
        let damaged = finish().map_err(|error| self.dir.fail(error))?;
        self.dir.chores.add(|chores| chores.doom(now(), damaged));
        self.dir.damages.repaired.fetch_add(1, Ordering::Relaxed);
        *self.health.lock() = Health::Good;
        self.publish_health(false);
        tracing::info!(log = %self.name, end = self.end_offset(), "repaired from peer");
        Ok(())
    }

    /// Files that are named by an offset from `base` on, in order.
    fn files_from(&self, base: Offset) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let listing = std::fs::read_dir(&self.path).map_err(Error::io("list", &self.path))?;
        for entry in listing {
            let path = entry.map_err(Error::io("list", &self.path))?.path();
            if base_offset(&path).is_some_and(|offset| offset >= base) {
                found.push(path);
            }
        }
        found.sort();
        Ok(found)
    }
}
