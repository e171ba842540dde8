//! What happens before the first request: locks, leftovers, and recovery of all partitions side by side.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::Deserialize;

use super::checkpoint::{parse_topic_id, read_offsets};
use super::fs::{self, read_if_exists, remove_if_exists, sync_dir};
use super::log::{FoundLog, PARTITION_METADATA, open_log};
use super::log_dir::{
    CLEAN_ENDS, CLEAN_SHUTDOWN, HIGH_WATERMARKS, LOCK, LOG_STARTS, LogDir, RECOVERY_POINTS,
};
use super::{Error, PartitionLog, RecoveryProgress, Result};
use crate::metadata::config::TopicConfig;
use crate::types::time::now;
use crate::types::{BrokerEpoch, TopicPartition};

/// A log directory that is ours while this lives.
pub(super) struct OpenedDir {
    pub(super) dir: Arc<LogDir>,
    pub(super) previous_broker_epoch: BrokerEpoch,
    /// None of an offline directory.
    _lock: Option<File>,
}

/// As [`open_dir`]; a directory that cannot be read or written is offline from the start.
pub(super) fn open_or_fail(dir: Arc<LogDir>) -> Result<(OpenedDir, Vec<FoundLog>)> {
    match open_dir(dir.clone()) {
        Err(error @ Error::Io { .. }) if !error.is_resource_limit() => {
            dir.fail(error);
            let previous_broker_epoch = BrokerEpoch::NONE;
            Ok((OpenedDir { dir, previous_broker_epoch, _lock: None }, Vec::new()))
        }
        other => other,
    }
}

#[derive(Deserialize)]
struct CleanShutdown {
    version: i32,
    #[serde(rename = "brokerEpoch")]
    broker_epoch: i64,
}

/// Every partition that is written has a file open, and 1024, a common limit, is soon reached.
pub(super) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.maximum.is_none() {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}

/// Takes a directory into possession and lists its partitions. The clean-shutdown mark is gone afterwards, so that a
/// crash from here on is one.
fn open_dir(dir: Arc<LogDir>) -> Result<(OpenedDir, Vec<FoundLog>)> {
    let path = &dir.path;
    fs::create_dir_all(path)?;
    let lock_path = path.join(LOCK);
    let lock = File::create(&lock_path).map_err(Error::io("create", &lock_path))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| Error::Locked { dir: path.clone() })?;

    let mark_path = path.join(CLEAN_SHUTDOWN);
    let mark = read_if_exists(&mark_path)?
        .and_then(|content| serde_json::from_slice::<CleanShutdown>(&content).ok())
        .filter(|mark| mark.version == 0);
    remove_if_exists(&mark_path)?;
    sync_dir(path)?;

    let found = list_partitions(&dir, mark.is_some())?;
    let previous_broker_epoch =
        mark.map_or(BrokerEpoch::NONE, |mark| BrokerEpoch(mark.broker_epoch));
    Ok((OpenedDir { dir, previous_broker_epoch, _lock: Some(lock) }, found))
}

fn list_partitions(dir: &LogDir, is_trusted: bool) -> Result<Vec<FoundLog>> {
    let recovery_points = read_offsets(&dir.path.join(RECOVERY_POINTS))?;
    let high_watermarks = read_offsets(&dir.path.join(HIGH_WATERMARKS))?;
    let log_starts = read_offsets(&dir.path.join(LOG_STARTS))?;
    let clean_ends = read_offsets(&dir.path.join(CLEAN_ENDS))?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir.path).map_err(Error::io("list", &dir.path))? {
        let path = entry.map_err(Error::io("list", &dir.path))?.path();
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !path.is_dir() {
            continue;
        }
        if file_name.ends_with("-delete") || file_name.ends_with("-stray") {
            dir.chores.work.lock().doom(now(), [path]);
            continue;
        }
        let Some(name) = TopicPartition::parse(file_name) else {
            tracing::warn!(path = %path.display(), "not a partition; it is left alone");
            continue;
        };
        let metadata = read_if_exists(&path.join(PARTITION_METADATA))?;
        let Some(topic_id) = metadata.as_deref().and_then(parse_topic_id) else {
            // Made just before a crash: nothing in it was acknowledged as durable.
            let aside = path.with_file_name(format!("{file_name}.{:032x}-stray", 0));
            tracing::warn!(path = %path.display(), "no topic id; the directory is set aside");
            fs::rename(&path, &aside)?;
            continue;
        };
        let offset = |map: &super::checkpoint::OffsetMap| map.get(&name).copied().unwrap_or(0);
        found.push(FoundLog {
            topic_id,
            recovery_point: offset(&recovery_points),
            high_watermark: offset(&high_watermarks),
            log_start: offset(&log_starts),
            clean_end: offset(&clean_ends),
            is_trusted,
            name,
        });
    }
    let held: BTreeSet<&TopicPartition> = found.iter().map(|log| &log.name).collect();
    let checkpoints = [&recovery_points, &high_watermarks, &log_starts, &clean_ends];
    let named = checkpoints.into_iter().flat_map(|offsets| offsets.keys());
    let outdated = named.filter(|name| !held.contains(name)).cloned();
    dir.outdated.lock().extend(outdated);
    Ok(found)
}

/// Opens all logs, on several threads.
pub(super) fn recover(
    found: Vec<(Arc<LogDir>, FoundLog)>,
    threads: usize,
    progress: &RecoveryProgress,
) -> Result<Vec<Arc<PartitionLog>>> {
    let mut names = BTreeSet::new();
    for (dir, log) in &found {
        if !names.insert(log.name.clone()) {
            let path = super::log_dir::partition_dir(&dir.path, &log.name);
            return Err(Error::malformed(&path, "the partition is in two log directories"));
        }
    }
    let config = Arc::new(TopicConfig::default());
    let count = found.len();
    let started = now();
    progress.begin(count);
    let jobs = Mutex::new(found.into_iter());
    let results: Mutex<Vec<Result<Arc<PartitionLog>>>> = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                loop {
                    let job = jobs.lock().next();
                    let Some((dir, log)) = job else {
                        return;
                    };
                    if dir.offline().is_some() {
                        continue;
                    }
                    match open_log(&dir, log, Arc::clone(&config)) {
                        Err(error @ Error::Io { .. }) if !error.is_resource_limit() => {
                            dir.fail(error);
                        }
                        result => results.lock().push(result),
                    }
                    progress.advance();
                }
            });
        }
    });
    if count > 0 {
        tracing::info!(partitions = count, took = ?started.elapsed(), "logs are open");
    }
    let mut logs = results.into_inner().into_iter().collect::<Result<Vec<_>>>()?;
    logs.sort_unstable_by(|a, b| a.name().cmp(b.name()));
    for log in &logs {
        log.dir().logs.lock().insert(log.name().clone(), Arc::clone(log));
    }
    Ok(logs)
}
