//! The flusher of a log directory: makes everything that is dirty durable, in rounds.
//!
//! While one round is under way the next one gathers, so a slow disk makes larger groups. A few files are synced one
//! by one; more of them, or many new names, by one sync of the file system, which commits its journal once.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::log::Dirty;
use super::log_dir::LogDir;
use super::{OnDurable, PartitionLog, Result, fs};
use crate::types::time::now;

/// With more files and directories than this, one sync of the file system is cheaper.
const SINGLE_SYNCS_MAX: usize = 8;
const GATHERING_PAUSE: Duration = Duration::from_millis(15);
const GATHERING_MAX: Duration = Duration::from_millis(150);
/// Until the next attempt when a file cannot be opened.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// Runs until the queue says `stopping`.
pub(super) fn run(dir: &LogDir, on_durable: &OnDurable) {
    let mut gathering = Gathering::default();
    loop {
        let mut dirty = {
            let mut queue = dir.flush.work.lock();
            while queue.dirty.is_empty() && !queue.stopping {
                dir.flush.wake.wait(&mut queue);
            }
            if queue.stopping {
                return;
            }
            std::mem::take(&mut queue.dirty)
        };
        if dir.offline().is_some() {
            continue;
        }
        gathering.add_new(dir, &mut dirty);
        flush(dir, &dirty, on_durable);
    }
}

/// When one partition after the other gets its first records, as after the creation of a large topic, waits for more
/// of them: each round commits the file system's journal, and while that goes on, nobody makes a directory.
#[derive(Default)]
struct Gathering {
    last_new: Option<Instant>,
}

impl Gathering {
    fn add_new(&mut self, dir: &LogDir, dirty: &mut Vec<Arc<PartitionLog>>) {
        let mut added = count_new(dirty);
        if added == 0 {
            return;
        }
        let started = now();
        let is_more = self.last_new.is_some_and(|last| last.elapsed() < 2 * GATHERING_MAX);
        while added > 0 && (is_more || added > 1) && started.elapsed() < GATHERING_MAX {
            thread::sleep(GATHERING_PAUSE);
            let more = std::mem::take(&mut dir.flush.work.lock().dirty);
            added = count_new(&more);
            dirty.extend(more);
        }
        self.last_new = Some(now());
    }
}

fn count_new(logs: &[Arc<PartitionLog>]) -> usize {
    logs.iter().filter(|log| log.is_new_on_disk()).count()
}

fn flush(dir: &LogDir, logs: &[Arc<PartitionLog>], on_durable: &OnDurable) {
    let mut begun: Vec<Dirty> = Vec::with_capacity(logs.len());
    for log in logs {
        match log.begin_flush() {
            Ok(dirty) => begun.push(dirty),
            Err(_) if log.is_gone() => {}
            // A segment that is being cut off has no file any more; the next attempt sees the one before it.
            Err(error) if error.is_resource_limit() || error.is_not_found() => {
                tracing::warn!(%error, "flush is put off");
                log.flush_soon();
                let mut queue = dir.flush.work.lock();
                dir.flush.wake.wait_for(&mut queue, RETRY_WAIT);
            }
            Err(error) => {
                dir.fail(error);
                return;
            }
        }
    }
    let mut unsynced = Unsynced::default();
    for dirty in &mut begun {
        unsynced.files.append(&mut dirty.files);
        unsynced.paths.append(&mut dirty.paths);
        unsynced.dirs.append(&mut dirty.dirs);
    }
    unsynced.dirs.sort_unstable();
    unsynced.dirs.dedup();
    let synced = {
        let _under_way = dir.syncs.begin();
        unsynced.sync(dir)
    };
    if let Err(error) = synced {
        dir.fail(error);
        return;
    }
    if dir.offline().is_some() {
        // Something failed meanwhile: what the disk says since then is not believed.
        return;
    }
    for dirty in &begun {
        if dirty.log.end_flush(dirty) {
            on_durable(&dirty.log);
        }
    }
}

/// What a round has to make durable.
#[derive(Default)]
pub(super) struct Unsynced {
    pub(super) files: Vec<Arc<File>>,
    /// Files that are not open.
    pub(super) paths: Vec<PathBuf>,
    pub(super) dirs: Vec<PathBuf>,
}

impl Unsynced {
    /// One by one or all together, whichever is cheaper.
    pub(super) fn sync(&self, dir: &LogDir) -> Result<()> {
        let count = self.files.len() + self.paths.len() + self.dirs.len();
        if count > SINGLE_SYNCS_MAX && fs::sync_file_system(&dir.path)? {
            return Ok(());
        }
        for file in &self.files {
            fs::sync(file, &dir.path)?;
        }
        for path in &self.paths {
            fs::sync_if_exists(path)?;
        }
        for dir in &self.dirs {
            match fs::sync_dir(dir) {
                // The partition was deleted meanwhile.
                Err(error) if error.is_not_found() => {}
                other => other?,
            }
        }
        Ok(())
    }
}
