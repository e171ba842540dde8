//! Three replicas and a controller under a seeded scheduler: messages are late, lost or repeated, nodes die and lose what
//! was not on their disk. After every step the invariants of replication.md 7 are checked; then everything heals, and
//! the replicas must become equal.
//!
//! Rerun one seed with `SEED=n cargo test --lib replication::simulation_test`.

mod controller;
mod invariants;
mod model;
mod world;

use model::Random;
use world::World;

const SEEDS: u64 = 1500;
const STEPS: usize = 400;

fn run(seed: u64) {
    let mut random = Random::new(seed);
    let mut world = World::new(random.percent(70));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            world.step(&mut random);
            world.check();
        }
        world.heal(&mut random);
    }));
    if let Err(panic) = outcome {
        eprintln!("seed {seed} fails after:\n{}", world.history());
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn acknowledged_records_survive_whatever_happens() {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => run(seed),
        None => (0..SEEDS).for_each(run),
    }
}
