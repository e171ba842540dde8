//! Three replicas and a controller under a seeded scheduler: messages are late, lost or repeated, nodes die and lose what
//! was not on their disk. After every step the invariants of replication.md 7 are checked; then everything heals, and
//! the replicas must become equal.
//!
//! `SEED=n` runs one seed, `SEEDS=n` so many.

mod controller;
mod invariants;
mod model;
mod world;

use crate::types::random::Seeded;
use world::World;

const SEEDS: u64 = 600;
const STEPS: usize = 400;

/// With `tell`, a failure comes with what happened before it.
fn run(seed: u64, tell: bool) {
    let mut random = Seeded(seed);
    let mut world = World::new(random.below(100) < 70, tell);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            world.step(&mut random);
            world.check();
        }
        world.heal(&mut random);
    }));
    if let Err(panic) = outcome {
        eprintln!("seed {seed} fails (SEED={seed} tells how)\n{}", world.history());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn acknowledged_records_survive_whatever_happens() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    match number("SEED") {
        Some(seed) => run(seed, true),
        None => (0..number("SEEDS").unwrap_or(SEEDS)).for_each(|seed| run(seed, false)),
    }
}
