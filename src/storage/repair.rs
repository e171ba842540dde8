//! Mending a log directory offline, for `kontiki fsck`: what [`inspect`](super::inspect) found and a node would have to
//! make anew, or refuse to start over.
//!
//! Invariant: no repair takes away a record that can be read. What only another replica has is left as it is. Nothing is
//! touched while a node has the directory, which whoever repairs has [locked](lock).

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use super::checkpoint::format_epochs;
use super::epochs::EpochCache;
use super::fs::{self, Durable};
use super::inspect::{Fault, Finding, LogFile, PartitionFiles};
use super::log::EPOCHS;
use super::log_dir::LOCK;
use super::segment::base_offset;
use super::segment::{RecoveryRules, Segment, file_name};
use super::{Error, Result};
use crate::metadata::config::TopicConfig;
use crate::types::time::wall_ms;
use crate::types::{LeaderEpoch, Offset};

/// Something that can be done.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Repair {
    /// Makes the indexes of a segment anew.
    Reindex(Offset),
    /// Cuts off what is no batch at the end of the last segment, and makes its indexes anew.
    CutTail(Offset),
    /// Makes `leader-epoch-checkpoint` anew.
    RewriteEpochs,
    /// Of a file that the log can do without.
    Remove(PathBuf),
    /// Of what [`leftovers`] lists.
    RemoveLeftovers,
}

/// What can be done about a finding. Nothing when records are at stake.
pub fn repair_of(finding: &Finding) -> Option<Repair> {
    let extension = finding.path.extension().and_then(|extension| extension.to_str());
    let base = base_offset(&finding.path);
    match finding.fault {
        Fault::Tail => base.map(Repair::CutTail),
        Fault::Index if extension == Some("txnindex") => None,
        Fault::Index => base.map(Repair::Reindex),
        Fault::Epochs => Some(Repair::RewriteEpochs),
        Fault::Producers => Some(Repair::Remove(finding.path.clone())),
        Fault::Records | Fault::Identity => None,
    }
}

/// What waits to be deleted, and what interrupted work left and nobody finishes. A swap of compacted segments is finished
/// by the next start, which then needs all of it.
pub fn leftovers(files: &PartitionFiles) -> &[PathBuf] {
    let is_swap = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "swap");
    if files.leftovers.iter().any(is_swap) { &[] } else { &files.leftovers }
}

/// Repairs a partition directory. Durable when it returns.
pub fn repair(dir: &Path, repair: &Repair) -> Result<()> {
    match repair {
        Repair::Reindex(base) => reindex(dir, *base, false)?,
        Repair::CutTail(base) => reindex(dir, *base, true)?,
        Repair::RewriteEpochs => rewrite_epochs(dir)?,
        Repair::Remove(path) => fs::remove_if_exists(path)?,
        Repair::RemoveLeftovers => {
            for path in leftovers(&PartitionFiles::list(dir)?) {
                fs::remove_if_exists(path)?;
            }
        }
    }
    fs::sync_dir(dir)
}

fn reindex(dir: &Path, base: Offset, may_cut: bool) -> Result<()> {
    let segment = Segment::open_unindexed(dir, base, wall_ms())?;
    let rules = RecoveryRules {
        index_interval: TopicConfig::default().index_interval_bytes,
        flushed: 0,
        end_max: Offset::MAX,
        epoch_min: LeaderEpoch::NONE,
        is_active: false,
    };
    match segment.recover(&rules, |_| {})? {
        Some(_) if may_cut => segment.cut_tail()?,
        Some(refusal) => return Err(Error::malformed(segment.path(), refusal.to_string())),
        None => {}
    }
    for extension in ["log", "index", "timeindex"] {
        fs::sync_if_exists(&dir.join(file_name(base, extension)))?;
    }
    Ok(())
}

fn rewrite_epochs(dir: &Path) -> Result<()> {
    let seen = super::inspect::verify(dir)?;
    let mut epochs = EpochCache::default();
    for base in seen.files.segments {
        LogFile::open(&dir.join(file_name(base, "log")))?.walk(|_, batch| {
            epochs.assign(batch.header.leader_epoch, batch.header.base_offset);
            Ok::<(), Error>(())
        })?;
    }
    epochs.truncate_from_start(seen.start_offset);
    fs::replace(&dir.join(EPOCHS), format_epochs(epochs.entries()).as_bytes(), Durable::Now)
}

/// Keeps a node from starting on a log directory for as long as the file lives. An error when one runs on it. `None`
/// when no node ever did.
pub fn lock(dir: &Path) -> Result<Option<File>> {
    let path = dir.join(LOCK);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", &path)(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: dir.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(Error::io("lock", &path)(error)),
    }
}
