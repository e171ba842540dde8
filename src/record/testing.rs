//! Seeded damage to valid bytes: what `make fuzz` runs for long, and `make test` for a moment.

use std::time::Duration;

use crate::types::random::Seeded;
use crate::types::time;

/// A few bits, bytes, numbers or whole ranges are not what they were.
pub(crate) fn damage(random: &mut Seeded, bytes: &mut Vec<u8>) {
    const BORDERS: [u8; 7] = [0, 1, 0x7f, 0x80, 0xfe, 0xff, 2];
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(7) {
            0 => bytes.truncate(at),
            1 => bytes.extend_from_within(at..),
            2 => drop(bytes.drain(at..(at + 1 + random.below(8)).min(bytes.len()))),
            3 => bytes[at..].iter_mut().take(4).for_each(|byte| *byte = 0xff),
            _ if bytes.is_empty() => {}
            4 => bytes[at] = BORDERS[random.below(BORDERS.len())],
            5 => bytes[at] = random.below(256).to_le_bytes()[0],
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
}

/// Calls `round` with one seed after the other: `rounds` of them, or for `KONTIKI_FUZZ_SECONDS`. A failure names its seed,
/// with which `KONTIKI_FUZZ_SEED` begins.
pub(crate) fn fuzz(rounds: u64, mut round: impl FnMut(&mut Seeded)) {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seconds = number("KONTIKI_FUZZ_SECONDS").map(Duration::from_secs);
    let of_today = || seconds.map_or(0, |_| time::wall_ms().unsigned_abs() << 20);
    let first = number("KONTIKI_FUZZ_SEED").unwrap_or_else(of_today);
    let started = time::now();
    let goes_on = |n: u64| seconds.map_or(n < rounds, |limit| started.elapsed() < limit);
    for seed in (0..).take_while(|&n| goes_on(n)).map(|n| first.wrapping_add(n)) {
        let failure = SaySeed(seed);
        round(&mut Seeded(seed));
        std::mem::forget(failure);
    }
}

struct SaySeed(u64);

impl Drop for SaySeed {
    fn drop(&mut self) {
        eprintln!("failed with KONTIKI_FUZZ_SEED={}", self.0);
    }
}
