//! Every codec there and back, bombs, and what other programs write.

use std::io::Write;

use super::*;
use crate::record::encode::Encoder;

fn body() -> Vec<u8> {
    (0..100_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
}

fn compress(compression: Compression, level: i32, body: &[u8]) -> Vec<u8> {
    let mut encoder = Encoder::new(compression, level, Vec::new()).unwrap();
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

fn default(compression: Compression, body: &[u8]) -> Vec<u8> {
    compress(compression, compression.default_level(), body)
}

#[test]
fn every_codec_gives_back_what_it_got() {
    for compression in Compression::ALL {
        for body in [body(), Vec::new(), vec![7]] {
            let compressed = default(compression, &body);
            let back = decompress(compression as u8, &compressed, body.len()).unwrap();
            assert_eq!(back, body, "{compression:?}");
        }
    }
}

#[test]
fn levels_make_a_difference() {
    use Compression::{Gzip, Lz4, Zstd};
    for (compression, fast, small) in [(Gzip, 1, 9), (Lz4, 9, 17), (Zstd, -100, 19)] {
        let (fast, small) =
            (compress(compression, fast, &body()), compress(compression, small, &body()));
        assert!(small.len() < fast.len(), "{compression:?}: {} {}", small.len(), fast.len());
        assert_eq!(decompress(compression as u8, &small, 1 << 20).unwrap(), body());
    }
    assert_eq!(compress(Gzip, -1, &body()), compress(Gzip, 6, &body()));
}

#[test]
fn a_bomb_is_refused_at_the_bound() {
    for compression in Compression::ALL.into_iter().skip(1) {
        let limit = body().len() - 1;
        let compressed = default(compression, &body());
        let result = decompress(compression as u8, &compressed, limit);
        assert_eq!(result, Err(Refusal::Bomb { limit }), "{compression:?}");
    }
}

#[test]
fn a_raw_snappy_block_is_read() {
    let compressed = snap::raw::Encoder::new().compress_vec(&body()).unwrap();
    assert_eq!(decompress(2, &compressed, 1 << 20).unwrap(), body());
    // Five bytes that promise 128 MiB.
    assert_eq!(decompress(2, &[0x80, 0x80, 0x80, 0x40, 0], usize::MAX - 1), Err(UNREADABLE));
}

#[test]
fn java_lz4_frame_header() {
    let compressed = default(Compression::Lz4, &body());
    // Magic; version 1 with independent blocks; 64 KiB blocks; header checksum.
    assert_eq!(compressed[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    assert_eq!(compressed[compressed.len() - 4..], [0; 4]);
    let mut linked =
        lz4::EncoderBuilder::new().block_mode(lz4::BlockMode::Linked).build(Vec::new()).unwrap();
    linked.write_all(&body()).unwrap();
    assert_eq!(decompress(3, &linked.finish().0, 1 << 20), Err(UNREADABLE), "Java cannot read it");
}

#[test]
fn garbage_is_refused() {
    for codec in 1..=7 {
        for garbage in [&b"\x82SNAPPY\x00garbage"[..], b"no codec wrote this", &[0xff; 300]] {
            assert!(decompress(codec, garbage, 1 << 20).is_err(), "codec {codec}");
        }
    }
}
