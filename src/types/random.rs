//! Entropy, from the operating system. Decisions never call this: they get a seed (design D3), and [`Seeded`] makes
//! numbers of it.

use super::ids::Uuid;

/// A fresh 128-bit id. Never zero, and never starts with `-` when shown, so that it can be an argument of a command.
///
/// # Panics
/// When the operating system has no entropy, which no Linux or macOS that has booted reports.
pub fn uuid() -> Uuid {
    loop {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("a booted operating system has entropy");
        let id = Uuid(bytes);
        if !id.is_zero() && !id.to_string().starts_with('-') {
            return id;
        }
    }
}

/// A seed for a decision.
pub fn seed() -> u64 {
    getrandom::u64().expect("a booted operating system has entropy")
}

/// Pseudo-random numbers from a seed, the same everywhere: SplitMix64.
#[derive(Debug, Clone)]
pub struct Seeded(pub u64);

impl Seeded {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let remainder = self.number() % bound.max(1) as u64;
        usize::try_from(remainder).expect("it is below a usize")
    }
}
