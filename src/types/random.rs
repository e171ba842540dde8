//! Entropy, from the operating system. Decisions never call this: they get a seed (design D3).

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
