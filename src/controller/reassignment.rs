//! Reassignment: a partition gets other replicas while it serves (replication.md 1.4.6).
//!
//! New replicas are added at once and catch up; old ones are removed when all who shall stay are in sync. That end is
//! found by `partition_change`, in the request of the leader that adds the last one to the ISR.

use super::request::refuse;
use super::sweep::Sweep;
use super::{ControllerReply, Decision, Reassignment, Refusal};
use crate::metadata::{MetadataImage, MetadataRecord, PartitionImage};
use crate::protocol::ErrorCode;
use crate::types::NodeId;

pub(super) fn reassign(image: &MetadataImage, asked: &[Reassignment]) -> Decision {
    let mut records = Vec::new();
    let mut results = Vec::with_capacity(asked.len());
    for (number, reassignment) in asked.iter().enumerate() {
        let is_repeated = asked[..number].iter().any(|r| r.partition == reassignment.partition);
        let decided = if is_repeated {
            refuse(ErrorCode::InvalidRequest, "the partition is named twice")
        } else {
            reassign_one(image, reassignment)
        };
        results.push(decided.map(|record| records.extend(record)));
    }
    let reply = Ok(ControllerReply::Reassign { results, index: image.index });
    Decision { records, reply }
}

fn reassign_one(
    image: &MetadataImage,
    asked: &Reassignment,
) -> Result<Option<MetadataRecord>, Refusal> {
    let id = asked.partition;
    let Some((topic, old)) = image.topic_and_partition(id) else {
        return refuse(ErrorCode::UnknownTopicOrPartition, "there is no such partition");
    };
    let wanted = match &asked.replicas {
        Some(target) => start(image, old, target)?,
        None => cancel(old)?,
    };
    let acceptable = |node| image.is_active(node);
    let sweep = Sweep::new(image, &acceptable);
    Ok(sweep.change(id, old, wanted, image.min_isr(&topic.name)))
}

/// A second move replaces the first: replicas that only that one added go.
fn start(
    image: &MetadataImage,
    old: &PartitionImage,
    target: &[NodeId],
) -> Result<PartitionImage, Refusal> {
    let invalid = |sentence: String| refuse(ErrorCode::InvalidReplicaAssignment, sentence);
    if target.is_empty() {
        return invalid("a partition needs a replica".to_owned());
    }
    for (number, node) in target.iter().enumerate() {
        if target[..number].contains(node) {
            return invalid(format!("broker {node} is named twice"));
        }
        if image.broker(*node).is_none() {
            return invalid(format!("broker {node} is not registered"));
        }
    }
    let settled = without(&old.replicas, &old.adding);
    let removing = without(&settled, target);
    let adding = without(target, &settled);
    keep_in_sync(
        old,
        PartitionImage {
            replicas: target.iter().chain(&removing).copied().collect(),
            adding,
            removing,
            ..old.clone()
        },
    )
}

fn cancel(old: &PartitionImage) -> Result<PartitionImage, Refusal> {
    if old.adding.is_empty() && old.removing.is_empty() {
        return refuse(ErrorCode::NoReassignmentInProgress, "no reassignment is under way");
    }
    keep_in_sync(
        old,
        PartitionImage {
            replicas: without(&old.replicas, &old.adding),
            adding: Vec::new(),
            removing: Vec::new(),
            ..old.clone()
        },
    )
}

/// Who is no replica any more is not in sync any more.
fn keep_in_sync(
    old: &PartitionImage,
    mut wanted: PartitionImage,
) -> Result<PartitionImage, Refusal> {
    wanted.isr.retain(|node| wanted.replicas.contains(node));
    if wanted.isr.is_empty() && !old.isr.is_empty() {
        return refuse(
            ErrorCode::InvalidReplicaAssignment,
            "only added replicas are in sync: to drop them would lose what they have",
        );
    }
    Ok(wanted)
}

fn without(nodes: &[NodeId], others: &[NodeId]) -> Vec<NodeId> {
    nodes.iter().copied().filter(|node| !others.contains(node)).collect()
}

#[cfg(test)]
#[path = "reassignment_test.rs"]
mod tests;
