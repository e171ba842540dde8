//! Which partition a record goes to, as Kafka's own clients decide it.

/// The partition of a key: every Kafka client with default settings finds the same one.
pub(super) fn partition_of_key(key: &[u8], partition_count: usize) -> i32 {
    let hash = murmur2(key) & 0x7fff_ffff;
    let count = u32::try_from(partition_count.max(1)).expect("partition numbers are 32 bits");
    i32::try_from(hash % count).expect("less than a partition count")
}

/// Austin Appleby's MurmurHash2 with the seed that Kafka uses.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    // Kafka hashes the low 32 bits of the length; keys are shorter than that anyway.
    let mut hash = SEED ^ u32::try_from(bytes.len() & 0xffff_ffff).expect("masked");
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes(word.try_into().expect("four bytes")).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (position, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * position);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// Where records without a key go: to one partition until its batch closes, then to the next.
#[derive(Debug)]
pub(super) struct Sticky {
    current: usize,
}

impl Sticky {
    /// `seed` spreads the first choices of different producers.
    pub(super) fn new(seed: u64) -> Self {
        Self { current: usize::try_from(seed & 0xffff).expect("16 bits") }
    }

    /// The current partition, or the first after it that `is_available`; the current one when none is.
    pub(super) fn partition(
        &mut self,
        partition_count: usize,
        is_available: impl Fn(i32) -> bool,
    ) -> i32 {
        let number = |index: usize| {
            i32::try_from(index % partition_count.max(1)).expect("partition numbers are 32 bits")
        };
        let chosen = (self.current..self.current + partition_count.max(1))
            .find(|index| is_available(number(*index)))
            .unwrap_or(self.current);
        self.current = chosen;
        number(chosen)
    }

    /// The batch of the current partition closed.
    pub(super) fn advance(&mut self) {
        self.current = (self.current + 1) & 0xffff_ffff;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hash_as_kafka_hashes_them() {
        // The vectors of Kafka's own UtilsTest.
        for (key, expected) in [
            (&b"21"[..], -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key).cast_signed(), expected, "{key:?}");
        }
    }

    #[test]
    fn partitions_are_in_range_also_of_negative_hashes() {
        for key in [&b""[..], b"21", b"foobar", b"abc"] {
            for count in 1..20 {
                let partition = partition_of_key(key, count);
                assert!((0..i32::try_from(count).expect("small")).contains(&partition));
            }
        }
    }

    #[test]
    fn keyless_records_stay_until_the_batch_closes_and_avoid_what_is_unavailable() {
        let mut sticky = Sticky::new(4);
        assert_eq!(sticky.partition(3, |_| true), 1);
        assert_eq!(sticky.partition(3, |_| true), 1);
        sticky.advance();
        assert_eq!(sticky.partition(3, |partition| partition != 2), 0);
        assert_eq!(sticky.partition(3, |_| true), 0);
        assert_eq!(sticky.partition(3, |_| false), 0);
    }
}
