//! The batches of one `.log` file, one after the other.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::super::scan::{ScanError, Scanner};
use super::super::{Error, Result};
use crate::record::{Batch, Refusal};

/// A `.log` file, as long as it was when it was opened.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    size: u64,
}

impl LogFile {
    pub fn open(path: &Path) -> Result<Self> {
        let open = || {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            Ok(Self { path: path.to_path_buf(), file, size })
        };
        open().map_err(Error::io("open", path))
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives every batch and its position to `on_batch`, until the end or what cannot be a batch. The position where it
    /// ended, and why if that is not the end of the file. Checksums are for `on_batch` to check. Stops at its errors.
    pub fn walk<E: From<Error>>(
        &self,
        mut on_batch: impl FnMut(u64, Batch<'_>) -> Result<(), E>,
    ) -> Result<(u64, Option<Refusal>), E> {
        let mut scanner = Scanner::sequential(&self.file, 0, self.size);
        loop {
            let position = scanner.position();
            let next = scanner.next().and_then(|found| match found {
                None => Ok(None),
                Some(found) => Ok(Some(scanner.batch(&found)?)),
            });
            match next {
                Ok(None) => return Ok((position, None)),
                Ok(Some(batch)) => on_batch(position, batch)?,
                Err(ScanError::Refused(refusal)) => return Ok((position, Some(refusal))),
                Err(ScanError::Io(error)) => {
                    return Err(Error::io("read", &self.path)(error).into());
                }
            }
        }
    }
}
