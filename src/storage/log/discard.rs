//! Getting rid of segments that were taken out of the list: by retention, by a raised log start, by compaction.
//!
//! Their files are renamed at once and unlinked by the housekeeper after `file.delete.delay.ms`. A reader that has one
//! open may finish; one that comes too late to open it reads again from what is there then. What a crash
//! leaves behind goes when the log is opened.

use std::sync::Arc;
use std::time::Duration;

use super::super::fs;
use super::super::segment::Segment;
use super::super::{ReadError, Result};
use super::PartitionLog;
use crate::types::time::now;

impl PartitionLog {
    /// Renames the files of `segments`, which the list holds no longer, oldest first. The caller has the writer lock, and
    /// has seen to it that a crash between two of the renames loses nothing that counts.
    pub(in super::super) fn discard(&self, segments: &[Arc<Segment>]) -> Result<()> {
        if segments.is_empty() {
            return Ok(());
        }
        self.flush.lock().on_discarded(segments);
        let mut discarded = Vec::with_capacity(4 * segments.len());
        for path in segments.iter().flat_map(|segment| segment.paths()) {
            let target = path.with_added_extension("deleted");
            match fs::rename(&path, &target) {
                Ok(()) => discarded.push(target),
                // Not every segment has every file.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(self.dir.fail(error)),
            }
        }
        let delay_ms = self.config.load().file_delete_delay_ms.max(0).cast_unsigned();
        let due = now() + Duration::from_millis(delay_ms);
        self.dir.chores.add(|chores| chores.doom(due, discarded));
        Ok(())
    }

    /// Reads from the segments of the moment. Files may go, or be cut off, meanwhile: what fails is tried once more while
    /// nobody changes the log.
    pub(super) fn with_segments<T>(
        &self,
        read: impl Fn(&[Arc<Segment>]) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        match read(&self.segments.load()) {
            Err(ReadError::Storage(_) | ReadError::Corrupt(_)) if self.is_gone() => {
                Err(ReadError::Closed)
            }
            Err(ReadError::Storage(_) | ReadError::Corrupt(_)) => {
                let _nobody_writes = self.writer.lock();
                read(&self.segments.load())
            }
            done => done,
        }
    }

    /// Whether the list holds the segment.
    pub(super) fn holds(&self, segment: &Arc<Segment>) -> bool {
        self.segments.load().iter().any(|held| Arc::ptr_eq(held, segment))
    }
}
