//! Records left out of batches of every codec, and what must not change by it.

use super::super::{BatchBuilder, Compression, Record, assign_offset, records};
use super::*;
use crate::types::LeaderEpoch;

fn sample(compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    builder.set_producer(4711, 3, 17);
    builder.push(1_000, Some(b"a"), Some(b"one"), &[]);
    builder.push(900, Some(b"b"), None, &[("h", Some(b"x"))]);
    builder.push(5_000, Some(b"c"), Some(b"three"), &[("n", None)]);
    builder.push(1_100, None, Some(b"four"), &[]);
    let mut bytes = builder.build();
    assign_offset(&mut bytes, 100, LeaderEpoch(8));
    bytes
}

fn parsed(bytes: &[u8]) -> Batch<'_> {
    let (batch, rest) = Batch::split_first(bytes).unwrap();
    assert!(rest.is_empty());
    batch.check_crc().unwrap();
    batch
}

#[test]
fn what_stays_is_as_it_was() {
    for compression in Compression::ALL {
        for horizon_ms in [None, Some(90_000)] {
            let bytes = sample(compression);
            let batch = parsed(&bytes);
            let all = records(&batch, 1 << 20).unwrap();
            let all: Vec<Record<'_>> = all.iter().map(Result::unwrap).collect();
            for mask in 0..16_usize {
                let is_kept = |offset: Offset| mask >> (offset - 100) & 1 == 1;
                let selection = select(&batch, 1 << 20, |record| is_kept(record.offset)).unwrap();
                assert_eq!(selection.is_empty(), mask == 0);
                assert_eq!(selection.is_whole(), mask == 15);
                let encoded = selection.encode(horizon_ms);
                let kept_batch = parsed(&encoded);
                let kept = records(&kept_batch, 1 << 20).unwrap();
                let kept: Vec<Record<'_>> = kept.iter().map(Result::unwrap).collect();
                let expected: Vec<_> =
                    all.iter().filter(|it| is_kept(it.offset)).cloned().collect();
                assert_eq!(kept, expected);
                let newest = expected.iter().map(|it| it.timestamp_ms).max().unwrap_or(-1);
                let header = kept_batch.header;
                assert_eq!(header.max_timestamp_ms, newest);
                assert_eq!(header.has_delete_horizon(), horizon_ms.is_some());
                assert_eq!(header.base_timestamp_ms, horizon_ms.unwrap_or(1_000));
                let same = |header: &BatchHeader| {
                    let producer =
                        (header.producer_id, header.producer_epoch, header.base_sequence);
                    (header.base_offset, header.last_offset(), header.leader_epoch, producer)
                };
                assert_eq!(same(&header), same(&batch.header));
                assert_eq!(header.codec(), compression as u8);
            }
        }
    }
}

#[test]
fn nothing_changes_when_everything_stays() {
    let bytes = sample(Compression::None);
    let selection = select(&parsed(&bytes), 1 << 20, |_| true).unwrap();
    assert_eq!(selection.encode(None), bytes);
    // A second horizon would be later than the first: it is the caller's to set it once, but deltas stay right.
    let once = selection.encode(Some(7));
    let twice = select(&parsed(&once), 1 << 20, |_| true).unwrap().encode(Some(1 << 40));
    let timestamps = |bytes: &[u8]| -> Vec<i64> {
        let opened = records(&parsed(bytes), 1 << 20).unwrap();
        opened.iter().map(|record| record.unwrap().timestamp_ms).collect()
    };
    assert_eq!(timestamps(&twice), timestamps(&bytes));
}

#[test]
fn keys_and_tombstones_are_seen() {
    let mut seen = Vec::new();
    let bytes = sample(Compression::Zstd);
    select(&parsed(&bytes), 1 << 20, |record| {
        seen.push((record.offset, record.key.map(<[u8]>::to_vec), record.has_value));
        true
    })
    .unwrap();
    let key = |key: &[u8]| Some(key.to_vec());
    let expected = [
        (100, key(b"a"), true),
        (101, key(b"b"), false),
        (102, key(b"c"), true),
        (103, None, true),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_batch_without_records_keeps_producer_and_offsets() {
    for compression in [Compression::None, Compression::Lz4] {
        let bytes = sample(compression);
        let horizon = select(&parsed(&bytes), 1 << 20, |_| true).unwrap().encode(Some(1));
        let before = parsed(&horizon).header;
        let empty = without_records(&before);
        assert_eq!(empty.len(), HEADER_SIZE);
        let header = parsed(&empty).header;
        assert_eq!((header.record_count, header.attributes), (0, 0));
        assert_eq!((header.base_offset, header.last_offset()), (100, 103));
        assert_eq!((header.producer_id, header.last_sequence()), (4711, 20));
        assert_eq!(header.max_timestamp_ms, 5_000);
        assert_eq!(records(&parsed(&empty), 1).unwrap().iter().count(), 0);
    }
}

#[test]
fn damaged_records_are_refused() {
    let bytes = sample(Compression::None);
    for position in HEADER_SIZE..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0xff;
        let (batch, _) = Batch::split_first(&damaged).unwrap();
        if let Ok(selection) = select(&batch, 1 << 20, |_| true) {
            parsed(&selection.encode(Some(3)));
        }
    }
}
