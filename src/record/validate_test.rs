//! Each rule for batches of clients has its own error code.

use super::*;
use crate::protocol::ErrorCode;
use crate::record::BatchBuilder;

const NOW: i64 = 1_000_000;
const RULES: ProduceRules = ProduceRules {
    now_ms: NOW,
    size_max: 1000,
    compacted: false,
    log_append_time: false,
    timestamp_before_max_ms: 500,
    timestamp_after_max_ms: 100,
};

fn batch(compression: Compression, records: &[(i64, Option<&[u8]>)]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    builder.set_producer(1, 0, 0);
    for (timestamp_ms, key) in records {
        builder.push(*timestamp_ms, *key, Some(b"value"), &[]);
    }
    builder.build()
}

fn good() -> Vec<u8> {
    batch(Compression::None, &[(NOW, Some(b"k")), (NOW + 5, None)])
}

/// Validates after `damage`, with a checksum that is right.
fn check(damage: impl FnOnce(&mut Vec<u8>), rules: ProduceRules) -> Result<BatchHeader, ErrorCode> {
    let mut bytes = good();
    damage(&mut bytes);
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    validate(&mut bytes, &rules).map_err(|refusal| refusal.code())
}

#[test]
fn a_good_batch_passes_unchanged() {
    let mut bytes = good();
    let header = validate(&mut bytes, &RULES).unwrap();
    assert_eq!((header.record_count, header.max_timestamp_ms), (2, NOW + 5));
    assert_eq!(bytes, good());
}

#[test]
fn each_rule_has_its_code() {
    use ErrorCode::{
        CorruptMessage, InvalidRecord, InvalidTimestamp, InvalidTxnState, MessageTooLarge,
        UnsupportedCompressionType,
    };
    type Damage = fn(&mut Vec<u8>);
    let cases: [(&str, Damage, ErrorCode); 16] = [
        ("magic", |b| b[16] = 1, InvalidRecord),
        ("base offset", |b| b[7] = 1, InvalidRecord),
        ("two batches", |b| b.extend_from_within(..), InvalidRecord),
        ("cut", |b| b.truncate(b.len() - 1), CorruptMessage),
        ("longer than its length", |b| b[11] += 1, CorruptMessage),
        ("count", |b| b[60] = 1, InvalidRecord),
        ("count and delta", |b| (b[60], b[26]) = (3, 2), InvalidRecord),
        ("no records", |b| b[57..61].fill(0), InvalidRecord),
        ("control", |b| b[22] |= 0x20, InvalidRecord),
        ("transactional", |b| b[22] |= 0x10, InvalidTxnState),
        ("codec", |b| b[22] |= 5, UnsupportedCompressionType),
        ("timestamp type", |b| b[22] |= 8, InvalidTimestamp),
        ("no sequence", |b| b[53..57].fill(0xff), InvalidRecord),
        ("too old", |b| b[27..35].copy_from_slice(&(NOW - 501).to_be_bytes()), InvalidTimestamp),
        ("too new", |b| b[27..35].copy_from_slice(&(NOW + 96).to_be_bytes()), InvalidTimestamp),
        ("offset delta", |b| b[64] = 4, InvalidRecord),
    ];
    for (name, damage, code) in cases {
        assert_eq!(check(damage, RULES).map(|_| ()), Err(code), "{name}");
    }
    let small = ProduceRules { size_max: 10, ..RULES };
    assert_eq!(check(|_| (), small).map(|_| ()), Err(MessageTooLarge));
    let mut bytes = good();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(validate(&mut bytes, &RULES).unwrap_err().code(), CorruptMessage);
}

#[test]
fn a_compacted_topic_needs_keys_and_a_bad_timestamp_wins() {
    let compacted = ProduceRules { compacted: true, ..RULES };
    for compression in Compression::ALL {
        let refusal = |records: &[(i64, Option<&[u8]>)]| {
            validate(&mut batch(compression, records), &compacted).unwrap_err()
        };
        let keyless = refusal(&[(NOW, Some(b"k")), (NOW, None)]);
        assert!(matches!(keyless, Refusal::InvalidRecord { index: 1, .. }), "{keyless:?}");
        let both = refusal(&[(NOW, None), (NOW + 101, None)]);
        assert_eq!(both.code(), ErrorCode::InvalidTimestamp);
        validate(&mut batch(compression, &[(NOW, Some(b""))]), &compacted).unwrap();
    }
}

#[test]
fn timestamps_are_corrected_or_set() {
    let mut bytes = good();
    bytes[35..43].copy_from_slice(&(NOW + 50).to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    validate(&mut bytes, &RULES).unwrap();
    assert_eq!(bytes, good(), "the largest timestamp is that of the records");

    for compression in Compression::ALL {
        let append_time = ProduceRules { log_append_time: true, ..RULES };
        let mut bytes = batch(compression, &[(-7, None), (NOW * 2, None)]);
        let header = validate(&mut bytes, &append_time).unwrap();
        assert!(header.is_log_append_time());
        assert_eq!(header.max_timestamp_ms, NOW);
        Batch::split_first(&bytes).unwrap().0.check_crc().unwrap();
    }
    validate(&mut batch(Compression::None, &[(-1, None)]), &RULES).expect("-1 means no timestamp");
}

/// A record that no reader can take apart would stop every reader at its offset.
#[test]
fn records_are_taken_apart_to_their_last_header() {
    let with_count = |count: u8| move |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() = count;
    assert!(check(with_count(0), RULES).is_ok());
    // -1, 1 and 63 as varints, in a record that has no headers.
    for count in [1, 2, 126] {
        assert_eq!(check(with_count(count), RULES).err(), Some(ErrorCode::InvalidRecord));
    }
}
