//! The metadata directory: who owns it, and that only one process does.
//!
//! A directory is formatted on the first start with the node's id and a fresh directory id; the cluster is written
//! into it once the node has formed or joined one (design D4). A lock file is held for the life of the process.
//!
//! Invariant: a directory that was not written by this node, that lost a part, or that a newer version wrote is refused
//! with a sentence that says what to do; nothing in it is changed then.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::reserve;
use crate::codec::{self, Envelope};
use crate::protocol::native::FormedCluster;
use crate::types::{ClusterId, DirectoryId, NodeId, random};

const IDENTITY: Envelope =
    Envelope { what: "identity file", magic: *b"KTid", version: 1, size_max: 1 << 20 };

const IDENTITY_FILE: &str = "identity";
pub(super) const LOCK_FILE: &str = "lock";
/// Where the log store lives.
pub(super) const LOG_DIRECTORY: &str = "log";
/// Where snapshots live.
pub(super) const SNAPSHOT_DIRECTORY: &str = "snapshots";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path} is in use by another process; stop that process, or give this node its own directory"
    )]
    Locked { path: PathBuf },
    #[error(
        "{path} belongs to node {found}, but this node was started as node {wanted}; start it with node id {found}, or \
         give it its own directory"
    )]
    OtherNode { path: PathBuf, found: NodeId, wanted: NodeId },
    #[error(
        "{path} holds {found:?} but no identity file, so it was not made by Kontiki or lost a part; give this node an \
         empty directory, or restore the missing file"
    )]
    Foreign { path: PathBuf, found: String },
    #[error(
        "{path} has lost {missing}: this node is a member of cluster {cluster_id} and must not take part with an \
         emptied log, because what it once acknowledged could be lost; restore the directory, or empty it wholly: then \
         the node joins with a new disk, and takes its old place when it has caught up"
    )]
    Emptied { path: PathBuf, missing: &'static str, cluster_id: ClusterId },
    #[error(
        "no space left for {path}: {free} bytes are free, {SPACE_MIN} are needed; free some and start again, nothing is lost"
    )]
    Full { path: PathBuf, free: u64 },
    #[error("{path}: {source}")]
    Identity { path: PathBuf, source: codec::Error },
    /// The log store or a snapshot cannot be read.
    #[error(
        "{path} is damaged ({reason}); this node must not take part with a part of its log: restore the metadata \
         directory as it was, or empty it wholly: then the node joins with a new disk"
    )]
    Damaged { path: PathBuf, reason: String },
}

impl Error {
    pub(super) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), reason: reason.into() }
    }
}

/// What the identity file holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) node_id: NodeId,
    directory_id: DirectoryId,
    pub(super) cluster: Option<FormedCluster>,
}

/// An opened and locked metadata directory.
#[derive(Debug)]
pub struct MetaDirectory {
    path: PathBuf,
    stored: Mutex<Stored>,
    /// Unlocked by the operating system when the process ends, however it ends.
    _lock: File,
}

/// Free bytes without which a node does not start: room for a snapshot and some segments of the log store.
const SPACE_MIN: u64 = 8 << 20;

impl MetaDirectory {
    /// Opens the directory at `path`, making and formatting it if nothing is there.
    pub fn open_or_format(path: impl Into<PathBuf>, node_id: NodeId) -> Result<Self, Error> {
        let path = path.into();
        let io_error = |source| Error::Io { path: path.clone(), source };
        fs::create_dir_all(&path).map_err(io_error)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK_FILE))
            .map_err(io_error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { path }),
            Err(TryLockError::Error(source)) => return Err(Error::Io { path, source }),
        }
        // Before anything is opened: the log store writes when it is opened, and may be damaged where it cannot.
        let mut free = reserve::free(&path).map_err(io_error)?;
        if free < SPACE_MIN && reserve::release(&path).map_err(io_error)? {
            free = reserve::free(&path).map_err(io_error)?;
        }
        if free < SPACE_MIN {
            return Err(Error::Full { path, free });
        }
        let stored = match read_identity(&path)? {
            Some(stored) => stored,
            None => format(&path, node_id)?,
        };
        if stored.node_id != node_id {
            return Err(Error::OtherNode { path, found: stored.node_id, wanted: node_id });
        }
        if let Some(cluster) = &stored.cluster
            && !path.join(LOG_DIRECTORY).join("db").exists()
        {
            let cluster_id = cluster.cluster_id;
            return Err(Error::Emptied { path, missing: "its log", cluster_id });
        }
        Ok(Self { path, stored: Mutex::new(stored), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the log store and the snapshots live.
    pub(super) fn parts(&self) -> (PathBuf, PathBuf) {
        (self.path.join(LOG_DIRECTORY), self.path.join(SNAPSHOT_DIRECTORY))
    }

    pub fn node_id(&self) -> NodeId {
        self.stored.lock().node_id
    }

    pub fn directory_id(&self) -> DirectoryId {
        self.stored.lock().directory_id
    }

    /// `None` until the node has formed or joined a cluster.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.stored.lock().cluster.as_ref().map(|cluster| cluster.cluster_id)
    }

    /// The cluster as it formed.
    pub fn cluster(&self) -> Option<FormedCluster> {
        self.stored.lock().cluster.clone()
    }

    /// Writes down the cluster that this node belongs to from now on. Durable when it returns.
    ///
    /// # Panics
    /// When the node belongs to another cluster already.
    pub fn set_cluster(&self, cluster: &FormedCluster) -> Result<(), Error> {
        let mut stored = self.stored.lock();
        if let Some(present) = &stored.cluster {
            assert_eq!(present.cluster_id, cluster.cluster_id, "a node never changes its cluster");
            return Ok(());
        }
        let next = Stored { cluster: Some(cluster.clone()), ..stored.clone() };
        write(&self.path, &next)?;
        *stored = next;
        Ok(())
    }
}

/// `None` when there is no identity file.
pub(super) fn read_identity(path: &Path) -> Result<Option<Stored>, Error> {
    let path = path.join(IDENTITY_FILE);
    match fs::read(&path) {
        Ok(bytes) => match IDENTITY.open(&bytes) {
            Ok(stored) => Ok(Some(stored)),
            Err(source) => Err(Error::Identity { path, source }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io { path, source }),
    }
}

fn format(path: &Path, node_id: NodeId) -> Result<Stored, Error> {
    let io_error = |source| Error::Io { path: path.to_owned(), source };
    for entry in fs::read_dir(path).map_err(io_error)? {
        let name = entry.map_err(io_error)?.file_name();
        // A crash during an earlier formatting leaves the temporary file behind.
        if name != LOCK_FILE && name != temporary(IDENTITY_FILE).as_str() {
            let found = name.to_string_lossy().into_owned();
            return Err(Error::Foreign { path: path.to_owned(), found });
        }
    }
    let stored = Stored { node_id, directory_id: random::uuid(), cluster: None };
    write(path, &stored)?;
    Ok(stored)
}

fn write(path: &Path, stored: &Stored) -> Result<(), Error> {
    write_durably(path, IDENTITY_FILE, &IDENTITY.seal(stored))
        .map_err(|source| Error::Io { path: path.join(IDENTITY_FILE), source })
}

fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

/// Replaces a file as a whole: after a crash there is the old one or the new one.
pub(super) fn write_durably(directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = directory.join(temporary(name));
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Uuid;

    fn cluster() -> FormedCluster {
        FormedCluster { cluster_id: Uuid([7; 16]), voters: Vec::new() }
    }

    #[test]
    fn a_formatted_directory_keeps_its_identity_and_its_cluster() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("meta");
        let formatted = MetaDirectory::open_or_format(&path, NodeId(1)).expect("formats");
        let directory_id = formatted.directory_id();
        assert_eq!(formatted.cluster_id(), None);
        formatted.set_cluster(&cluster()).expect("writes");
        drop(formatted);
        fs::create_dir_all(path.join(LOG_DIRECTORY).join("db")).expect("stands for a log");
        let opened = MetaDirectory::open_or_format(&path, NodeId(1)).expect("opens");
        assert_eq!(opened.directory_id(), directory_id);
        assert_eq!(opened.cluster(), Some(cluster()));
    }

    #[test]
    fn a_second_owner_another_node_and_strange_files_are_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        let first = MetaDirectory::open_or_format(path, NodeId(1)).expect("formats");
        let second = MetaDirectory::open_or_format(path, NodeId(1));
        assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
        drop(first);
        let other = MetaDirectory::open_or_format(path, NodeId(2));
        assert!(matches!(other, Err(Error::OtherNode { found: NodeId(1), .. })), "{other:?}");
        fs::rename(path.join(IDENTITY_FILE), path.join("notes.txt")).expect("renames");
        let foreign = MetaDirectory::open_or_format(path, NodeId(1)).expect_err("foreign");
        assert!(foreign.to_string().contains("notes.txt"), "{foreign}");
    }

    #[test]
    fn a_full_disk_is_told_apart_from_damage() {
        let full = Error::Full { path: "/data/meta".into(), free: 12 };
        let sentence = full.to_string();
        assert!(sentence.contains("no space left for /data/meta: 12 bytes are free"), "{sentence}");
        assert!(sentence.contains("nothing is lost"), "{sentence}");
    }

    #[test]
    fn an_emptied_member_and_a_newer_version_are_refused() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        let formatted = MetaDirectory::open_or_format(path, NodeId(1)).expect("formats");
        formatted.set_cluster(&cluster()).expect("writes");
        drop(formatted);
        let emptied = MetaDirectory::open_or_format(path, NodeId(1));
        assert!(matches!(emptied, Err(Error::Emptied { .. })), "{emptied:?}");

        let mut bytes = fs::read(path.join(IDENTITY_FILE)).expect("reads");
        bytes[4..6].copy_from_slice(&9_u16.to_be_bytes());
        fs::write(path.join(IDENTITY_FILE), bytes).expect("writes");
        let newer = MetaDirectory::open_or_format(path, NodeId(1)).expect_err("newer");
        assert!(newer.to_string().contains("upgrade this node"), "{newer}");
    }
}
