//! The one function that decides leader, ISR and ELR of a partition, whatever the cause (replication.md 1.4).
//!
//! Callers say what they want to be different; everything that follows from it is decided here. Eligible leader
//! replicas (KIP-966) are on from the start: when the ISR falls below its minimum the high watermark stops, so those
//! that leave it from then on still have everything that was ever acknowledged, and may lead.

use crate::metadata::config::MinIsr;
use crate::metadata::{LeaderRecovery, PartitionImage};
use crate::types::NodeId;

/// What a change depends on beside the partition.
pub(super) struct Rules<'a> {
    /// Whether a broker may lead: active, and neither failing nor leaving by this very decision.
    pub acceptable: &'a dyn Fn(NodeId) -> bool,
    /// A broker that may have lost what it had acknowledged: it is no eligible leader any more.
    pub unclean_shutdown: Option<NodeId>,
    /// The first replica leads if it may; otherwise a leader that may stay does.
    pub prefers_first: bool,
    pub min_isr: MinIsr,
}

/// The state after `old`, given that ISR, replicas, reassignment and recovery shall become those of `wanted`.
/// `None` when nothing changes.
pub(super) fn partition_change(
    old: &PartitionImage,
    wanted: PartitionImage,
    rules: &Rules<'_>,
) -> Option<PartitionImage> {
    let mut next = wanted;
    let min_isr = rules.min_isr.of(next.replicas.len() - next.removing.len());
    complete_reassignment(&mut next, min_isr);
    update_elr(old, &mut next, rules, min_isr);
    elect(old, &mut next, rules, min_isr);
    if next.leader != NodeId::NONE {
        next.last_known_elr.clear();
    } else if next.isr.is_empty() && !old.isr.is_empty() {
        // Whoever led last had everything. If no eligible leader ever comes back, it is the one to ask.
        next.last_known_elr = old.leader.known().into_iter().collect();
    }
    if next == *old {
        return None;
    }
    let replica_lost = old.replicas.iter().any(|replica| !next.replicas.contains(replica));
    if next.leader != old.leader || replica_lost {
        next.leader_epoch = old.leader_epoch.next();
    }
    next.partition_epoch = old.partition_epoch.next();
    Some(next)
}

/// A reassignment is complete when all who shall stay are in sync, and enough of them.
fn complete_reassignment(next: &mut PartitionImage, min_isr: usize) {
    if next.adding.is_empty() && next.removing.is_empty() {
        return;
    }
    let stays = |node: &NodeId| !next.removing.contains(node);
    let isr: Vec<NodeId> = next.isr.iter().copied().filter(stays).collect();
    let replicas: Vec<NodeId> = next.replicas.iter().copied().filter(stays).collect();
    let complete = replicas.iter().all(|replica| isr.contains(replica));
    if complete && !replicas.is_empty() && isr.len() >= min_isr {
        next.isr = isr;
        next.replicas = replicas;
        next.adding.clear();
        next.removing.clear();
    }
}

fn update_elr(old: &PartitionImage, next: &mut PartitionImage, rules: &Rules<'_>, min_isr: usize) {
    if next.isr.len() >= min_isr {
        next.elr.clear();
        return;
    }
    let mut elr = old.elr.clone();
    elr.extend(old.isr.iter().filter(|member| !old.elr.contains(member)));
    elr.retain(|node| {
        next.replicas.contains(node)
            && !next.isr.contains(node)
            && rules.unclean_shutdown != Some(*node)
    });
    next.elr = elr;
}

fn elect(old: &PartitionImage, next: &mut PartitionImage, rules: &Rules<'_>, min_isr: usize) {
    let valid = |node: NodeId| {
        let complete = match next.isr.is_empty() {
            true => next.elr.contains(&node),
            false => next.isr.contains(&node),
        };
        complete && (rules.acceptable)(node)
    };
    let stays = old.leader.known().filter(|leader| valid(*leader));
    let first = next.replicas.first().copied();
    let preferred = first.filter(|node| rules.prefers_first && valid(*node));
    let clean =
        preferred.or(stays).or_else(|| next.replicas.iter().copied().find(|node| valid(*node)));
    if let Some(leader) = clean {
        next.leader = leader;
        if next.isr.is_empty() {
            next.isr = vec![leader];
            next.elr.retain(|node| *node != leader);
            if min_isr <= 1 {
                // It can commit alone, so from now on the others miss what it commits.
                next.elr.clear();
            }
        }
        return;
    }
    match old.last_known_elr[..] {
        [last] if next.isr.is_empty() && next.elr.is_empty() && (rules.acceptable)(last) => {
            next.leader = last;
            next.isr = vec![last];
            next.recovery = LeaderRecovery::Recovering;
        }
        _ => next.leader = NodeId::NONE,
    }
}

#[cfg(test)]
#[path = "partition_change_test.rs"]
mod tests;
