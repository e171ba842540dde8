//! What every partition state obeys, and what its successor obeys: invariants 2 and 4 of replication.md 7.

use super::{LeaderRecovery, PartitionImage};
use crate::types::NodeId;

fn distinct(nodes: &[NodeId]) -> bool {
    nodes.iter().enumerate().all(|(i, node)| !nodes[..i].contains(node))
}

fn within(inner: &[NodeId], outer: &[NodeId]) -> bool {
    inner.iter().all(|node| outer.contains(node))
}

fn disjoint(a: &[NodeId], b: &[NodeId]) -> bool {
    !a.iter().any(|node| b.contains(node))
}

impl PartitionImage {
    /// Whether the state is well formed by itself.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let rules = [
            (!self.replicas.is_empty(), "it has no replicas"),
            (distinct(&self.replicas), "a replica appears twice"),
            (distinct(&self.isr), "an ISR member appears twice"),
            (distinct(&self.elr), "an ELR member appears twice"),
            (within(&self.isr, &self.replicas), "the ISR has a member that is no replica"),
            (within(&self.elr, &self.replicas), "the ELR has a member that is no replica"),
            (disjoint(&self.isr, &self.elr), "a replica is both in the ISR and in the ELR"),
            (within(&self.adding, &self.replicas), "an added replica is no replica"),
            (within(&self.removing, &self.replicas), "a removed replica is no replica"),
            (disjoint(&self.adding, &self.removing), "a replica is both added and removed"),
            (
                self.leader.known().is_none_or(|leader| self.isr.contains(&leader)),
                "its leader is not in the ISR",
            ),
            (
                self.recovery == LeaderRecovery::Recovered || self.isr.len() <= 1,
                "it recovers from an unclean election with more than one ISR member",
            ),
            (self.leader_epoch.0 >= 0 && self.partition_epoch.0 >= 0, "an epoch is negative"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, reason)| Err(reason))
    }

    /// Whether the state may come right after `old`.
    pub(crate) fn check_follows(&self, old: &Self) -> Result<(), &'static str> {
        self.check()?;
        if self.partition_epoch != old.partition_epoch.next() {
            return Err("its partition epoch is not the next one");
        }
        if self.leader_epoch != old.leader_epoch && self.leader_epoch != old.leader_epoch.next() {
            return Err("its leader epoch is neither the same nor the next one");
        }
        if self.leader != old.leader && self.leader_epoch == old.leader_epoch {
            return Err("its leader changed within a leader epoch");
        }
        Ok(())
    }
}
