//! Compresses bodies as Java does, so that every client can read them (kafka-protocol.md 3.3): snappy in xerial's framing,
//! lz4 in independent 64 KiB blocks without checksums or content size. Levels are in Kafka's numbers.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use lz4::liblz4::BlockChecksum;
use lz4::{BlockMode, BlockSize, ContentChecksum};

use super::Compression;

/// Xerial's magic, version 1, compatible with version 1.
pub(super) const XERIAL_HEADER: [u8; 16] = *b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
pub(super) const XERIAL_MAGIC_SIZE: usize = 8;
/// Java's default input block.
const XERIAL_BLOCK_SIZE: usize = 32 * 1024;

impl Compression {
    /// Appends `body`, compressed at the codec's default level, to `out`.
    pub(super) fn compress(self, body: &[u8], out: &mut Vec<u8>) {
        *out = Encoder::new(self, self.default_level(), std::mem::take(out))
            .and_then(|mut encoder| {
                encoder.write_all(body)?;
                encoder.finish()
            })
            .expect("compressing into memory cannot fail");
    }
}

/// Appends what is written, compressed, to a vector. Nothing of it can fail, as far as the vector can grow.
pub(super) enum Encoder {
    None(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Snappy(XerialWriter),
    Lz4(lz4::Encoder<Vec<u8>>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    pub(super) fn new(compression: Compression, level: i32, mut out: Vec<u8>) -> io::Result<Self> {
        Ok(match compression {
            Compression::None => Self::None(out),
            Compression::Gzip => {
                let level = u32::try_from(level)
                    .map_or_else(|_| Default::default(), flate2::Compression::new);
                Self::Gzip(GzEncoder::new(out, level))
            }
            Compression::Snappy => {
                out.extend_from_slice(&XERIAL_HEADER);
                Self::Snappy(XerialWriter { out, block: Vec::new() })
            }
            Compression::Lz4 => Self::Lz4(
                lz4::EncoderBuilder::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent)
                    .block_checksum(BlockChecksum::NoBlockChecksum)
                    .checksum(ContentChecksum::NoChecksum)
                    .level(lz4_level(level))
                    .build(out)?,
            ),
            Compression::Zstd => Self::Zstd(zstd::Encoder::new(out, level)?),
        })
    }

    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::None(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Snappy(mut writer) => {
                writer.write_block()?;
                Ok(writer.out)
            }
            Self::Lz4(encoder) => {
                let (out, result) = encoder.finish();
                result.map(|()| out)
            }
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// Kafka's default, 9, is the fast compressor; every other level is one of the slow ones.
fn lz4_level(level: i32) -> u32 {
    const FAST: u32 = 0;
    const SLOW: std::ops::RangeInclusive<u32> = 3..=12;
    if level == Compression::Lz4.default_level() {
        return FAST;
    }
    u32::try_from(level).unwrap_or(0).clamp(*SLOW.start(), *SLOW.end())
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::None(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Snappy(writer) => writer.write(bytes),
            Self::Lz4(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) struct XerialWriter {
    out: Vec<u8>,
    /// Not compressed yet, less than a whole one.
    block: Vec<u8>,
}

impl XerialWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let size = bytes.len().min(XERIAL_BLOCK_SIZE - self.block.len());
        self.block.extend_from_slice(&bytes[..size]);
        if self.block.len() == XERIAL_BLOCK_SIZE {
            self.write_block()?;
        }
        Ok(size)
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let compressed = snap::raw::Encoder::new().compress_vec(&self.block)?;
        let size = u32::try_from(compressed.len()).map_err(io::Error::other)?;
        self.out.extend_from_slice(&size.to_be_bytes());
        self.out.extend_from_slice(&compressed);
        self.block.clear();
        Ok(())
    }
}
