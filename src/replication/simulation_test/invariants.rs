//! The invariants of INVARIANTS.md that concern one partition, by number.

use super::model::index;
use super::world::{Node, World};
use crate::replication::Role;
use crate::types::{NodeId, Offset};

impl World {
    /// After every step.
    pub(super) fn check(&self) {
        let image = &self.controller.latest().partition;
        for (id, node) in self.nodes.iter().filter(|(_, node)| node.alive) {
            let Role::Leader(leader) = node.replica.role() else { continue };
            let ends = node.log.ends();
            assert!(leader.high_watermark() <= ends.end, "{id}: high watermark beyond the log");
            if leader.epoch() != image.leader_epoch {
                continue;
            }
            for member in &image.isr {
                assert!(
                    leader.isr().maximal_contains(*member),
                    "{member} is in the ISR, but not in what leader {id} takes for it (INV-11): {:?}",
                    leader.isr()
                );
                let vouched = self.nodes[member].log.ends().durable;
                assert!(
                    leader.high_watermark() <= vouched,
                    "leader {id} has {}, ISR member {member} only {vouched} (INV-11)",
                    leader.high_watermark()
                );
            }
        }
        let logs: Vec<_> = self.nodes.values().map(|node| &node.log.entries).collect();
        for (at, one) in logs.iter().enumerate() {
            for other in &logs[at + 1..] {
                let agree = one.iter().zip(*other).rposition(|(a, b)| a.epoch == b.epoch);
                let prefix = agree.map_or(0, |last| last + 1);
                assert_eq!(one[..prefix], other[..prefix], "INV-13");
            }
        }
    }

    /// Whenever a high watermark moves, on whatever node.
    pub(super) fn expose(&mut self, id: NodeId, node: &mut Node, high_watermark: Offset) {
        for at in index(node.exposed.min(high_watermark))..index(high_watermark) {
            let exposed = node.log.entries[at].id;
            match self.committed.get(at) {
                Some(&committed) => {
                    assert_eq!(
                        exposed, committed,
                        "{id} exposes another record at {at} (INV-11, INV-12)"
                    );
                }
                None => self.committed.push(exposed),
            }
        }
        node.exposed = node.exposed.max(high_watermark);
    }

    /// Whenever the controller has changed the leader.
    pub(super) fn check_elected(&self) {
        if let Some(leader) = self.controller.latest().partition.leader.known() {
            self.check_complete(leader, "was elected (INV-14)");
        }
    }

    /// Whenever the controller has accepted an ISR.
    pub(super) fn check_new_isr(&self) {
        for member in &self.controller.latest().partition.isr {
            self.check_complete(*member, "was put into the ISR (INV-16)");
        }
    }

    fn check_complete(&self, id: NodeId, why: &str) {
        let log = &self.nodes[&id].log;
        let has = log.entries[..log.durable].iter().map(|entry| entry.id);
        assert!(
            has.take(self.committed.len()).eq(self.committed.iter().copied()),
            "{id} {why} without everything that is committed"
        );
    }
}
