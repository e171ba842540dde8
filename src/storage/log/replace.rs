//! What compaction sees of a log, and how it puts a rewritten segment in the place of others.
//!
//! ```text
//! N.log.cleaned --written, synced, renamed--> N.log.swap --> originals renamed to .deleted --> N.log
//! ```
//! From the moment that `N.log.swap` is there, the new segment counts; `Leftovers::finish` completes at the next start
//! what a crash interrupted. Before, the originals count. Kafka's rule, so that either may open what the other left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::compaction::LastBatches;
use super::super::fs;
use super::super::scan::Scanner;
use super::super::segment::{Segment, file_name};
use super::super::{Error, Result};
use super::PartitionLog;
use crate::types::Offset;

/// A log at one moment.
#[derive(Debug, Clone)]
pub(in super::super) struct View {
    pub(in super::super) segments: Arc<Vec<Arc<Segment>>>,
    pub(in super::super) start_offset: Offset,
    pub(in super::super) high_watermark: Offset,
    /// Complete segments below it are on disk, and the next recovery knows that.
    pub(in super::super) flushed_end: Offset,
    /// Where the first open transaction begins.
    pub(in super::super) first_unstable: Offset,
    /// Below it, an earlier pass has been.
    pub(in super::super) clean_end: Offset,
    /// Grows when the log is cut off.
    generation: u64,
}

impl PartitionLog {
    /// Has the cleaner look at the log, if it is compacted.
    pub(super) fn compact_soon(&self) {
        if self.config.load().cleanup_policy.compact
            && self.dir.compaction.is_enabled()
            && !self.compaction_queued.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            self.dir.compaction.news.add(|news| news.logs.push(me));
        }
    }

    /// What happens from now on is news.
    pub(in super::super) fn on_compaction_begun(&self) {
        self.compaction_queued.store(false, Ordering::Release);
    }

    pub(in super::super) fn view(&self) -> View {
        let writer = self.writer.lock();
        let segments = self.segments.load_full();
        let flush = self.flush.lock();
        let recovery_point = flush.recovery_point_written();
        let flushed = segments.iter().take_while(|segment| segment.next_offset() <= recovery_point);
        View {
            start_offset: self.start_offset(),
            high_watermark: self.high_watermark_checkpoint(),
            flushed_end: flushed.last().map_or(0, |last| last.next_offset()),
            first_unstable: writer.producers.first_unstable().unwrap_or(Offset::MAX),
            clean_end: self.clean_end.load(Ordering::Acquire),
            generation: flush.generation(),
            segments,
        }
    }

    /// Whether what `view` shows may still be compacted. Segments may have been taken out at its beginning.
    pub(in super::super) fn is_as_viewed(&self, view: &View) -> bool {
        self.config.load().cleanup_policy.compact
            && !self.is_gone()
            && self.dir.offline().is_none()
            && self.flush.lock().generation() == view.generation
    }

    /// Everything below `offset` was compacted.
    pub(in super::super) fn set_clean_end(&self, view: &View, offset: Offset) {
        let _writer = self.writer.lock();
        if self.is_as_viewed(view) && self.clean_end.swap(offset, Ordering::AcqRel) != offset {
            self.dir.chores.add(|chores| chores.clean_ends = true);
        }
    }

    /// For `cleaner-offset-checkpoint`.
    pub(in super::super) fn clean_end_to_write(&self) -> Option<Offset> {
        Some(self.clean_end.load(Ordering::Acquire)).filter(|&offset| offset > 0)
    }

    pub(in super::super) fn last_batches_of_producers(&self) -> LastBatches {
        self.writer.lock().producers.last_batches()
    }

    /// Ends the active segment, if it has records.
    pub(in super::super) fn roll_active(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        let segments = self.segments.load_full();
        let active = segments.last().filter(|active| active.size() > 0 && !writer.closed);
        if let Some(active) = active {
            self.roll(&mut writer, active, self.end_offset(), crate::types::time::wall_ms())
                .map_err(|error| self.dir.fail(error))?;
        }
        Ok(())
    }

    /// Puts `cleaned`, whose files are on disk, in the place of `originals`. False, and all is as before, when the log is
    /// not what `view` shows.
    pub(in super::super) fn swap_in(
        &self,
        view: &View,
        originals: &[Arc<Segment>],
        cleaned: Segment,
    ) -> Result<bool> {
        let cleaned_paths = cleaned.paths();
        let cleaned = cleaned.into_final();
        let names = cleaned_paths.iter().zip(cleaned.paths());
        let names: Vec<(&PathBuf, PathBuf, PathBuf)> =
            names.map(|(from, to)| (from, to.with_added_extension("swap"), to)).collect();
        let writer = self.writer.lock();
        let segments = self.segments.load_full();
        let first = segments.partition_point(|held| held.base_offset < originals[0].base_offset);
        let held = segments.get(first..first + originals.len()).unwrap_or_default();
        let are_held = originals.len() == held.len()
            && held.iter().zip(originals).all(|(held, original)| Arc::ptr_eq(held, original));
        if !are_held || writer.closed || !self.is_as_viewed(view) {
            return Ok(false);
        }
        for original in originals {
            original.retire()?;
        }
        // The `.log` comes last: with it, the new segment is whole.
        for (from, swap, _) in names.iter().rev() {
            rename_if_exists(from, swap)?;
        }
        self.discard(originals)?;
        for (_, swap, to) in names.iter().rev() {
            rename_if_exists(swap, to)?;
        }
        let mut swapped = segments[..first].to_vec();
        swapped.push(Arc::new(cleaned));
        swapped.extend_from_slice(&segments[first + originals.len()..]);
        self.segments.store(Arc::new(swapped));
        drop(writer);
        self.keep_warm();
        fs::sync_dir(&self.path)?;
        Ok(true)
    }
}

fn rename_if_exists(from: &Path, to: &Path) -> Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// What an interrupted compaction left in a partition's directory.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// The lowest base offset of a `.cleaned` file: a swap from there on had not begun.
    pub(super) first_cleaned: Option<Offset>,
    /// `.swap` files, and the base offsets of their segments.
    pub(super) swaps: Vec<(Offset, PathBuf)>,
}

impl Leftovers {
    /// Completes swaps that have begun, and forgets the others. `bases` are those of the segments that are there.
    pub(super) fn finish(mut self, dir: &Path, bases: &[Offset]) -> Result<()> {
        self.swaps.sort_unstable();
        for (base, swap) in self.swaps {
            let path = swap.with_extension("");
            let is_begun = self.first_cleaned.is_none_or(|cleaned| base < cleaned);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("log") if is_begun => {
                    let end = end_of(&swap)?;
                    tracing::info!(path = %swap.display(), end, "completing a compaction");
                    for &original in bases.iter().filter(|&&it| (base..end).contains(&it)) {
                        for extension in ["log", "index", "timeindex", "txnindex"] {
                            let is_swapped = extension == "log" && original == base;
                            if !is_swapped {
                                fs::remove_if_exists(&dir.join(file_name(original, extension)))?;
                            }
                        }
                    }
                    fs::rename(&swap, &path)?;
                }
                // Only aborted transactions cannot be told from the segment alone.
                Some("txnindex") if is_begun => fs::rename(&swap, &path)?,
                // Recovery makes indexes anew.
                _ => fs::remove_if_exists(&swap)?,
            }
        }
        fs::sync_dir(dir)
    }
}

/// The offset after the last batch of a segment's file.
fn end_of(path: &Path) -> Result<Offset> {
    let file = std::fs::File::open(path).map_err(Error::io("open", path))?;
    let size = file.metadata().map_err(Error::io("look at", path))?.len();
    let mut scanner = Scanner::sequential(&file, 0, size);
    let mut end = 0;
    while let Some(batch) =
        scanner.next().map_err(|error| Error::malformed(path, error.to_string()))?
    {
        end = batch.header.next_offset();
    }
    Ok(end)
}
