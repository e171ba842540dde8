//! Batches byte for byte, through every codec, and damaged in every byte.

use super::super::{
    Batch, BatchBuilder, Compression, Record, Refusal, assign_offset, batches, records,
};
use crate::types::LeaderEpoch;

fn sample(compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    builder.set_producer(4711, 3, i32::MAX - 1);
    builder.push(1_000, Some(b"k"), Some(b"first"), &[]);
    builder.push(1_007, None, Some(b"second"), &[("h", Some(b"x")), ("n", None)]);
    builder.push(999, Some(b""), None, &[]);
    builder.build()
}

#[test]
fn golden_bytes() {
    let mut batch = sample(Compression::None);
    assign_offset(&mut batch, 5, LeaderEpoch(9));
    let hex: String = batch.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "0000000000000005", // base offset
        "00000059",         // bytes after this field
        "00000009",         // leader epoch
        "02",               // magic
        "30d95c21",         // CRC-32C
        "0000",             // attributes
        "00000002",         // last offset delta
        "00000000000003e8", // base timestamp
        "00000000000003ef", // max timestamp
        "0000000000001267", // producer id
        "0003",             // producer epoch
        "7ffffffe",         // base sequence
        "00000003",         // record count
        "18000000026b0a666972737400",
        "26000e02010c7365636f6e640402680278026e01",
        "0c000104000100",
    );
    assert_eq!(hex, expected);
}

#[test]
fn records_come_back_from_every_codec() {
    for compression in Compression::ALL {
        let mut bytes = sample(compression);
        assign_offset(&mut bytes, 100, LeaderEpoch(1));
        let (batch, rest) = Batch::split_first(&bytes).unwrap();
        assert!(rest.is_empty());
        batch.check_crc().unwrap();
        assert_eq!(batch.header.codec(), compression as u8);
        assert_eq!((batch.header.base_offset, batch.header.next_offset()), (100, 103));
        assert_eq!(batch.header.last_sequence(), 0, "wraps after 2^31-1");
        assert_eq!(batch.header.max_timestamp_ms, 1_007);
        let records = records(&batch, 1 << 20).unwrap();
        let records: Vec<Record<'_>> = records.iter().collect::<Result<_, _>>().unwrap();
        let none = Vec::new;
        let expected = [
            (100, 1_000, Some(&b"k"[..]), Some(&b"first"[..]), none()),
            (101, 1_007, None, Some(b"second"), vec![("h", Some(&b"x"[..])), ("n", None)]),
            (102, 999, Some(b""), None, none()),
        ]
        .map(|(offset, timestamp_ms, key, value, headers)| Record {
            offset,
            timestamp_ms,
            key,
            value,
            headers,
        });
        assert_eq!(records, expected, "{compression:?}");
    }
}

#[test]
fn any_damage_is_refused_and_none_panics() {
    let mut whole = sample(Compression::None);
    whole.extend(sample(Compression::Lz4));
    for position in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[position] ^= 0x55;
        for batch in batches(&damaged).map_while(Result::ok) {
            let in_first = position < sample(Compression::None).len();
            if batch.check_crc().is_ok() {
                // Base offset and leader epoch are outside of the checksum.
                let start = if in_first { 0 } else { sample(Compression::None).len() };
                let outside = matches!(position - start, 0..8 | 12..16);
                assert!(
                    outside
                        || batch.bytes == &whole[..batch.bytes.len()]
                        || whole.ends_with(batch.bytes)
                );
            } else if let Ok(records) = records(&batch, 1 << 16) {
                records.iter().for_each(drop);
            }
        }
        assert!(batches(&whole[..position]).filter_map(Result::err).count() <= 1);
    }
    assert!(matches!(Batch::split_first(&whole[..60]).map(|_| ()), Err(Refusal::CutShort)));
}
