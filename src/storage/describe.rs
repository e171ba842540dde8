//! What lies in which log directory, for people and tools.

use std::path::PathBuf;

use super::log_dir::LogDir;
use super::room::Space;
use crate::types::TopicPartition;

#[derive(Debug, Clone)]
pub struct DescribedDir {
    pub path: PathBuf,
    pub is_offline: bool,
    /// `None` where the disk does not tell.
    pub space: Option<Space>,
    pub logs: Vec<DescribedLog>,
}

#[derive(Debug, Clone)]
pub struct DescribedLog {
    pub name: TopicPartition,
    /// Bytes of its segments.
    pub size: u64,
}

impl DescribedDir {
    pub(super) fn of(dir: &LogDir) -> Self {
        let logs = dir.logs.lock().clone();
        let logs = logs.into_iter().map(|(name, log)| DescribedLog { name, size: log.size() });
        Self {
            path: dir.path.clone(),
            is_offline: dir.offline().is_some(),
            space: Space::of(&dir.path),
            logs: logs.collect(),
        }
    }
}
