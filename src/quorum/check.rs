//! The metadata directory of a stopped node, for `kontiki fsck`: whether the node could start with it.
//!
//! Invariant: nothing in the directory changes. The log store writes when it is opened, so a copy is opened.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;

use super::directory::{Error, LOCK_FILE, LOG_DIRECTORY, SNAPSHOT_DIRECTORY, read_identity};
use super::log_store::LogStore;
use super::snapshot_store::SnapshotStore;
use crate::types::{ClusterId, NodeId};

/// What a metadata directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    pub node_id: NodeId,
    /// `None`: the node has not formed or joined a cluster.
    pub cluster_id: Option<ClusterId>,
    /// Last entry that the snapshot holds.
    pub snapshot_index: Option<u64>,
    /// Last entry of the log.
    pub last_index: Option<u64>,
}

/// Keeps a node from starting on the directory for as long as the file lives; an error when one runs on it.
pub fn lock(path: &Path) -> Result<Option<File>, Error> {
    let io_error = |source| Error::Io { path: path.to_owned(), source };
    let file = match File::options().write(true).open(path.join(LOCK_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(error)) => Err(io_error(error)),
    }
}

/// Opens what the directory holds as a node does at start, in a copy at `scratch`, an empty directory, and reads every
/// entry of the log.
pub fn check(path: &Path, scratch: &Path) -> Result<Checked, Error> {
    let damaged = |part: &str, error: &dyn std::fmt::Display| {
        Error::damaged(&path.join(part), error.to_string())
    };
    let Some(identity) = read_identity(path)? else {
        return Err(damaged("identity", &"the identity file is missing"));
    };
    let cluster_id = identity.cluster.map(|cluster| cluster.cluster_id);
    let (log, snapshots) = (path.join(LOG_DIRECTORY), path.join(SNAPSHOT_DIRECTORY));
    let mut checked =
        Checked { node_id: identity.node_id, cluster_id, snapshot_index: None, last_index: None };
    if !log.join("db").exists() {
        if let Some(cluster_id) = cluster_id {
            return Err(Error::Emptied { path: path.to_owned(), missing: "its log", cluster_id });
        }
        return Ok(checked);
    }
    let copies = (scratch.join(LOG_DIRECTORY), scratch.join(SNAPSHOT_DIRECTORY));
    for (from, to) in [(&log, &copies.0), (&snapshots, &copies.1)] {
        copy(from, to).map_err(|source| Error::Io { path: from.clone(), source })?;
    }
    // What is wrong with the copy is wrong with the original, and that is the one to name.
    let original = |error: Error| match error {
        Error::Damaged { reason, path: found } => {
            let part =
                found.strip_prefix(scratch).map_or_else(|_| found.clone(), |part| path.join(part));
            Error::damaged(&part, reason)
        }
        error => error,
    };
    let store = LogStore::open(&copies.0).map_err(original)?;
    let last = store.check().map_err(|error| damaged(LOG_DIRECTORY, &error))?;
    let snapshots = SnapshotStore::open(&copies.1).map_err(original)?;
    if store.purged() > snapshots.last() {
        return Err(damaged(SNAPSHOT_DIRECTORY, &"the log begins after the last snapshot"));
    }
    checked.last_index = last;
    checked.snapshot_index = snapshots.last().map(|last| last.index);
    Ok(checked)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::MetaDirectory;

    #[test]
    fn a_directory_in_use_is_left_alone_and_a_stopped_one_is_read() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("meta");
        let opened = MetaDirectory::open_or_format(&path, NodeId(4)).expect("formats");
        assert!(matches!(lock(&path), Err(Error::Locked { .. })));
        let store = LogStore::open(&path.join(LOG_DIRECTORY)).expect("a new log");
        drop((store, opened));
        let _locked = lock(&path).expect("nobody has it").expect("there is a lock file");
        let checked = check(&path, scratch.path()).expect("whole");
        let nothing = Checked {
            node_id: NodeId(4),
            cluster_id: None,
            snapshot_index: None,
            last_index: None,
        };
        assert_eq!(checked, nothing);

        let identity = path.join("identity");
        let mut bytes = fs::read(&identity).expect("reads");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(&identity, bytes).expect("writes");
        let scratch = tempfile::tempdir().expect("a temporary directory");
        assert!(matches!(check(&path, scratch.path()), Err(Error::Identity { .. })));
        fs::remove_file(&identity).expect("removes");
        assert!(matches!(check(&path, scratch.path()), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_damaged_snapshot_is_named_where_it_is() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("meta");
        drop(MetaDirectory::open_or_format(&path, NodeId(4)).expect("formats"));
        drop(LogStore::open(&path.join(LOG_DIRECTORY)).expect("a new log"));
        let snapshot = path.join(SNAPSHOT_DIRECTORY).join("metadata.snapshot");
        fs::create_dir_all(path.join(SNAPSHOT_DIRECTORY)).expect("makes");
        fs::write(&snapshot, "no snapshot").expect("writes");
        let error = check(&path, scratch.path()).expect_err("damaged").to_string();
        assert!(error.contains(&snapshot.display().to_string()), "{error}");
    }
}
