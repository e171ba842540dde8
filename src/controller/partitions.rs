//! AlterPartition: what leaders propose about their ISR (replication.md 1.4.4, 2.9).
//!
//! Two copies of one proposal can reach the log, and a late one must not take effect after its sender was told that
//! the first did not. So requests are numbered per incarnation, the reply of the last one is kept in the image, and
//! a copy gets that reply.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::brokers::registered_broker;
use super::partition_change::{Rules, partition_change};
use super::{
    AlterPartition, AlterPartitionRefusal, AlterPartitionRequest, ControllerReply, Decision,
    Refusal,
};
use crate::codec;
use crate::metadata::{
    LeaderRecovery, MetadataImage, MetadataRecord, PartitionChangeRecord, PartitionImage,
};
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, NodeId};

type Outcome = Result<PartitionImage, AlterPartitionRefusal>;

/// Above the reply to any request that fits into a frame.
const REPLY_SIZE_MAX: u64 = 1 << 26;

pub(super) fn alter_partitions(
    image: &MetadataImage,
    request: &AlterPartitionRequest,
) -> Result<Decision, Refusal> {
    registered_broker(image, request.node_id, request.broker_epoch)?;
    if let Some((sequence, reply)) = image.sequences.get(&request.node_id) {
        if request.sequence == *sequence {
            return stored_reply(reply);
        }
        if request.sequence < *sequence {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!(
                    "request {} of node {} came after {sequence}",
                    request.sequence, request.node_id
                ),
            ));
        }
    }
    let mut seen = BTreeSet::new();
    let mut records = Vec::new();
    let mut results: Vec<Outcome> = Vec::with_capacity(request.partitions.len());
    for proposal in &request.partitions {
        results.push(if seen.insert(proposal.partition) {
            alter_partition(image, request.node_id, proposal, &mut records)
        } else {
            Err(AlterPartitionRefusal { code: ErrorCode::InvalidRequest, current: None })
        });
    }
    records.push(MetadataRecord::BrokerSequence {
        node_id: request.node_id,
        sequence: request.sequence,
        reply: codec::encode(&results),
    });
    Ok(Decision { records, reply: Ok(ControllerReply::AlterPartition { results }) })
}

fn stored_reply(reply: &[u8]) -> Result<Decision, Refusal> {
    let results = codec::decode("stored reply", reply, REPLY_SIZE_MAX)
        .map_err(|error| Refusal::new(ErrorCode::UnknownServerError, error.to_string()))?;
    let reply = Ok(ControllerReply::AlterPartition { results });
    Ok(Decision { records: Vec::new(), reply })
}

fn alter_partition(
    image: &MetadataImage,
    sender: NodeId,
    proposal: &AlterPartition,
    records: &mut Vec<MetadataRecord>,
) -> Outcome {
    let refuse = |code| Err(AlterPartitionRefusal { code, current: None });
    let Some(topic) = image.topic_by_id(proposal.partition.topic_id) else {
        return refuse(ErrorCode::UnknownTopicId);
    };
    let Some(current) = topic.partition(proposal.partition.partition) else {
        return refuse(ErrorCode::UnknownTopicOrPartition);
    };
    if is_done_already(current, sender, proposal) {
        return Ok(PartitionImage::clone(current));
    }
    if let Err(code) = check(image, current, sender, proposal) {
        let current = Some(Box::new(PartitionImage::clone(current)));
        return Err(AlterPartitionRefusal { code, current });
    }
    let mut wanted = PartitionImage::clone(current);
    wanted.isr = members(proposal).collect();
    if proposal.recovered {
        wanted.recovery = LeaderRecovery::Recovered;
    }
    let rules = Rules {
        acceptable: &|node| image.can_serve(node, proposal.partition),
        unclean_shutdown: None,
        prefers_first: false,
        min_isr: image.min_isr(&topic.name),
    };
    let Some(state) = partition_change(current, wanted, &rules) else {
        return Ok(PartitionImage::clone(current));
    };
    records.push(MetadataRecord::PartitionChange(PartitionChangeRecord {
        topic_id: topic.topic_id,
        partition: proposal.partition.partition,
        state: Arc::new(state.clone()),
    }));
    if state.leader == sender {
        Ok(state)
    } else {
        // The end of a reassignment took the leadership from the sender.
        Err(AlterPartitionRefusal {
            code: ErrorCode::NewLeaderElected,
            current: Some(Box::new(state)),
        })
    }
}

fn members(proposal: &AlterPartition) -> impl Iterator<Item = NodeId> {
    proposal.isr.iter().map(|(node_id, _)| *node_id)
}

/// The proposal took effect, and the leader did not hear of it.
fn is_done_already(current: &PartitionImage, sender: NodeId, proposal: &AlterPartition) -> bool {
    let recovered = current.recovery == LeaderRecovery::Recovered;
    let isr: BTreeSet<NodeId> = members(proposal).collect();
    current.partition_epoch.0.checked_sub(1) == Some(proposal.partition_epoch.0)
        && current.leader_epoch == proposal.leader_epoch
        && current.leader == sender
        && recovered == proposal.recovered
        && isr.len() == proposal.isr.len()
        && isr == current.isr.iter().copied().collect()
}

/// In the order in which Kafka checks, because the code decides what a leader does next (2.9).
fn check(
    image: &MetadataImage,
    current: &PartitionImage,
    sender: NodeId,
    proposal: &AlterPartition,
) -> Result<(), ErrorCode> {
    let fail = |wrong: bool, code: ErrorCode| if wrong { Err(code) } else { Ok(()) };
    // The leader knows more than this controller, which was deposed.
    fail(
        proposal.leader_epoch > current.leader_epoch
            || proposal.partition_epoch > current.partition_epoch,
        ErrorCode::NotController,
    )?;
    fail(proposal.leader_epoch < current.leader_epoch, ErrorCode::FencedLeaderEpoch)?;
    fail(sender != current.leader, ErrorCode::InvalidRequest)?;
    fail(proposal.partition_epoch < current.partition_epoch, ErrorCode::InvalidUpdateVersion)?;
    let isr: BTreeSet<NodeId> = members(proposal).collect();
    let well_formed = isr.len() == proposal.isr.len()
        && isr.contains(&current.leader)
        && isr.iter().all(|member| current.replicas.contains(member));
    fail(!well_formed, ErrorCode::InvalidRequest)?;
    let was_recovered = current.recovery == LeaderRecovery::Recovered;
    fail(!proposal.recovered && (was_recovered || isr.len() > 1), ErrorCode::InvalidRequest)?;
    let eligible = proposal.isr.iter().all(|(node_id, epoch)| {
        image.broker(*node_id).is_some_and(|broker| {
            image.can_serve(*node_id, proposal.partition)
                && (*epoch == BrokerEpoch::NONE || *epoch == broker.broker_epoch)
        })
    });
    fail(!eligible, ErrorCode::IneligibleReplica)
}

#[cfg(test)]
#[path = "partitions_test.rs"]
mod tests;
