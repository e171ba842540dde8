//! Reads a segment from front to back, many whole batches at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::super::segment::Segment;
use super::super::{Error, ReadError};
use crate::record::{BatchHeader, Refusal};

/// Bytes that are read at once, unless a batch is larger.
pub(super) const CHUNK_SIZE: usize = 1 << 20;

pub(super) struct Chunks<'s> {
    segment: &'s Segment,
    file: Arc<File>,
    position: u64,
    end: u64,
    buffer: Vec<u8>,
}

impl<'s> Chunks<'s> {
    /// From `position`, where a batch begins, to what is the end of the segment now.
    pub(super) fn new(segment: &'s Segment, position: u64) -> Result<Self, ReadError> {
        Ok(Self {
            file: segment.file()?,
            position,
            end: segment.size(),
            segment,
            buffer: Vec::new(),
        })
    }

    /// Where the next batch begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Whole batches. `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        self.fill(CHUNK_SIZE.min(left))?;
        let mut whole = whole_batches(&self.buffer)?;
        if whole == 0 {
            let size = BatchHeader::parse(&self.buffer)?.size;
            if size > left {
                return Err(Refusal::Corrupt("cut short").into());
            }
            self.fill(size)?;
            whole = size;
        }
        self.position += whole as u64;
        Ok(Some(&self.buffer[..whole]))
    }

    fn fill(&mut self, size: usize) -> Result<(), ReadError> {
        self.buffer.resize(size, 0);
        let read = self.file.read_exact_at(&mut self.buffer, self.position);
        Ok(read.map_err(Error::io("read", self.segment.path()))?)
    }
}

/// Bytes of the batches at the front that are whole.
fn whole_batches(bytes: &[u8]) -> Result<usize, Refusal> {
    let mut whole = 0;
    while bytes.len() - whole >= crate::record::HEADER_SIZE {
        let size = BatchHeader::parse(&bytes[whole..])?.size;
        if size > bytes.len() - whole {
            break;
        }
        whole += size;
    }
    Ok(whole)
}
