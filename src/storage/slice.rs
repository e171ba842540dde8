//! What a read gives: a range of a file, so that the bytes can go from the page cache to a socket.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{Error, ReadError};
use crate::types::Offset;

/// Whole batches in one file. Empty: no file, size 0.
#[derive(Debug, Clone)]
pub struct Slice {
    pub file: Option<Arc<File>>,
    pub position: u64,
    pub size: usize,
    /// The offset after the last batch; where to read on.
    pub next_offset: Offset,
}

impl Slice {
    pub fn empty(next_offset: Offset) -> Self {
        Self { file: None, position: 0, size: 0, next_offset }
    }

    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Appends the bytes to `out`.
    pub fn read_into(&self, out: &mut Vec<u8>) -> Result<(), ReadError> {
        let before = out.len();
        out.resize(before + self.size, 0);
        self.read_exact(&mut out[before..]).inspect_err(|_| out.truncate(before))
    }

    /// Fills `out`, which is `size` bytes long.
    pub fn read_exact(&self, out: &mut [u8]) -> Result<(), ReadError> {
        debug_assert_eq!(out.len(), self.size);
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.read_exact_at(out, self.position)
            .map_err(|error| Error::io("read", "a segment".as_ref())(error).into())
    }
}
