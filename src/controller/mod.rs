//! Decisions of the active controller: `(image, soft state, request, now, seed) -> Decision { records, reply }`.
//!
//! The shell in `quorum` begins a [`Turn`] on the applied image, decides all requests that wait, proposes the one batch
//! that comes out, and answers when it is applied. [`Liveness`] is the soft state: who has been heard of.
//!
//! Invariant: no tokio, no clock, no randomness, no `HashMap` iteration, no I/O. Nothing here changes an image that
//! anybody else sees.

mod heartbeat;
mod liveness;
mod request;
mod turn;

pub use heartbeat::heartbeat_reply;
pub use liveness::{Liveness, LivenessConfig, LivenessEffect, ProbeVerdict};
pub use request::*;
pub use turn::{PendingReply, Turn};

use crate::metadata::{MetadataImage, MetadataRecord};
use crate::types::{BrokerEpoch, ClusterId, MetadataIndex, NodeId, TimestampMs};

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
pub enum DecisionRequest {
    Call(ControllerCall),
    Fence { node_id: NodeId, broker_epoch: BrokerEpoch, cause: String },
    Unfence { node_id: NodeId, broker_epoch: BrokerEpoch, applied_index: MetadataIndex },
    BeginControlledShutdown { node_id: NodeId, broker_epoch: BrokerEpoch },
}

/// Decides one request. `image` is the applied one plus the records of this turn.
pub fn decide(
    image: &MetadataImage,
    context: &DecisionContext<'_>,
    request: &DecisionRequest,
) -> Decision {
    let _ = (image, context, request);
    todo!()
}
