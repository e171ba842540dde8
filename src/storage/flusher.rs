//! The flusher of a log directory: makes everything that is dirty durable, in rounds.
//!
//! While one round is under way the next one gathers, so a slow disk makes larger groups. A few files are synced one
//! by one; more of them, or many new names, by one sync of the file system, which commits its journal once.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::checkpoint::sync_dir;
use super::config::OnOffline;
use super::log::Dirty;
use super::log_dir::LogDir;
use super::{Error, OnDurable, PartitionLog, Result};

/// With more files and directories than this, one sync of the file system is cheaper.
const SINGLE_SYNCS_MAX: usize = 8;
/// Until the next attempt when a file cannot be opened.
const RETRY_WAIT: Duration = Duration::from_millis(50);

/// Runs until the queue says `stopping`.
pub(super) fn run(dir: &LogDir, on_durable: &OnDurable, on_offline: &OnOffline) {
    let mut is_reported = false;
    loop {
        let dirty = {
            let mut queue = dir.flush.work.lock();
            while queue.dirty.is_empty()
                && !queue.stopping
                && (is_reported || dir.offline().is_none())
            {
                dir.flush.wake.wait(&mut queue);
            }
            if queue.stopping {
                return;
            }
            std::mem::take(&mut queue.dirty)
        };
        if let Some(error) = dir.offline() {
            if !is_reported {
                is_reported = true;
                on_offline(&dir.path, error);
            }
            continue;
        }
        flush(dir, &dirty, on_durable);
    }
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
    let files = begun.iter().flat_map(|dirty| dirty.files.iter().cloned()).collect::<Vec<_>>();
    let mut dirs: Vec<PathBuf> =
        begun.iter().flat_map(|dirty| dirty.dirs.iter().cloned()).collect();
    dirs.sort_unstable();
    dirs.dedup();
    if let Err(error) = sync_all(dir, &files, &dirs) {
        dir.fail(error);
        return;
    }
    for dirty in &begun {
        if dirty.log.end_flush(dirty) {
            on_durable(&dirty.log);
        }
    }
}

/// Makes files and names durable, whichever way is cheaper.
pub(super) fn sync_all(dir: &LogDir, files: &[Arc<File>], dirs: &[PathBuf]) -> Result<()> {
    if files.len() + dirs.len() > SINGLE_SYNCS_MAX && sync_file_system(dir)? {
        return Ok(());
    }
    for file in files {
        file.sync_data().map_err(Error::io("sync a file in", &dir.path))?;
    }
    for dir in dirs {
        match sync_dir(dir) {
            // The partition was deleted meanwhile.
            Err(error) if error.is_not_found() => {}
            other => other?,
        }
    }
    Ok(())
}

/// False where the operating system cannot tell whether it worked.
#[cfg(target_os = "linux")]
pub(super) fn sync_file_system(dir: &LogDir) -> Result<bool> {
    let handle = File::open(&dir.path).map_err(Error::io("open", &dir.path))?;
    rustix::fs::syncfs(&handle)
        .map_err(|error| Error::io("sync the file system of", &dir.path)(error.into()))?;
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn sync_file_system(_dir: &LogDir) -> Result<bool> {
    Ok(false)
}
