//! Walks over the batches of a segment file, header by header.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Error, ReadError};
use crate::record::{Batch, BatchHeader, HEADER_SIZE, Refusal};
use crate::types::Offset;

/// A batch and where it begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanned {
    pub(super) position: u64,
    pub(super) header: BatchHeader,
}

impl Scanned {
    pub(super) fn end(&self) -> u64 {
        self.position + self.header.size as u64
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ScanError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl ScanError {
    pub(super) fn into_read_error(self, path: &Path) -> ReadError {
        match self {
            Self::Io(error) => Error::io("read", path)(error).into(),
            Self::Refused(refusal) => refusal.into(),
        }
    }
}

/// Reads through a window, so that many small batches cost one read.
#[derive(Debug)]
pub(super) struct Scanner<'f> {
    file: &'f File,
    /// Of the next batch.
    position: u64,
    /// No batch may begin below. Base offsets are not part of any checksum.
    offset_min: Offset,
    end: u64,
    window: Vec<u8>,
    window_start: u64,
    window_size_max: usize,
}

/// Fits the distance between two index entries.
const SMALL_WINDOW: usize = 4096;
const LARGE_WINDOW: usize = 256 * 1024;

impl<'f> Scanner<'f> {
    /// For headers between `position`, where a batch begins, and `end`.
    pub(super) fn new(file: &'f File, position: u64, end: u64) -> Self {
        Self {
            file,
            position,
            offset_min: 0,
            end,
            window: Vec::new(),
            window_start: 0,
            window_size_max: SMALL_WINDOW,
        }
    }

    /// For reading everything between them.
    pub(super) fn sequential(file: &'f File, position: u64, end: u64) -> Self {
        Self { window_size_max: LARGE_WINDOW, ..Self::new(file, position, end) }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` at the end. A batch that goes beyond the end, or back in offsets, is an error.
    pub(super) fn next(&mut self) -> Result<Option<Scanned>, ScanError> {
        let position = self.position;
        if position >= self.end {
            return Ok(None);
        }
        let header = BatchHeader::parse(self.view(position, HEADER_SIZE)?)?;
        let scanned = Scanned { position, header };
        if scanned.end() > self.end {
            return Err(Refusal::CutShort.into());
        }
        if header.base_offset < self.offset_min {
            return Err(Refusal::Corrupt("offsets do not ascend").into());
        }
        self.offset_min = header.next_offset();
        self.position = scanned.end();
        Ok(Some(scanned))
    }

    /// Reads all of a batch to compare its checksum.
    pub(super) fn check_crc(&mut self, batch: &Scanned) -> Result<(), ScanError> {
        let mut crc = 0;
        let mut at = batch.position + Self::CHECKSUMMED_FROM;
        while at < batch.end() {
            let wanted = usize::try_from(batch.end() - at).unwrap_or(usize::MAX);
            let part = self.view(at, wanted.min(LARGE_WINDOW))?;
            crc = crc32c::crc32c_append(crc, part);
            at += part.len() as u64;
        }
        let stored = batch.header.crc;
        if crc == stored { Ok(()) } else { Err(Refusal::Checksum { stored, computed: crc }.into()) }
    }

    /// All of a batch.
    pub(super) fn batch(&mut self, batch: &Scanned) -> io::Result<Batch<'_>> {
        let bytes = self.view(batch.position, batch.header.size)?;
        Ok(Batch { header: batch.header, bytes })
    }

    const CHECKSUMMED_FROM: u64 = 21;

    /// `size` bytes at `at`, which is less than the end; fewer before the end only.
    fn view(&mut self, at: u64, size: usize) -> io::Result<&[u8]> {
        let size = size.min(usize::try_from(self.end - at).unwrap_or(usize::MAX));
        let inside = at
            .checked_sub(self.window_start)
            .and_then(|offset| usize::try_from(offset).ok())
            .filter(|offset| offset + size <= self.window.len());
        let offset = if let Some(offset) = inside {
            offset
        } else {
            let left = usize::try_from(self.end - at).unwrap_or(usize::MAX);
            self.window.resize(self.window_size_max.max(size).min(left), 0);
            self.window_start = at;
            if let Err(error) = self.file.read_exact_at(&mut self.window, at) {
                self.window.clear();
                return Err(error);
            }
            0
        };
        Ok(&self.window[offset..offset + size])
    }
}
