//! Duplicates, fencing and gaps of idempotent producers.

use super::*;
use crate::protocol::ErrorCode;
use crate::record::{BatchBuilder, Compression, assign_offset};
use crate::types::LeaderEpoch;

fn header(producer: (i64, i16), first_sequence: i32, count: i32, offset: Offset) -> BatchHeader {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.set_producer(producer.0, producer.1, first_sequence);
    for index in 0..count {
        builder.push(1_000 + i64::from(index), None, None, &[]);
    }
    let mut bytes = builder.build();
    assign_offset(&mut bytes, offset, LeaderEpoch(0));
    BatchHeader::parse(&bytes).unwrap()
}

/// Appends if the check allows; the code of the refusal otherwise, or the base offset of the first copy.
fn append(
    producers: &mut Producers,
    producer: (i64, i16),
    first_sequence: i32,
    count: i32,
    offset: Offset,
) -> Result<Option<Offset>, ErrorCode> {
    let header = header(producer, first_sequence, count, offset);
    let copy = producers.check(&header).map_err(|error| error.code())?;
    if copy.is_none() {
        producers.on_appended(&header, 0);
    }
    Ok(copy.map(|copy| copy.base_offset()))
}

#[test]
fn the_last_five_batches_are_known_again() {
    let mut producers = Producers::default();
    for batch in 0..7 {
        assert_eq!(append(&mut producers, (9, 0), batch * 3, 3, i64::from(batch) * 10), Ok(None));
    }
    for batch in 2..7 {
        let offset = i64::from(batch) * 10;
        assert_eq!(append(&mut producers, (9, 0), batch * 3, 3, 999), Ok(Some(offset)));
    }
    let out_of_order = Err(ErrorCode::OutOfOrderSequenceNumber);
    assert_eq!(append(&mut producers, (9, 0), 3, 3, 999), out_of_order, "left the window");
    assert_eq!(append(&mut producers, (9, 0), 18, 2, 999), out_of_order, "part of a batch");
    assert_eq!(append(&mut producers, (9, 0), 22, 1, 999), out_of_order, "gap");
    assert_eq!(append(&mut producers, (9, 0), 21, 1, 999), Ok(None));
    assert_eq!(append(&mut producers, (8, 5), 77, 1, 0), Ok(None), "unknown: any sequence");
    assert_eq!(append(&mut producers, (-1, -1), -1, 1, 0), Ok(None));
    assert_eq!(append(&mut producers, (-1, -1), -1, 1, 0), Ok(None), "not idempotent");
}

#[test]
fn epochs_fence_and_restart_the_sequence() {
    let mut producers = Producers::default();
    append(&mut producers, (9, 1), 0, 5, 0).unwrap();
    assert_eq!(append(&mut producers, (9, 0), 5, 1, 5), Err(ErrorCode::InvalidProducerEpoch));
    assert_eq!(append(&mut producers, (9, 2), 5, 1, 5), Err(ErrorCode::OutOfOrderSequenceNumber));
    assert_eq!(append(&mut producers, (9, 2), 0, 5, 5), Ok(None), "not a copy of the old epoch's");
    assert_eq!(append(&mut producers, (9, 2), 0, 5, 10), Ok(Some(5)));
}

#[test]
fn sequences_wrap() {
    let mut producers = Producers::default();
    append(&mut producers, (9, 0), i32::MAX - 1, 4, 0).unwrap();
    assert_eq!(append(&mut producers, (9, 0), i32::MAX - 1, 4, 9), Ok(Some(0)));
    assert_eq!(append(&mut producers, (9, 0), 2, 1, 4), Ok(None));
}

#[test]
fn idle_producers_are_forgotten_after_a_day() {
    let mut producers = Producers::default();
    producers.on_appended(&header((1, 0), 0, 1, 0), 0);
    producers.on_appended(&header((2, 0), 0, 1, 1), EXPIRATION_MS - 1);
    assert_eq!(producers.by_id.len(), 2);
    producers.on_appended(&header((3, 0), 0, 1, 2), EXPIRATION_MS + EXPIRATION_CHECK_MS);
    assert_eq!(producers.by_id.keys().copied().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn golden_snapshot() {
    let mut producers = Producers::default();
    append(&mut producers, (0x1122, 3), 4, 2, 70).unwrap();
    append(&mut producers, (0x1122, 3), 6, 3, 80).unwrap();
    let content = producers.encode();
    let hex: String = content.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = concat!(
        "0001",
        "6535aec0", // CRC-32C of what follows
        "00000001",
        "0000000000001122", // producer id
        "0003",             // epoch
        "00000008",         // last sequence
        "0000000000000052", // last offset
        "00000002",         // offset delta
        "00000000000003ea", // timestamp
        "ffffffff",         // coordinator epoch
        "ffffffffffffffff", // first offset of the transaction
    );
    assert_eq!(hex, expected);

    let mut decoded = Producers::decode(&content, Offset::MAX, 0).unwrap();
    assert_eq!(append(&mut decoded, (0x1122, 3), 6, 3, 999), Ok(Some(80)));
    assert_eq!(
        append(&mut decoded, (0x1122, 3), 4, 2, 999),
        Err(ErrorCode::OutOfOrderSequenceNumber),
        "only the last batch is in the file"
    );
    for position in 0..content.len() {
        let mut damaged = content.clone();
        damaged[position] ^= 1;
        assert!(Producers::decode(&damaged, Offset::MAX, 0).is_none(), "byte {position}");
        assert!(Producers::decode(&content[..position], Offset::MAX, 0).is_none());
    }
}
