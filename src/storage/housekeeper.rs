//! The housekeeper of a log directory: everything that nobody waits for.
//!
//! Syncs complete segments and moves recovery points, writes checkpoints at most every few seconds, removes what was
//! deleted a while ago, closes files that nobody used, carries out retention. It sleeps without a timeout when none of that is due.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::log_dir::{Chores, LogDir};
use super::{AppendError, OnDurable, PartitionLog, Result, fs};
use crate::types::time::{now, wall_ms};

/// Between two writes of the same checkpoint.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);
/// The same, of log starts: deleting records waits for it.
const LOG_STARTS_INTERVAL: Duration = Duration::from_millis(50);
/// Files that were not used for one to two of these are closed.
const COOLING_INTERVAL: Duration = Duration::from_secs(10);
/// Directories are removed in small groups, because removing thousands at once stalls a file system.
const REMOVALS_AT_ONCE: usize = 20;
const REMOVAL_PAUSE: Duration = Duration::from_millis(200);

/// When which chore is due.
struct Timetable {
    checkpoints: Instant,
    log_starts: Instant,
    cooling: Instant,
    removals: Instant,
}

/// Runs until the queue says `stopping`.
pub(super) fn run(dir: &LogDir, on_durable: &OnDurable) {
    let start = now();
    let mut due =
        Timetable { checkpoints: start, log_starts: start, cooling: start, removals: start };
    loop {
        let sealed = {
            let mut chores = dir.chores.work.lock();
            loop {
                if chores.stopping {
                    return;
                }
                if !chores.sealed.is_empty() {
                    break;
                }
                match next_deadline(&chores, &due) {
                    None => dir.chores.wake.wait(&mut chores),
                    Some(deadline) if deadline > now() => {
                        dir.chores.wake.wait_until(&mut chores, deadline);
                    }
                    Some(_) => break,
                }
            }
            std::mem::take(&mut chores.sealed)
        };
        retain(dir);
        flush_due(dir);
        let written = sync_sealed(dir, sealed)
            .and_then(|()| write_checkpoints(dir, &mut due))
            .and_then(|()| write_log_starts(dir, &mut due, on_durable));
        if let Err(error) = written {
            dir.fail_unless_full(error);
        }
        cool(dir, &mut due);
        remove_doomed(dir, &mut due);
    }
}

fn next_deadline(chores: &Chores, due: &Timetable) -> Option<Instant> {
    let checkpoints = chores.recovery_points || chores.high_watermarks || chores.clean_ends;
    [
        checkpoints.then_some(due.checkpoints),
        chores.log_starts.then_some(due.log_starts),
        chores.retention.next(),
        chores.flushes.next(),
        (!chores.warm.is_empty()).then_some(due.cooling),
        chores.next_removal().map(|deadline| deadline.max(due.removals)),
    ]
    .into_iter()
    .flatten()
    .min()
}

fn sync_sealed(dir: &LogDir, logs: Vec<Arc<PartitionLog>>) -> Result<()> {
    for log in logs {
        dir.check_online()?;
        match log.sync_sealed() {
            Ok(false) => {}
            Ok(true) => dir.chores.work.lock().recovery_points = true,
            // It was cut off or deleted meanwhile; its recovery point stays where it is.
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn write_checkpoints(dir: &LogDir, due: &mut Timetable) -> Result<()> {
    if due.checkpoints > now() {
        return Ok(());
    }
    let (recovery_points, high_watermarks, clean_ends) = {
        let mut chores = dir.chores.work.lock();
        (
            std::mem::take(&mut chores.recovery_points),
            std::mem::take(&mut chores.high_watermarks),
            std::mem::take(&mut chores.clean_ends),
        )
    };
    if dir.offline().is_some() || !(recovery_points || high_watermarks || clean_ends) {
        return Ok(());
    }
    due.checkpoints = now() + CHECKPOINT_INTERVAL;
    let recovery_points = recovery_points || dir.has_recovery_points_to_write();
    let mut written = if recovery_points { dir.write_recovery_points() } else { Ok(()) };
    if high_watermarks {
        written = written.and_then(|()| dir.write_high_watermarks());
    }
    if clean_ends {
        written = written.and_then(|()| dir.write_clean_ends());
    }
    if written.is_err() {
        // Where the disk is only full, they are written when there is room.
        let mut chores = dir.chores.work.lock();
        chores.recovery_points |= recovery_points;
        chores.high_watermarks |= high_watermarks;
        chores.clean_ends |= clean_ends;
    }
    written
}

/// Writes log starts, and deletes what is below them.
fn write_log_starts(dir: &LogDir, due: &mut Timetable, on_durable: &OnDurable) -> Result<()> {
    if due.log_starts > now() {
        return Ok(());
    }
    let (is_wanted, moved) = {
        let mut chores = dir.chores.work.lock();
        (std::mem::take(&mut chores.log_starts), std::mem::take(&mut chores.moved_starts))
    };
    if !is_wanted || dir.offline().is_some() {
        return Ok(());
    }
    due.log_starts = now() + LOG_STARTS_INTERVAL;
    if let Err(error) = dir.write_log_starts() {
        let mut chores = dir.chores.work.lock();
        chores.log_starts = true;
        chores.moved_starts.extend(moved);
        return Err(error);
    }
    for log in moved {
        on_durable(&log);
        match log.drop_below_start() {
            // It was deleted meanwhile, or the directory has failed.
            Ok(()) | Err(AppendError::Closed) => {}
            Err(AppendError::Storage(error)) if log.is_gone() && error.is_not_found() => {}
            Err(AppendError::Storage(error)) => return Err(error),
            Err(error) => tracing::warn!(log = %log.name(), %error, "cannot drop segments"),
        }
    }
    Ok(())
}

/// Has the flusher sync what `flush.ms` says.
fn flush_due(dir: &LogDir) {
    loop {
        let Some(name) = dir.chores.work.lock().flushes.take_due(now()) else { return };
        if let Some(log) = dir.logs.lock().get(&name) {
            log.flush_soon();
        }
    }
}

/// Looks at the logs of which something may have expired.
fn retain(dir: &LogDir) {
    while dir.offline().is_none() {
        let Some(name) = dir.chores.work.lock().retention.take_due(now()) else { return };
        let Some(log) = dir.logs.lock().get(&name).cloned() else { continue };
        match log.retain(wall_ms()) {
            Ok(next) => {
                let next = next.and_then(|wait| dir.end_of_interval(now().checked_add(wait)?));
                if let Some(next) = next {
                    dir.chores.work.lock().retention.bring_forward(&name, next);
                }
            }
            // Deleted, or about to be: there is nothing to do for retention.
            Err(AppendError::Closed) => {}
            Err(AppendError::Storage(error)) if log.is_gone() && error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(log = %name, %error, "retention is put off");
                if let Some(next) = dir.end_of_interval(now()) {
                    dir.chores.work.lock().retention.bring_forward(&name, next);
                }
            }
        }
    }
}

fn cool(dir: &LogDir, due: &mut Timetable) {
    if due.cooling > now() {
        return;
    }
    due.cooling = now() + COOLING_INTERVAL;
    let warm = std::mem::take(&mut dir.chores.work.lock().warm);
    let still_warm: Vec<_> = warm.into_iter().filter(|log| !log.cool()).collect();
    dir.chores.work.lock().warm.extend(still_warm);
}

fn remove_doomed(dir: &LogDir, due: &mut Timetable) {
    if due.removals > now() {
        return;
    }
    due.removals = now() + REMOVAL_PAUSE;
    let doomed: Vec<_> = {
        let mut chores = dir.chores.work.lock();
        std::iter::from_fn(|| chores.take_doomed(now())).take(REMOVALS_AT_ONCE).collect()
    };
    for path in doomed {
        if let Err(error) = remove(&path) {
            // It is tried again at the next start; nothing depends on it.
            tracing::warn!(%error, "cannot remove what was deleted");
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    if path.is_dir() { fs::remove_tree_if_exists(path) } else { fs::remove_if_exists(path) }
}
