//! Where two replicas of the same offsets differ. Pure.

use std::collections::BTreeMap;

use crate::record::{Batch, DECOMPRESSED_SIZE_MAX, Record, Refusal, batches, records};
use crate::types::Offset;

/// The first difference, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) offset: Offset,
    pub(super) reason: String,
}

impl Difference {
    fn at(offset: Offset, reason: impl Into<String>) -> Option<Self> {
        Some(Self { offset, reason: reason.into() })
    }
}

/// Byte for byte.
pub(super) fn of_bytes(one: &[u8], other: &[u8]) -> Option<Difference> {
    let mut others = batches(other);
    for one in batches(one) {
        let (one, other) = match (one, others.next()) {
            (Err(refusal), _) | (_, Some(Err(refusal))) => return unreadable(&refusal),
            (Ok(one), None) => {
                return Difference::at(one.header.base_offset, "no batch there");
            }
            (Ok(one), Some(Ok(other))) => (one, other),
        };
        let (at, other_at) = (one.header.base_offset, other.header.base_offset);
        if at != other_at {
            let reason = format!("a batch at {at} here, at {other_at} there");
            return Difference::at(at.min(other_at), reason);
        }
        if one.bytes != other.bytes {
            return of_batches(&one, &other).or_else(|| Difference::at(at, "the batches differ"));
        }
    }
    match others.next()? {
        Ok(other) => Difference::at(other.header.base_offset, "no batch here"),
        Err(refusal) => unreadable(&refusal),
    }
}

fn unreadable(refusal: &Refusal) -> Option<Difference> {
    Difference::at(-1, refusal.to_string())
}

fn of_batches(one: &Batch<'_>, other: &Batch<'_>) -> Option<Difference> {
    let at = one.header.base_offset;
    for (batch, side) in [(one, "here"), (other, "there")] {
        if let Err(refusal) = batch.check_crc() {
            return Difference::at(at, format!("corrupt {side}: {refusal}"));
        }
    }
    if one.header.leader_epoch != other.header.leader_epoch {
        let (here, there) = (one.header.leader_epoch, other.header.leader_epoch);
        let reason = format!("leader epoch {here} here, {there} there");
        return Difference::at(at, reason);
    }
    of_records(one.bytes, other.bytes)
}

/// Record by record, of the offsets that both have.
pub(super) fn of_records(one: &[u8], other: &[u8]) -> Option<Difference> {
    let (one, other) = match (digests(one), digests(other)) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(refusal), _) | (_, Err(refusal)) => return unreadable(&refusal),
    };
    one.iter().find_map(|(offset, digest)| {
        let differs = other.get(offset).is_some_and(|other| other != digest);
        differs.then(|| Difference { offset: *offset, reason: "the records differ".to_owned() })
    })
}

fn digests(bytes: &[u8]) -> Result<BTreeMap<Offset, u64>, Refusal> {
    let mut digests = BTreeMap::new();
    for batch in batches(bytes) {
        let batch = batch?;
        batch.check_crc()?;
        for record in records(&batch, DECOMPRESSED_SIZE_MAX)?.iter() {
            let record = record?;
            digests.insert(record.offset, digest(&record));
        }
    }
    Ok(digests)
}

/// Lengths and all, so that no two fields can trade bytes.
fn digest(record: &Record<'_>) -> u64 {
    let Record { timestamp_ms, key, value, headers, .. } = record;
    xxhash_rust::xxh3::xxh3_64(format!("{timestamp_ms} {key:?} {value:?} {headers:?}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, Compression, assign_offset};
    use crate::types::LeaderEpoch;

    fn log(base_offset: Offset, values: &[&str], compression: Compression) -> Vec<u8> {
        let mut builder = BatchBuilder::new(compression);
        for value in values {
            builder.push(7, Some(b"k"), Some(value.as_bytes()), &[]);
        }
        let mut batch = builder.build();
        assign_offset(&mut batch, base_offset, LeaderEpoch(1));
        batch
    }

    #[test]
    fn the_first_difference_is_named() {
        let one = [log(0, &["a", "b"], Compression::None), log(2, &["c"], Compression::Zstd)];
        let at = |one: &[Vec<u8>], other: &[Vec<u8>]| {
            of_bytes(&one.concat(), &other.concat()).map(|difference| difference.offset)
        };
        assert_eq!(at(&one, &one), None);
        assert_eq!(at(&one, &one[..1]), Some(2));
        assert_eq!(at(&one[..1], &one), Some(2));
        assert_eq!(at(&one, &[log(0, &["a", "x"], Compression::None), one[1].clone()]), Some(1));
        assert_eq!(at(&one, &[one[0].clone(), log(3, &["c"], Compression::Zstd)]), Some(2));
        let mut epoch = one.clone();
        assign_offset(&mut epoch[1], 2, LeaderEpoch(4));
        let difference = of_bytes(&one.concat(), &epoch.concat()).unwrap();
        assert_eq!((difference.offset, difference.reason.contains("epoch 1")), (2, true));
        let mut flipped = one.clone();
        flipped[1][70] ^= 1;
        let difference = of_bytes(&one.concat(), &flipped.concat()).unwrap();
        assert_eq!((difference.offset, difference.reason.contains("corrupt there")), (2, true));
        let mut garbage = one.clone();
        garbage[1][16] = 9;
        assert!(at(&one, &garbage).is_some());
    }

    #[test]
    fn records_are_compared_where_both_have_them() {
        let whole = log(0, &["a", "b", "c"], Compression::None);
        let recompressed = log(0, &["a", "b", "c"], Compression::Gzip);
        assert_eq!(of_records(&whole, &recompressed), None);
        assert_eq!(of_records(&whole, &log(2, &["c"], Compression::None)), None);
        let difference = of_records(&whole, &log(1, &["b", "x"], Compression::None)).unwrap();
        assert_eq!(difference.offset, 2);
    }
}
