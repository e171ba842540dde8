//! Codecs of record batches (kafka-protocol.md 3.3).
//!
//! Snappy is read in both forms that are on the wire (xerial's framing, one raw block) and written with the framing, as
//! Java does; lz4 is written as Java writes it: independent 64 KiB blocks, no checksums, no content size.

use std::borrow::Cow;
use std::io::{Read, Write};

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::Refusal;

/// A codec, by its number in the batch attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

/// Xerial's magic, version 1, compatible with version 1.
const XERIAL_HEADER: [u8; 16] = *b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01";
const XERIAL_MAGIC_SIZE: usize = 8;
/// Java's default input block.
const XERIAL_BLOCK_SIZE: usize = 32 * 1024;

impl Compression {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub fn from_codec(codec: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| *compression as u8 == codec)
    }

    /// As `compression.type` names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.name() == name)
    }

    /// Appends `body`, compressed at the codec's default level, to `out`.
    pub(super) fn compress(self, body: &[u8], out: &mut Vec<u8>) {
        const INFALLIBLE: &str = "compressing into memory cannot fail";
        match self {
            Self::None => out.extend_from_slice(body),
            Self::Gzip => {
                let mut encoder = GzEncoder::new(out, flate2::Compression::default());
                encoder.write_all(body).expect(INFALLIBLE);
                encoder.finish().expect(INFALLIBLE);
            }
            Self::Snappy => {
                out.extend_from_slice(&XERIAL_HEADER);
                let mut encoder = snap::raw::Encoder::new();
                for block in body.chunks(XERIAL_BLOCK_SIZE) {
                    let block = encoder.compress_vec(block).expect(INFALLIBLE);
                    let size = u32::try_from(block.len()).expect("a block of 32 KiB");
                    out.extend_from_slice(&size.to_be_bytes());
                    out.extend_from_slice(&block);
                }
            }
            Self::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent);
                let mut encoder = FrameEncoder::with_frame_info(info, out);
                encoder.write_all(body).expect(INFALLIBLE);
                encoder.finish().expect(INFALLIBLE);
            }
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(out, 0).expect(INFALLIBLE);
                encoder.write_all(body).expect(INFALLIBLE);
                encoder.finish().expect(INFALLIBLE);
            }
        }
    }
}

/// Gives back what was compressed, unless it is more than `size_max` bytes.
pub(super) fn decompress(
    codec: u8,
    bytes: &[u8],
    size_max: usize,
) -> Result<Cow<'_, [u8]>, Refusal> {
    const UNREADABLE: Refusal = Refusal::Corrupt("cannot be decompressed");
    match Compression::from_codec(codec).ok_or(Refusal::Codec(codec))? {
        Compression::None => Ok(Cow::Borrowed(bytes)),
        Compression::Gzip => read_bounded(GzDecoder::new(bytes), size_max),
        Compression::Snappy => decompress_snappy(bytes, size_max),
        Compression::Lz4 => read_bounded(FrameDecoder::new(bytes), size_max),
        Compression::Zstd => {
            let decoder = zstd::Decoder::with_buffer(bytes).map_err(|_| UNREADABLE)?;
            read_bounded(decoder, size_max)
        }
    }
}

fn read_bounded(decoder: impl Read, size_max: usize) -> Result<Cow<'static, [u8]>, Refusal> {
    let mut out = Vec::new();
    decoder
        .take(size_max as u64 + 1)
        .read_to_end(&mut out)
        .map_err(|_| Refusal::Corrupt("cannot be decompressed"))?;
    if out.len() > size_max { Err(Refusal::Bomb { limit: size_max }) } else { Ok(out.into()) }
}

fn decompress_snappy(bytes: &[u8], size_max: usize) -> Result<Cow<'static, [u8]>, Refusal> {
    let mut out = Vec::new();
    if !bytes.starts_with(&XERIAL_HEADER[..XERIAL_MAGIC_SIZE]) {
        append_snappy_block(bytes, size_max, &mut out)?;
        return Ok(out.into());
    }
    const CUT_SHORT: Refusal = Refusal::Corrupt("snappy framing cut short");
    let mut rest = bytes.get(XERIAL_HEADER.len()..).ok_or(CUT_SHORT)?;
    while !rest.is_empty() {
        let (size, after) = rest.split_first_chunk().ok_or(CUT_SHORT)?;
        let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| CUT_SHORT)?;
        let (block, after) = after.split_at_checked(size).ok_or(CUT_SHORT)?;
        append_snappy_block(block, size_max, &mut out)?;
        rest = after;
    }
    Ok(out.into())
}

fn append_snappy_block(block: &[u8], size_max: usize, out: &mut Vec<u8>) -> Result<(), Refusal> {
    const UNREADABLE: Refusal = Refusal::Corrupt("cannot be decompressed");
    let size = snap::raw::decompress_len(block).map_err(|_| UNREADABLE)?;
    let before = out.len();
    if size > size_max - before {
        return Err(Refusal::Bomb { limit: size_max });
    }
    out.resize(before + size, 0);
    snap::raw::Decoder::new().decompress(block, &mut out[before..]).map_err(|_| UNREADABLE)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Vec<u8> {
        (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    #[test]
    fn every_codec_gives_back_what_it_got() {
        for compression in Compression::ALL {
            for body in [body(), Vec::new(), vec![7]] {
                let mut compressed = Vec::new();
                compression.compress(&body, &mut compressed);
                let back = decompress(compression as u8, &compressed, body.len()).unwrap();
                assert_eq!(back, body, "{compression:?}");
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_bound() {
        for compression in Compression::ALL.into_iter().skip(1) {
            let mut compressed = Vec::new();
            compression.compress(&body(), &mut compressed);
            let limit = body().len() - 1;
            let result = decompress(compression as u8, &compressed, limit);
            assert_eq!(result, Err(Refusal::Bomb { limit }), "{compression:?}");
        }
    }

    #[test]
    fn a_raw_snappy_block_is_read() {
        let compressed = snap::raw::Encoder::new().compress_vec(&body()).unwrap();
        assert_eq!(decompress(2, &compressed, 1 << 20).unwrap(), body());
    }

    #[test]
    fn java_lz4_frame_header() {
        let mut compressed = Vec::new();
        Compression::Lz4.compress(&body(), &mut compressed);
        // Magic; version 1 with independent blocks; 64 KiB blocks; header checksum.
        assert_eq!(compressed[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
        assert_eq!(compressed[compressed.len() - 4..], [0; 4]);
    }

    #[test]
    fn garbage_is_refused() {
        for codec in 1..=7 {
            for garbage in [&b"\x82SNAPPY\x00garbage"[..], b"no codec wrote this", &[0xff; 300]] {
                assert!(decompress(codec, garbage, 1 << 20).is_err(), "codec {codec}");
            }
        }
    }
}
