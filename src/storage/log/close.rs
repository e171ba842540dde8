//! The end of a log: clean shutdown, or deletion.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use super::super::Result;
use super::{EPOCHS, PARTITION_METADATA, PartitionLog};

impl PartitionLog {
    /// Refuses appends from now on and completes the files. Gives what has to be synced then; nothing when nothing was
    /// written since the start.
    pub(in super::super) fn close(&self) -> Result<Option<Closing>> {
        let mut writer = self.writer.lock();
        if std::mem::replace(&mut writer.closed, true) {
            return Ok(None);
        }
        self.write_epochs_if_changed()?;
        let segments = self.segments.load_full();
        let Some(active) = segments.last().filter(|_| writer.changed) else {
            return Ok(None);
        };
        active.seal()?;
        let end_offset = self.end_offset();
        self.write_snapshot(&mut writer, end_offset)?;
        let names = [EPOCHS, PARTITION_METADATA].map(|name| self.path.join(name));
        let mut paths = vec![self.snapshot_path(end_offset)];
        paths.extend(names);
        paths.extend(active.paths());
        // The housekeeper may not have come to what was rolled last.
        for segment in self.flush.lock().unsealed() {
            paths.extend(segment.paths());
            paths.push(self.snapshot_path(segment.next_offset()));
        }
        Ok(Some(Closing { paths, dir: self.path.clone() }))
    }

    /// What [`PartitionLog::close`] gave is on disk.
    pub(in super::super) fn on_close_synced(&self) {
        self.on_closed();
    }

    /// Refuses appends from now on; the files are about to go.
    pub(in super::super) fn abandon(&self) {
        self.writer.lock().closed = true;
        self.gone.store(true, Ordering::Release);
    }

    /// Whether its files may be missing for a good reason.
    pub(in super::super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

/// Files of one log that were completed.
pub(in super::super) struct Closing {
    pub(in super::super) paths: Vec<PathBuf>,
    pub(in super::super) dir: PathBuf,
}
