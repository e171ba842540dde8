//! What is broken, in which order, and how it is healed.

use std::time::Duration;

use clap::ValueEnum;

use super::network::Network;
use super::victim::Victim;
use crate::cli::dev::Verb;
use crate::cli::error::Failure;

/// How much longer each chunk of bytes takes on a slow link: longer than a heartbeat, shorter than a session.
const SLOW: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum FaultKind {
    /// A node ends as in a crash (SIGKILL), and starts again
    Kill,
    /// A node freezes (SIGSTOP), and goes on
    Pause,
    /// A node stops in good order, and starts again
    Restart,
    /// All nodes at once end as in a crash
    KillAll,
    /// All nodes but one end as in a crash
    KillMajority,
    /// All nodes but one freeze
    PauseMajority,
    /// Each node after the other stops in good order and starts again
    RollingRestart,
    /// A node ends as in a crash and loses its disks, and starts again with none
    Wipe,
    /// Nothing passes between a node and the others
    Cut,
    /// Nothing passes between two nodes; both reach the others
    CutPair,
    /// A node hears the others, and is not heard
    Mute,
    /// A node is heard, and hears nobody
    Deaf,
    /// All that passes between a node and the others takes long
    SlowLink,
}

/// How a fault is made and healed.
#[derive(Debug, Clone, Copy)]
enum Means {
    Processes(Verb, Verb),
    Disk,
    Network,
}

impl FaultKind {
    fn means(self) -> Means {
        match self {
            Self::Kill | Self::KillAll | Self::KillMajority => {
                Means::Processes(Verb::Kill, Verb::Start)
            }
            Self::Pause | Self::PauseMajority => Means::Processes(Verb::Pause, Verb::Resume),
            Self::Restart | Self::RollingRestart => Means::Processes(Verb::Stop, Verb::Start),
            Self::Wipe => Means::Disk,
            Self::Cut | Self::CutPair | Self::Mute | Self::Deaf | Self::SlowLink => Means::Network,
        }
    }

    /// It takes a copy away for good: every record must have its other copies before, and afterwards again.
    pub(super) fn needs_all_copies(self) -> bool {
        self == Self::Wipe
    }

    pub(super) fn is_possible(self, victim: &Victim) -> bool {
        match self.means() {
            Means::Processes(begin, heal) => victim.can(begin) && victim.can(heal),
            Means::Network => victim.network().is_some() && victim.ids().len() > 1,
            Means::Disk => victim.has_disks() && victim.ids().len() > 2,
        }
    }

    pub(super) fn name(self) -> String {
        let name = self.to_possible_value().expect("none is hidden");
        name.get_name().to_owned()
    }
}

/// One fault, drawn: what, whom, for how long, and what comes after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) kind: FaultKind,
    pub(super) targets: Vec<i32>,
    pub(super) lasts: Duration,
    /// Without a fault, after it was healed.
    pub(super) rest: Duration,
}

impl Drawn {
    pub(super) fn target_name(&self) -> String {
        let ids: Vec<String> = self.targets.iter().map(ToString::to_string).collect();
        let noun = if ids.len() == 1 { "node" } else { "nodes" };
        format!("{noun} {}", ids.join(","))
    }

    /// Breaks, waits, heals. When it returns, the nodes say that they are ready.
    pub(super) async fn inflict(&self, victim: &Victim) -> Result<(), Failure> {
        let (begin, heal) = match (self.kind.means(), victim.network()) {
            (Means::Processes(begin, heal), _) => (begin, heal),
            (Means::Network, Some(network)) => {
                self.disturb(network, victim.ids());
                tokio::time::sleep(self.lasts).await;
                network.heal();
                return Ok(());
            }
            (Means::Disk, _) => {
                for &id in &self.targets {
                    victim.act(Verb::Kill, id).await?;
                    victim.wipe(id)?;
                }
                tokio::time::sleep(self.lasts).await;
                return victim.act_on_all(Verb::Start, &self.targets).await;
            }
            (Means::Network, None) => {
                return Err(Failure::usage("only our own cluster has a network that can be cut"));
            }
        };
        if self.kind == FaultKind::RollingRestart {
            for &id in &self.targets {
                victim.act(begin, id).await?;
                victim.act(heal, id).await?;
            }
            return Ok(());
        }
        victim.act_on_all(begin, &self.targets).await?;
        tokio::time::sleep(self.lasts).await;
        victim.act_on_all(heal, &self.targets).await
    }

    fn disturb(&self, network: &Network, ids: &[i32]) {
        let (targets, all) = (&self.targets[..], ids);
        match self.kind {
            FaultKind::Mute => network.cut(targets, all),
            FaultKind::Deaf => network.cut(all, targets),
            FaultKind::CutPair => network.cut(targets, targets),
            FaultKind::SlowLink => {
                network.slow(targets, all, SLOW);
                network.slow(all, targets, SLOW);
            }
            _ => {
                network.cut(targets, all);
                network.cut(all, targets);
            }
        }
    }
}

/// Draws faults, the same for the same seed.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // xorshift64 stays where it is at zero.
        Self(seed.max(1))
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let index = self.below(from.len().max(1) as u64);
        from.get(usize::try_from(index).ok()?).copied()
    }

    fn milliseconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }

    /// `None` without a kind or a node to choose from.
    pub(super) fn draw(&mut self, kinds: &[FaultKind], ids: &[i32]) -> Option<Drawn> {
        let kind = self.pick(kinds)?;
        let one = self.pick(ids)?;
        let other = self.pick(ids)?;
        let targets = match kind {
            FaultKind::Kill | FaultKind::Pause | FaultKind::Restart | FaultKind::Wipe => vec![one],
            FaultKind::Cut | FaultKind::Mute | FaultKind::Deaf | FaultKind::SlowLink => vec![one],
            FaultKind::CutPair if other == one => ids.iter().copied().take(2).collect(),
            FaultKind::CutPair => vec![one, other],
            FaultKind::KillAll | FaultKind::RollingRestart => ids.to_vec(),
            FaultKind::KillMajority | FaultKind::PauseMajority => {
                ids.iter().copied().filter(|id| *id != one).collect()
            }
        };
        // Shorter than a session, and longer.
        let lasts = self.milliseconds(100, 6_000);
        // Sometimes the next fault meets replicas that still catch up.
        let rest = self.milliseconds(200, 5_000);
        Some(Drawn { kind, targets, lasts, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_again_and_every_kind_in_the_end() {
        let ids = [1, 2, 3];
        let kinds = FaultKind::value_variants();
        let draw = |seed| {
            let mut dice = Dice::new(seed);
            (0..200).filter_map(|_| dice.draw(kinds, &ids)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        for kind in kinds {
            assert!(draw(7).iter().any(|drawn| drawn.kind == *kind), "{kind:?}");
        }
        let majority = draw(7).into_iter().find(|drawn| drawn.kind == FaultKind::PauseMajority);
        assert_eq!(majority.unwrap().targets.len(), 2);
        assert_eq!(Dice::new(0).draw(&[], &ids), None);
    }
}
