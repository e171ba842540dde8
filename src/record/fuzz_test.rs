//! Damaged batches: nothing panics, and what is accepted can be read to its last record.

use super::batch::BatchHeader;
use super::testing::{damage, fuzz};
use super::{
    Batch, BatchBuilder, Compression, HEADER_SIZE, ProduceRules, batches, records, select,
    validate, visit_timestamps,
};
use crate::types::random::Seeded;

const SIZE_MAX: usize = 1 << 20;

fn sample(random: &mut Seeded) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::ALL[random.below(5)]);
    if random.below(2) == 0 {
        builder.set_producer(7, 1, i32::MAX - 1);
    }
    for n in 0..=random.below(6) {
        let value = vec![b'v'; random.below(300)];
        let key = (random.below(3) > 0).then_some(&b"key"[..]);
        let headers = [("name", Some(&b"x"[..])), ("none", None)];
        let headers = &headers[..random.below(3)];
        builder.push(1_000 + n as i64, key, Some(&value), headers);
    }
    builder.build()
}

/// Half of the damage is behind a checksum that is right: a client's own.
fn damaged(random: &mut Seeded) -> Vec<u8> {
    let mut bytes = sample(random);
    if random.below(4) == 0 {
        bytes.extend(sample(random));
    }
    damage(random, &mut bytes);
    if bytes.len() > HEADER_SIZE && random.below(2) == 0 {
        let length = i32::try_from(bytes.len() - 12).unwrap();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
    bytes
}

fn rules(random: &mut Seeded) -> ProduceRules {
    let codec = Compression::ALL[random.below(5)];
    ProduceRules {
        now_ms: 1_000,
        size_max: 1 << 20,
        record_size_max: 1 << 20,
        compacted: random.below(2) == 0,
        log_append_time: random.below(2) == 0,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        compression: (random.below(2) == 0).then(|| (codec, codec.default_level())),
    }
}

#[test]
fn fuzz_readers_of_batches() {
    fuzz(3_000, |random| {
        let bytes = damaged(random);
        for batch in batches(&bytes).map_while(Result::ok) {
            let whole = records(&batch, SIZE_MAX)
                .and_then(|records| records.iter().map(|record| record.map(|_| 1)).sum());
            let outlined = visit_timestamps(&batch, |_, _| ());
            if whole.is_ok_and(|count: i32| count == batch.header.record_count) {
                assert!(outlined.is_ok(), "one reader is stricter: {outlined:?}");
            }
            if let Ok(selection) = select(&batch, SIZE_MAX, |record| record.has_value) {
                let kept = selection.encode(Some(5));
                Batch::split_first(&kept).unwrap().0.check_crc().unwrap();
            }
        }
    });
}

#[test]
fn fuzz_validation() {
    fuzz(3_000, |random| {
        let mut bytes = damaged(random);
        let rules = rules(random);
        let Ok(validated) = validate(&mut bytes, &rules) else { return };
        let mut bytes = validated.rewritten.unwrap_or(bytes);
        let (batch, rest) = Batch::split_first(&bytes).unwrap();
        batch.check_crc().unwrap();
        assert!(rest.is_empty());
        assert_eq!(batch.header, BatchHeader { crc: batch.header.crc, ..validated.header });
        let mut offsets = Vec::new();
        visit_timestamps(&batch, |offset, _| offsets.push(offset)).unwrap();
        assert!(offsets.into_iter().eq(0..i64::from(batch.header.record_count)));
        if !rules.log_append_time {
            let before = bytes.clone();
            let again = validate(&mut bytes, &rules).unwrap();
            assert_eq!((bytes, again.rewritten), (before, None), "nothing is left to correct");
        }
    });
}
