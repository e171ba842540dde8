//! The last offset of each key of a range, in memory that is bounded beforehand.
//!
//! A key is known by 128 bits of hash: with ten million keys, the chance that any two meet is one in 10^24. The hash is
//! keyed anew for every map, so that nobody can choose keys that meet. A slot is 20 bytes; the map is full at nine
//! tenths of its slots, so that searches stay short.

use std::hash::{DefaultHasher, Hasher};

use crate::types::{Offset, random};

/// Four words of hash, and the distance from the base of the map plus one; 0 in a free slot.
type Slot = [u32; 5];

#[derive(Debug)]
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    count: usize,
    count_max: usize,
    base_offset: Offset,
    hashers: [DefaultHasher; 2],
}

impl OffsetMap {
    /// For keys of records from `base_offset` on, of which there are not more than `records_max`.
    pub(super) fn new(base_offset: Offset, records_max: u64, bytes_max: usize) -> Self {
        let wanted = usize::try_from((records_max / 9).saturating_mul(10)).unwrap_or(usize::MAX);
        let slots = wanted.saturating_add(20).min(bytes_max / size_of::<Slot>()).max(20);
        let hashers = std::array::from_fn(|_| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(random::seed());
            hasher.write_u64(random::seed());
            hasher
        });
        // Zeroed pages cost no memory until they are written.
        Self {
            slots: vec![[0; 5]; slots],
            count: 0,
            count_max: slots / 10 * 9,
            base_offset,
            hashers,
        }
    }

    /// Notes that `key` is at `offset`, which is above all offsets so far. False when the map is full, or the offset
    /// too far away from its base.
    #[must_use = "a key that was not taken must not be lost"]
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let distance = offset - self.base_offset + 1;
        let Ok(distance) = u32::try_from(distance) else {
            return false;
        };
        let (index, hash) = self.find(key);
        if self.slots[index][4] == 0 {
            if self.count == self.count_max {
                return false;
            }
            self.count += 1;
        }
        self.slots[index] = [hash[0], hash[1], hash[2], hash[3], distance];
        true
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Offset> {
        let distance = self.slots[self.find(key).0][4];
        (distance > 0).then(|| self.base_offset + i64::from(distance) - 1)
    }

    /// The slot of `key`, or the free one where it belongs; and its hash.
    #[expect(clippy::cast_possible_truncation, reason = "both halves of the words are taken")]
    fn find(&self, key: &[u8]) -> (usize, [u32; 4]) {
        let [a, b] = self.hashers.each_ref().map(|hasher| {
            let mut hasher = hasher.clone();
            hasher.write(key);
            hasher.finish()
        });
        let hash = [(a >> 32) as u32, a as u32, (b >> 32) as u32, b as u32];
        let mut index = ((u128::from(a) * self.slots.len() as u128) >> 64) as usize;
        while self.slots[index][4] != 0 && self.slots[index][..4] != hash {
            index = if index + 1 == self.slots.len() { 0 } else { index + 1 };
        }
        (index, hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_offset_of_each_key_until_it_is_full() {
        for records_max in [10, 1_000, u64::MAX] {
            let bytes_max = 20 * 1_000;
            let mut map = OffsetMap::new(500, records_max, bytes_max);
            let mut taken = 0_i64;
            let key = |n: i64| format!("key {n}").into_bytes();
            while map.put(&key(taken), 500 + taken) {
                taken += 1;
            }
            assert!(taken >= 10, "{taken} of {records_max}");
            assert!(taken <= 900);
            assert!(records_max < 900 || taken == 900, "{taken}");
            // A key that is known needs no room.
            assert!(map.put(&key(3), 5_000));
            for n in 0..taken {
                assert_eq!(map.get(&key(n)), Some(if n == 3 { 5_000 } else { 500 + n }));
            }
            assert_eq!(map.get(b"unknown"), None);
            assert_eq!(map.get(b""), None);
        }
    }

    #[test]
    fn offsets_beyond_the_reach_of_a_slot_are_not_taken() {
        let mut map = OffsetMap::new(7, 100, 1 << 20);
        assert!(map.put(b"a", 7));
        assert!(map.put(b"b", 7 + i64::from(u32::MAX) - 1));
        assert!(!map.put(b"c", 7 + i64::from(u32::MAX)));
        assert_eq!(map.get(b"a"), Some(7));
        assert_eq!(map.get(b"b"), Some(7 + i64::from(u32::MAX) - 1));
        assert_eq!(map.get(b"c"), None);
    }
}
