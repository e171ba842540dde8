//! What a file is, by its name; what a partition directory holds.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::segment::base_offset;
use super::super::{Error, Result};
use crate::types::{Offset, TopicPartition};

/// What a file of a log directory or of a partition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Log,
    OffsetIndex,
    TimeIndex,
    TransactionIndex,
    ProducerSnapshot,
    LeaderEpochs,
    /// One offset per partition: recovery points, high watermarks, log starts, cleaned ends.
    Offsets,
    TopicId,
    /// `meta.properties`, the mark of a clean shutdown.
    Text,
}

/// What interrupted work leaves, and what waits to be deleted.
const LEFTOVERS: [&str; 4] = ["deleted", "cleaned", "swap", "tmp"];

impl FileKind {
    /// `None` for what storage does not know. A leftover is of the kind that it was before.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = LEFTOVERS
            .iter()
            .find_map(|leftover| name.strip_suffix(leftover)?.strip_suffix('.'))
            .unwrap_or(name);
        Some(match name.rsplit_once('.') {
            Some((_, "log")) => Self::Log,
            Some((_, "index")) => Self::OffsetIndex,
            Some((_, "timeindex")) => Self::TimeIndex,
            Some((_, "txnindex")) => Self::TransactionIndex,
            Some((_, "snapshot")) => Self::ProducerSnapshot,
            _ if name == "leader-epoch-checkpoint" => Self::LeaderEpochs,
            _ if name.ends_with("-offset-checkpoint") => Self::Offsets,
            _ if name == "partition.metadata" => Self::TopicId,
            _ if name == "meta.properties" || name == ".kafka_cleanshutdown" => Self::Text,
            _ => return None,
        })
    }
}

/// The files of one partition, each list ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartitionFiles {
    /// Base offsets.
    pub segments: Vec<Offset>,
    pub snapshots: Vec<Offset>,
    /// Indexes of segments that are not there, and what interrupted work left.
    pub leftovers: Vec<PathBuf>,
}

impl PartitionFiles {
    pub fn list(dir: &Path) -> Result<Self> {
        let mut files = Self::default();
        let mut indexes = Vec::new();
        for entry in fs::read_dir(dir).map_err(Error::io("list", dir))? {
            let path = entry.map_err(Error::io("list", dir))?.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            match (extension, base_offset(&path)) {
                (Some("log"), Some(base)) => files.segments.push(base),
                (Some("snapshot"), Some(offset)) => files.snapshots.push(offset),
                (Some("index" | "timeindex" | "txnindex"), Some(base)) => {
                    indexes.push((base, path));
                }
                (Some(extension), _) if LEFTOVERS.contains(&extension) => {
                    files.leftovers.push(path);
                }
                _ => {}
            }
        }
        files.segments.sort_unstable();
        files.snapshots.sort_unstable();
        let is_orphan = |base: &Offset| files.segments.binary_search(base).is_err();
        files
            .leftovers
            .extend(indexes.into_iter().filter(|(base, _)| is_orphan(base)).map(|i| i.1));
        files.leftovers.sort_unstable();
        Ok(files)
    }
}

/// Whether `dir` has the name of a partition.
pub fn is_partition(dir: &Path) -> bool {
    dir.file_name().and_then(|name| name.to_str()).and_then(TopicPartition::parse).is_some()
}
