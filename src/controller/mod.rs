//! Decisions of the active controller: `(image, soft state, request, now, seed) -> Decision { records, reply }`.
//!
//! The shell in `quorum` begins a [`Turn`] on the applied image, decides all requests that wait, proposes the one batch
//! that comes out, and answers when it is applied. [`Liveness`] is the soft state: who has been heard of.
//!
//! Invariant: no tokio, no clock, no randomness, no `HashMap` iteration, no I/O. Nothing here changes an image that
//! anybody else sees.

mod brokers;
mod configs;
mod create_partitions;
mod heartbeat;
#[cfg(test)]
mod history_test;
mod liveness;
mod offline;
mod partition_change;
mod partitions;
mod placement;
mod preferred;
mod producer_ids;
mod reassignment;
mod request;
mod sweep;
#[cfg(test)]
mod test_support;
mod topics;
mod turn;

pub use heartbeat::heartbeat_reply;
pub use liveness::{Liveness, LivenessConfig, LivenessEffect, ProbeVerdict};
pub use preferred::misplaced;
pub use request::*;
pub use turn::{PendingReply, Turn};

use crate::metadata::{MetadataImage, MetadataRecord};
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, ClusterId, MetadataIndex, NodeId, TimestampMs, TopicIdPartition};

/// What a request does: facts for the log, and an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub records: Vec<MetadataRecord>,
    pub reply: Result<ControllerReply, Refusal>,
}

/// Everything a decision may depend on beside the image and the request.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    pub now_ms: TimestampMs,
    pub seed: u64,
    pub liveness: &'a Liveness,
    pub defaults: &'a ClusterDefaults,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDefaults {
    pub partition_count: i32,
    /// `None`: min(3, active brokers).
    pub replication_factor: Option<i16>,
    pub cluster_id: ClusterId,
}

/// What can be decided: calls of others, and what the controller's own soft state asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "most are calls")]
pub enum DecisionRequest {
    Call(ControllerCall),
    Fence {
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        cause: String,
    },
    Unfence {
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        applied_index: MetadataIndex,
    },
    BeginControlledShutdown {
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
    },
    /// Its disk is stalled: others are to lead.
    Relieve {
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
    },
    /// What [`misplaced`] found.
    ElectPreferred {
        partitions: Vec<TopicIdPartition>,
    },
}

/// One user's request makes no more than this. Fencing and registration are exempt (replication.md 1.1 R8).
const RECORDS_MAX: usize = 10_000;

impl Decision {
    fn done(records: Vec<MetadataRecord>) -> Self {
        Self { records, reply: Ok(ControllerReply::Done) }
    }

    fn nothing() -> Self {
        Self::done(Vec::new())
    }

    fn refused(refusal: Refusal) -> Self {
        Self { records: Vec::new(), reply: Err(refusal) }
    }
}

/// Decides one request. `image` is the applied one plus the records of this turn.
pub fn decide(
    image: &MetadataImage,
    context: &DecisionContext<'_>,
    request: &DecisionRequest,
) -> Decision {
    let decided = match request {
        DecisionRequest::Call(call) => decide_call(image, context, &call.request),
        DecisionRequest::Fence { node_id, broker_epoch, .. } => {
            Ok(brokers::fence(image, *node_id, *broker_epoch))
        }
        DecisionRequest::Unfence { node_id, broker_epoch, applied_index } => {
            brokers::unfence(image, *node_id, *broker_epoch, *applied_index)
        }
        DecisionRequest::BeginControlledShutdown { node_id, broker_epoch } => {
            brokers::begin_controlled_shutdown(image, *node_id, *broker_epoch)
        }
        DecisionRequest::Relieve { node_id, broker_epoch } => {
            brokers::relieve(image, context.liveness, *node_id, *broker_epoch)
        }
        DecisionRequest::ElectPreferred { partitions } => {
            Ok(preferred::elect(image, Some(partitions)))
        }
    };
    decided.unwrap_or_else(Decision::refused)
}

fn decide_call(
    image: &MetadataImage,
    context: &DecisionContext<'_>,
    request: &ControllerRequest,
) -> Result<Decision, Refusal> {
    match request {
        ControllerRequest::RegisterBroker(request) => brokers::register(image, context, request),
        ControllerRequest::Heartbeat(request) => {
            let (reply, next) = heartbeat_reply(image, context.liveness, request)?;
            let records = match next {
                Some(next) => decide(image, context, &next).records,
                None => Vec::new(),
            };
            Ok(Decision { records, reply: Ok(ControllerReply::Heartbeat(reply)) })
        }
        ControllerRequest::AlterPartition(request) => partitions::alter_partitions(image, request),
        ControllerRequest::AllocateProducerIds { node_id, broker_epoch } => {
            producer_ids::allocate(image, *node_id, *broker_epoch)
        }
        ControllerRequest::CreateTopics { topics, validate_only } => {
            Ok(topics::create(image, context, topics, *validate_only))
        }
        ControllerRequest::CreatePartitions { topics, validate_only } => {
            Ok(create_partitions::create(image, context, topics, *validate_only))
        }
        ControllerRequest::DeleteTopics { topics } => Ok(topics::delete(image, topics)),
        ControllerRequest::AlterConfigs { changes, validate_only } => {
            configs::alter(image, changes, *validate_only)
        }
        ControllerRequest::Drain { node_id } => brokers::drain(image, *node_id),
        ControllerRequest::UnregisterBroker { node_id } => brokers::unregister(image, *node_id),
        ControllerRequest::ElectLeaders { partitions } => {
            Ok(preferred::elect(image, partitions.as_deref()))
        }
        ControllerRequest::AddVoter { .. }
        | ControllerRequest::RemoveVoter { .. }
        | ControllerRequest::TransferController { .. } => {
            let reason = "the membership of the quorum is not decided by records";
            Err(Refusal::new(ErrorCode::InvalidRequest, reason))
        }
        ControllerRequest::Reassign { partitions } => Ok(reassignment::reassign(image, partitions)),
        ControllerRequest::ReportOffline(request) => offline::report(image, request),
    }
}
