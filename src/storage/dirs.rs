//! The log directories of a broker: what is found at start, what is made, what goes, and the end.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use super::compaction::{self, Compaction, CompactionFigures};
use super::describe::DescribedDir;
use super::flusher::Unsynced;
use super::fs::{self, Durable};
use super::log::FoundLog;
use super::log_dir::{CLEAN_SHUTDOWN, Damages, LogDir, OfflineLog};
use super::start::{self, OpenedDir};
use super::{Error, PartitionLog, Result, StorageConfig, flusher, housekeeper, placement};
use crate::metadata::config::TopicConfig;
use crate::types::time::now;
use crate::types::{BrokerEpoch, TopicId, TopicPartition, random};

/// Called on the flusher thread after `durable_end_offset` moved, and on the housekeeper's after `durable_start_offset`
/// did. Must be quick and must not wait for the disk.
pub type OnDurable = Arc<dyn Fn(&PartitionLog) + Send + Sync>;

/// What was found at start. Logs whose topic the metadata does not know are given to [`LogDirs::set_aside`].
pub type RecoveredLogs = Vec<Arc<PartitionLog>>;

/// A handle; dropping the last one stops the threads, as a crash would.
#[derive(Clone)]
pub struct LogDirs {
    inner: Arc<Inner>,
}

struct Inner {
    dirs: Vec<OpenedDir>,
    compaction: Arc<Compaction>,
    previous_broker_epoch: BrokerEpoch,
    has_unread: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for LogDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dirs = self.inner.dirs.iter().map(|opened| &opened.dir.path);
        f.debug_list().entries(dirs).finish()
    }
}

impl LogDirs {
    /// Opens the directories, makes missing ones, and recovers every partition in them.
    pub fn open(config: StorageConfig, on_durable: OnDurable) -> Result<(Self, RecoveredLogs)> {
        start::raise_descriptor_limit();
        let compaction = Arc::new(Compaction::new(config.compaction.clone()));
        let mut dirs = Vec::with_capacity(config.dirs.len());
        let mut found: Vec<(Arc<LogDir>, FoundLog)> = Vec::new();
        for path in &config.dirs {
            let dir = Arc::new(LogDir::new(path.clone(), &config, &compaction));
            let (dir, logs) = start::open_or_fail(dir)?;
            found.extend(logs.into_iter().map(|log| (Arc::clone(&dir.dir), log)));
            dirs.push(dir);
        }
        let logs = start::recover(found, config.recovery_threads, &config.progress)?;
        let mut epochs = dirs
            .iter()
            .filter(|opened| opened.dir.offline().is_none())
            .map(|opened| opened.previous_broker_epoch);
        let Some(first_epoch) = epochs.next() else {
            let failed = dirs.iter().find_map(|opened| opened.dir.offline().cloned());
            return Err(failed.unwrap_or_else(no_directory));
        };
        let all_agree = epochs.all(|epoch| epoch == first_epoch);
        let previous_broker_epoch = if all_agree { first_epoch } else { BrokerEpoch::NONE };

        let mut threads = Vec::new();
        for OpenedDir { dir, .. } in &dirs {
            let (flushed, kept) = (Arc::clone(dir), Arc::clone(dir));
            let (on_durable, on_start_durable) = (Arc::clone(&on_durable), Arc::clone(&on_durable));
            threads.push(spawn("log-flusher", move || flusher::run(&flushed, &on_durable))?);
            threads.push(spawn("log-keeper", move || housekeeper::run(&kept, &on_start_durable))?);
        }
        if compaction.is_enabled() {
            let compaction = Arc::clone(&compaction);
            threads.push(spawn("log-cleaner", move || compaction::run(&compaction))?);
        }
        let has_unread = dirs.iter().any(|opened| opened.dir.offline().is_some());
        let threads = Mutex::new(threads);
        let inner = Inner { dirs, compaction, previous_broker_epoch, has_unread, threads };
        for log in &logs {
            // What a killed process left in the page cache is not on disk yet.
            if log.durable_end_offset() < log.end_offset() {
                log.flush_soon();
            }
        }
        Ok((Self { inner: Arc::new(inner) }, logs))
    }

    /// A new, empty log. Cheap: files are made at the first write. The existing one, if there is.
    pub fn create(
        &self,
        name: &TopicPartition,
        topic_id: TopicId,
        config: Arc<TopicConfig>,
    ) -> Result<Arc<PartitionLog>> {
        let mut online = Vec::with_capacity(self.inner.dirs.len());
        let mut offline = no_directory();
        for OpenedDir { dir, .. } in &self.inner.dirs {
            if let Some(log) = dir.logs.lock().get(name) {
                if log.topic_id() == topic_id {
                    return Ok(Arc::clone(log));
                }
                let reason = format!("belongs to topic id {}", log.topic_id());
                return Err(Error::malformed(log.path(), reason));
            }
            match dir.check_online() {
                Ok(()) => online.push(dir),
                Err(error) => offline = error,
            }
        }
        let dir = placement::choose(&online).ok_or(offline)?;
        let log = PartitionLog::new(dir, name.clone(), topic_id, config);
        dir.logs.lock().insert(name.clone(), Arc::clone(&log));
        Ok(log)
    }

    /// Frees the name at once; the files go after `file.delete.delay.ms`.
    pub fn delete(&self, log: &Arc<PartitionLog>) {
        self.put_away(log, "delete");
    }

    /// For recovered logs of topics that no longer exist: as `delete`, but named `-stray`.
    pub fn set_aside(&self, log: &Arc<PartitionLog>) {
        tracing::warn!(log = %log.name(), topic_id = %log.topic_id(), "log of an unknown topic is set aside");
        self.put_away(log, "stray");
    }

    fn put_away(&self, log: &Arc<PartitionLog>, suffix: &str) {
        let dir = log.dir();
        log.abandon();
        let mut logs = dir.logs.lock();
        let is_known = logs.get(log.name()).is_some_and(|known| Arc::ptr_eq(known, log));
        if !is_known {
            return;
        }
        if log.is_on_disk() || log.path().exists() {
            let target = dir.path.join(put_away_name(log.name(), suffix));
            if let Err(error) = fs::rename(log.path(), &target) {
                dir.fail(error);
            }
            let delay_ms = log.config().file_delete_delay_ms.max(0).cast_unsigned();
            let due = now() + Duration::from_millis(delay_ms);
            dir.chores.add(|chores| {
                chores.doom(due, [target]);
                chores.recovery_points = true;
                chores.high_watermarks = true;
                chores.log_starts = true;
                chores.clean_ends = true;
            });
        }
        logs.remove(log.name());
        drop(logs);
        dir.outdated.lock().insert(log.name().clone());
        let mut chores = dir.chores.work.lock();
        chores.retention.remove(log.name());
        chores.flushes.remove(log.name());
    }

    /// Flushes everything, writes the checkpoints and the clean-shutdown marks, stops the threads. Appends fail
    /// afterwards.
    pub fn shut_down(&self, broker_epoch: BrokerEpoch) {
        for OpenedDir { dir, .. } in &self.inner.dirs {
            if let Err(error) = shut_down_dir(dir, broker_epoch) {
                dir.fail(error);
            }
        }
        self.inner.stop_threads();
    }

    /// The epoch given to the last clean shutdown; NONE after an unclean one.
    pub fn previous_broker_epoch(&self) -> BrokerEpoch {
        self.inner.previous_broker_epoch
    }

    /// Tells what compaction has done and has to do, and keeps no directory open.
    pub fn watch_compaction(&self) -> impl Fn() -> CompactionFigures + Send + Sync + use<> {
        let compaction = Arc::clone(&self.inner.compaction);
        move || compaction.figures()
    }

    /// Logs that must not serve. Not those of directories that could not be read at start: nobody knows which they are.
    pub fn offline_logs(&self) -> Vec<OfflineLog> {
        let mut found = Vec::new();
        self.inner.dirs.iter().for_each(|opened| opened.dir.offline_logs(&mut found));
        found
    }

    /// Outlives this handle.
    pub fn damages(&self) -> Damages {
        Damages(self.inner.dirs.iter().map(|opened| opened.dir.damages.clone()).collect())
    }

    /// Whether some directory was not read to its end at start, so that it may hold logs that nobody knows of.
    pub fn has_unread(&self) -> bool {
        self.inner.has_unread
    }

    /// The directories that can be written.
    pub fn online(&self) -> Vec<PathBuf> {
        let online = self.inner.dirs.iter().filter(|opened| opened.dir.offline().is_none());
        online.map(|opened| opened.dir.path.clone()).collect()
    }

    /// How long the disk of some directory has not done what it was asked to do.
    pub fn stall(&self) -> Duration {
        let online = self.inner.dirs.iter().filter(|opened| opened.dir.offline().is_none());
        let stalls = online.map(|OpenedDir { dir, .. }| dir.writes.stall().max(dir.syncs.stall()));
        stalls.max().unwrap_or_default()
    }

    /// What lies where.
    pub fn describe(&self) -> Vec<DescribedDir> {
        self.inner.dirs.iter().map(|opened| DescribedDir::of(&opened.dir)).collect()
    }

    /// In how many directories clients cannot write, because there is too little room.
    pub fn full_count(&self) -> usize {
        self.inner.dirs.iter().filter(|opened| opened.dir.room.is_full()).count()
    }

    pub fn is_all_offline(&self) -> bool {
        self.inner.dirs.iter().all(|opened| opened.dir.offline().is_some())
    }

    /// Directories that failed, and why.
    pub fn offline(&self) -> Vec<(PathBuf, Error)> {
        let error = |dir: &LogDir| Some((dir.path.clone(), dir.offline()?.clone()));
        self.inner.dirs.iter().filter_map(|opened| error(&opened.dir)).collect()
    }
}

fn no_directory() -> Error {
    Error::malformed(Path::new("log.dirs"), "no log directory")
}

/// `<topic>-<partition>.<unique>-<suffix>`, the topic cut so that it is a valid file name.
fn put_away_name(name: &TopicPartition, suffix: &str) -> String {
    const FILE_NAME_MAX: usize = 255;
    let unique: String = random::uuid().0.iter().map(|byte| format!("{byte:02x}")).collect();
    let end = format!("-{}.{unique}-{suffix}", name.partition);
    let topic: String = name.topic.chars().take(FILE_NAME_MAX - end.len()).collect();
    topic + &end
}

fn shut_down_dir(dir: &LogDir, broker_epoch: BrokerEpoch) -> Result<()> {
    let logs: Vec<Arc<PartitionLog>> = dir.logs.lock().values().cloned().collect();
    let mut closing = Vec::new();
    for log in &logs {
        closing.extend(log.close()?);
    }
    dir.check_online()?;
    let mut unsynced = Unsynced::default();
    for closing in closing {
        unsynced.paths.extend(closing.paths);
        unsynced.dirs.push(closing.dir);
    }
    if !unsynced.dirs.is_empty() {
        unsynced.dirs.push(dir.path.clone());
        unsynced.sync(dir)?;
    }
    logs.iter().for_each(|log| log.on_close_synced());
    dir.write_recovery_points()?;
    dir.write_high_watermarks()?;
    dir.write_log_starts()?;
    dir.write_clean_ends()?;
    let mark = format!("{{\"version\":0,\"brokerEpoch\":{broker_epoch}}}");
    fs::replace(&dir.path.join(CLEAN_SHUTDOWN), mark.as_bytes(), Durable::Now)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(Error::io("start the thread", name.as_ref()))
}

impl Inner {
    fn stop_threads(&self) {
        self.compaction.news.add(|news| news.stopping = true);
        for OpenedDir { dir, .. } in &self.dirs {
            dir.flush.add(|queue| queue.stopping = true);
            dir.chores.add(|chores| chores.stopping = true);
        }
        for thread in self.threads.lock().drain(..) {
            // A callback may hold the last handle; a thread does not wait for itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_threads();
        *self.compaction.news.work.lock() = Default::default();
        for OpenedDir { dir, .. } in &self.dirs {
            // Logs know their directory: the circle is broken here.
            dir.logs.lock().clear();
            *dir.flush.work.lock() = Default::default();
            *dir.chores.work.lock() = Default::default();
        }
    }
}
