//! Cutting the log off, at either end.
//!
//! Files go from the end towards the beginning, so that a crash in between leaves a longer prefix, which the next
//! follower fetch cuts again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::fs::{self, remove_if_exists};
use super::super::scan::Scanner;
use super::super::segment::Segment;
use super::super::{AppendError, Error, ReadError, Result};
use super::{PartitionLog, Producers, Writer};
use crate::types::Offset;
use crate::types::time::wall_ms;

impl PartitionLog {
    /// Drops everything from `offset` on. Returns the new end offset, which is lower when `offset` is inside a batch,
    /// or in a gap that compaction left.
    pub fn truncate_to(&self, offset: Offset) -> Result<Offset, AppendError> {
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        let end_offset = self.end_offset();
        if offset >= end_offset {
            // An epoch without a record yet may still be one that never was.
            self.epochs.lock().truncate_from_end(end_offset);
            return Ok(end_offset);
        }
        let segments = self.segments.load_full();
        let mut kept = segments.partition_point(|segment| segment.base_offset < offset);
        if kept == 0 {
            self.restart_at(&mut writer, offset, offset.min(self.start_offset()))?;
            return Ok(offset);
        }
        let end = end_after_cut(&segments[..kept], offset);
        let end =
            end.map_err(|error| self.on_cut_failed(into_error(error, &segments[kept - 1])))?;
        // Nobody reads beyond from here on, and no flush that begins now counts for more.
        self.end_offset.fetch_min(end, Ordering::AcqRel);
        self.cut_durable_end(end)?;
        self.segments.store(Arc::new(segments[..kept].to_vec()));
        let mut cut = || -> Result<Offset> {
            for segment in segments[kept..].iter().rev() {
                remove_segment(segment)?;
            }
            if kept < segments.len() {
                // They must not come back behind what is written from now on.
                fs::sync_dir(&self.path)?;
            }
            let end_offset = loop {
                let active = &segments[kept - 1];
                let end = active.truncate(offset).map_err(|error| into_error(error, active))?;
                if kept == 1 || active.size() > 0 {
                    break end;
                }
                // An empty segment would leave a gap behind the one before, if that was the reason to roll.
                kept -= 1;
                self.segments.store(Arc::new(segments[..kept].to_vec()));
                remove_segment(active)?;
            };
            self.drop_snapshots(&mut writer, end_offset)?;
            writer.changed = true;
            self.reload_producers(&mut writer, end_offset)?;
            Ok(end_offset)
        };
        let end_offset = cut().map_err(|error| self.on_cut_failed(error))?;
        self.publish_cut(end_offset, self.start_offset().min(end_offset))?;
        Ok(end_offset)
    }

    /// Drops everything and goes on at `start`.
    pub fn truncate_fully(&self, start: Offset) -> Result<(), AppendError> {
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        self.restart_at(&mut writer, start, start)
    }

    /// An empty log that goes on at `end`; a leader's first batch may begin below `start`.
    pub(super) fn restart_at(
        &self,
        writer: &mut Writer,
        end: Offset,
        start: Offset,
    ) -> Result<(), AppendError> {
        let segments = self.segments.load_full();
        self.end_offset.store(end, Ordering::Release);
        // The files go one after the other: nothing in them counts as stored from here on.
        let first_base = segments.first().map_or(end, |first| first.base_offset);
        self.cut_durable_end(first_base.min(end).min(start))?;
        writer.producers.clear();
        let mut restart = || -> Result<()> {
            if segments.is_empty() {
                return Ok(());
            }
            writer.changed = true;
            for segment in segments.iter().rev() {
                remove_segment(segment)?;
            }
            self.drop_snapshots(writer, -1)?;
            let segment = Segment::create(&self.path, end, wall_ms())?;
            self.segments.store(Arc::new(vec![Arc::new(segment)]));
            fs::sync_dir(&self.path)
        };
        restart().map_err(|error| self.dir.fail(error))?;
        self.epochs.lock().clear();
        self.publish_cut(end, start)
    }

    /// Brings offsets and epochs in line with a log that ends at `end` now, and has that written down.
    fn publish_cut(&self, end: Offset, start: Offset) -> Result<(), AppendError> {
        self.end_offset.store(end, Ordering::Release);
        let start_before = self.start_offset.swap(start, Ordering::AcqRel);
        if start < start_before {
            // A start that is ahead of the log would drop what is written there from now on.
            self.dir.write_log_starts().map_err(|error| self.dir.fail(error))?;
        } else if start > start_before {
            self.on_start_moved();
        }
        self.cut_durable_end(end)?;
        if self.clean_end.fetch_min(end, Ordering::AcqRel) > end {
            self.dir.chores.add(|chores| chores.clean_ends = true);
        }
        self.set_high_watermark_checkpoint(self.high_watermark_checkpoint().min(end));
        self.epochs.lock().truncate_from_end(end);
        self.write_epochs_if_changed()?;
        self.keep_warm();
        if self.is_page_cache() {
            return Ok(());
        }
        self.flush_soon();
        Ok(())
    }

    /// Removes the producer snapshots above `offset`: they tell of batches that are gone.
    fn drop_snapshots(&self, writer: &mut Writer, offset: Offset) -> Result<()> {
        while let Some(snapshot) = writer.snapshots.pop_if(|snapshot| *snapshot > offset) {
            remove_if_exists(&self.snapshot_path(snapshot))?;
        }
        Ok(())
    }

    /// Producer state as of `end_offset`: the newest snapshot that is whole, and the batches after it.
    pub(super) fn reload_producers(&self, writer: &mut Writer, end_offset: Offset) -> Result<()> {
        let now_ms = wall_ms();
        let mut from = self.segments.load().first().map_or(end_offset, |first| first.base_offset);
        let mut producers = Producers::default();
        for &snapshot in writer.snapshots.iter().rev() {
            let content = std::fs::read(self.snapshot_path(snapshot)).unwrap_or_default();
            if (from..=end_offset).contains(&snapshot)
                && let Some(decoded) = Producers::decode(&content, snapshot, now_ms)
            {
                producers = decoded;
                from = snapshot;
                break;
            }
        }
        let segments = self.segments.load_full();
        let first = segments.partition_point(|segment| segment.base_offset <= from);
        for segment in &segments[first.saturating_sub(1)..] {
            let mut replay = || -> Result<(), ReadError> {
                if segment.next_offset() <= from {
                    return Ok(());
                }
                let file = segment.file()?;
                let size = segment.size();
                let Some(start) = segment.find_batch(&file, from, size)? else {
                    return Ok(());
                };
                let mut scanner = Scanner::new(&file, start.position, size);
                while let Some(batch) =
                    scanner.next().map_err(|error| error.into_read_error(segment.path()))?
                {
                    producers.on_appended(&batch.header, now_ms);
                }
                Ok(())
            };
            replay().map_err(|error| into_error(error, segment))?;
        }
        writer.producers = producers;
        Ok(())
    }
}

/// Where a log ends at the least when it is cut off at `offset`, which is in the last of `segments`.
fn end_after_cut(segments: &[Arc<Segment>], offset: Offset) -> Result<Offset, ReadError> {
    let [before @ .., active] = segments else { return Ok(offset) };
    let file = active.file()?;
    Ok(match (active.find_batch(&file, offset, active.size())?, before.last()) {
        // The segment goes.
        (Some(first), Some(before)) if first.position == 0 => before.next_offset(),
        // What was before may have ended in a gap.
        (Some(first), _) => active.end_before(&file, first.position, active.size())?,
        (None, _) => active.next_offset().min(offset),
    })
}

pub(super) fn remove_segment(segment: &Segment) -> Result<()> {
    segment.paths().iter().rev().try_for_each(|path| remove_if_exists(path))
}

pub(super) fn into_error(error: ReadError, segment: &Segment) -> Error {
    match error {
        ReadError::Storage(error) => error,
        other => Error::malformed(segment.path(), other.to_string()),
    }
}
