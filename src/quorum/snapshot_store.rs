//! The last snapshot, as one checksummed file that is replaced as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::directory::{self, write_durably};
use super::raft::{LogId, SnapshotMeta};
use crate::codec::{self, Envelope};
use crate::metadata::MetadataImage;

/// The image inside has a limit of its own.
const SNAPSHOT: Envelope =
    Envelope { what: "snapshot file", magic: *b"KTsf", version: 1, size_max: 2 << 30 };

const FILE: &str = "metadata.snapshot";

#[derive(Serialize, Deserialize)]
struct Stored {
    meta: SnapshotMeta,
    image: Vec<u8>,
}

/// Clones share the file.
#[derive(Debug, Clone)]
pub struct SnapshotStore {
    directory: Arc<PathBuf>,
    /// Of the file, so that an older snapshot never replaces a newer one, however slowly it was built.
    last: Arc<Mutex<Option<LogId>>>,
}

impl SnapshotStore {
    /// Opens the directory, making it if needed, and checks the snapshot that is there.
    pub fn open(path: &Path) -> Result<Self, directory::Error> {
        let io_error = |source| directory::Error::Io { path: path.to_owned(), source };
        fs::create_dir_all(path).map_err(io_error)?;
        let store = Self { directory: Arc::new(path.to_owned()), last: Arc::default() };
        let present = store.load().map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => {
                directory::Error::damaged(&path.join(FILE), error.to_string())
            }
            _ => io_error(error),
        })?;
        *store.last.lock() = present.and_then(|(meta, _)| meta.last_log_id);
        Ok(store)
    }

    /// The last entry that the snapshot holds.
    pub fn last(&self) -> Option<LogId> {
        *self.last.lock()
    }

    /// The snapshot, if there is one.
    pub fn load(&self) -> io::Result<Option<(SnapshotMeta, MetadataImage)>> {
        let bytes = match fs::read(self.directory.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let invalid = |error: codec::Error| io::Error::new(io::ErrorKind::InvalidData, error);
        let stored: Stored = SNAPSHOT.open(&bytes).map_err(invalid)?;
        let image = MetadataImage::from_snapshot(&stored.image).map_err(invalid)?;
        Ok(Some((stored.meta, image)))
    }

    /// Makes this the snapshot, unless there is one as new already. Durable when it returns. Blocks.
    pub fn save(&self, meta: &SnapshotMeta, image: &MetadataImage) -> io::Result<()> {
        let mut last = self.last.lock();
        if last.is_some() && *last >= meta.last_log_id {
            return Ok(());
        }
        let stored = Stored { meta: meta.clone(), image: image.to_snapshot() };
        write_durably(&self.directory, FILE, &SNAPSHOT.seal(&stored))?;
        *last = meta.last_log_id;
        Ok(())
    }
}
