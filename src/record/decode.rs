//! Reads compressed bodies as a stream, so that looking at a batch takes a window of memory whatever it decompresses to.
//!
//! Snappy is read in both forms that are on the wire: xerial's framing, and one raw block (kafka-protocol.md 3.3). Its
//! blocks can only be decompressed whole; what a block claims to become is compared with its size first.

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use zstd::zstd_safe::{DCtx, ResetDirective};

use super::encode::{XERIAL_HEADER, XERIAL_MAGIC_SIZE};
use super::{Compression, Refusal};

/// Decompressed bytes that are looked at at once.
const WINDOW_SIZE: usize = 64 << 10;

const UNREADABLE: Refusal = Refusal::Invalid("cannot be decompressed");

thread_local! {
    /// Setting one up costs as much as decompressing a small batch.
    static ZSTD: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Lets `read` see the decompressed body. What is not read is not decompressed.
pub(super) fn with_body<T>(
    codec: u8,
    bytes: &[u8],
    read: impl FnOnce(&mut dyn BufRead) -> T,
) -> Result<T, Refusal> {
    let mut plain = bytes;
    Ok(match Compression::from_codec(codec).ok_or(Refusal::Codec(codec))? {
        Compression::None => read(&mut plain),
        Compression::Gzip => read(&mut window(GzDecoder::new(bytes))),
        Compression::Snappy => read(&mut SnappyReader::new(bytes)),
        Compression::Lz4 => {
            if !has_independent_blocks(bytes) {
                return Err(UNREADABLE);
            }
            read(&mut window(lz4::Decoder::new(bytes).map_err(|_| UNREADABLE)?))
        }
        Compression::Zstd => ZSTD.with_borrow_mut(|context| {
            context.reset(ResetDirective::SessionOnly).map_err(|_| UNREADABLE)?;
            Ok(read(&mut window(zstd::Decoder::with_context(bytes, context))))
        })?,
    })
}

/// All of it, unless it is more than `size_max` bytes.
pub(super) fn decompress(
    codec: u8,
    bytes: &[u8],
    size_max: usize,
) -> Result<Cow<'_, [u8]>, Refusal> {
    if codec == Compression::None as u8 {
        return Ok(bytes.into());
    }
    let mut out = Vec::new();
    let result = with_body(codec, bytes, |body| {
        body.take(size_max as u64 + 1).read_to_end(&mut out).map_err(|_| UNREADABLE)
    });
    result??;
    if out.len() > size_max { Err(Refusal::Bomb { limit: size_max }) } else { Ok(out.into()) }
}

fn window<R: Read>(decoder: R) -> BufReader<R> {
    BufReader::with_capacity(WINDOW_SIZE, decoder)
}

/// Java reads no other lz4 frames.
fn has_independent_blocks(frame: &[u8]) -> bool {
    const VERSION_AND_INDEPENDENCE: u8 = 0b1110_0000;
    frame.get(4).is_some_and(|flags| flags & VERSION_AND_INDEPENDENCE == 0b0110_0000)
}

struct SnappyReader<'a> {
    rest: &'a [u8],
    is_framed: bool,
    /// Of which the first `taken` bytes have been read.
    block: Vec<u8>,
    taken: usize,
}

impl<'a> SnappyReader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let framed = bytes.get(XERIAL_HEADER.len()..);
        let framed = framed.filter(|_| bytes.starts_with(&XERIAL_HEADER[..XERIAL_MAGIC_SIZE]));
        let rest = framed.unwrap_or(bytes);
        Self { rest, is_framed: framed.is_some(), block: Vec::new(), taken: 0 }
    }

    fn next_block(&mut self) -> Option<()> {
        /// Three compressed bytes become 64 at most.
        const RATIO_MAX: usize = 22;
        let mut block = std::mem::take(&mut self.rest);
        if self.is_framed {
            let (size, after) = block.split_first_chunk()?;
            let size = usize::try_from(u32::from_be_bytes(*size)).ok()?;
            (block, self.rest) = after.split_at_checked(size)?;
        }
        let size = snap::raw::decompress_len(block).ok()?;
        if size > block.len().saturating_mul(RATIO_MAX) {
            return None;
        }
        self.taken = 0;
        self.block.resize(size, 0);
        snap::raw::Decoder::new().decompress(block, &mut self.block).ok().map(|_| ())
    }
}

impl BufRead for SnappyReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.taken == self.block.len() && !self.rest.is_empty() {
            self.next_block().ok_or(io::ErrorKind::InvalidData)?;
        }
        Ok(&self.block[self.taken..])
    }

    fn consume(&mut self, amount: usize) {
        self.taken += amount;
    }
}

impl Read for SnappyReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let size = self.fill_buf()?.read(out)?;
        self.consume(size);
        Ok(size)
    }
}

#[cfg(test)]
#[path = "compression_test.rs"]
mod tests;
