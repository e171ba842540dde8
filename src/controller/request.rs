//! What can be asked of the active controller, and its answers. Any node forwards these to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::metadata::{OfflineImage, PartitionImage, RegisterBrokerRecord};
use crate::protocol::ErrorCode;
use crate::types::{
    BrokerEpoch, ClusterId, ConfigResource, LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch,
    TopicId, TopicIdPartition,
};

/// A refusal: the exact Kafka error code and a sentence for a human.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

pub(super) fn refuse<T>(code: ErrorCode, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::new(code, message))
}

/// A request with its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerCall {
    /// For the audit trail: `broker-2`, `User:ANONYMOUS`, `controller`.
    pub principal: String,
    pub request: ControllerRequest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControllerRequest {
    RegisterBroker(RegisterBrokerRequest),
    Heartbeat(HeartbeatRequest),
    AlterPartition(AlterPartitionRequest),
    AllocateProducerIds {
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
    },
    CreateTopics {
        topics: Vec<CreatableTopic>,
        validate_only: bool,
    },
    DeleteTopics {
        topics: Vec<TopicSelector>,
    },
    AlterConfigs {
        changes: Vec<ConfigChange>,
        validate_only: bool,
    },
    /// Moves every leadership away from the broker and keeps new ones away, until it registers again.
    Drain {
        node_id: NodeId,
    },
    UnregisterBroker {
        node_id: NodeId,
    },
    ReportOffline(ReportOfflineRequest),
    /// Leadership goes to the first replica of these partitions, or of all (Kafka's preferred election).
    ElectLeaders {
        partitions: Option<Vec<TopicIdPartition>>,
    },
    CreatePartitions {
        topics: Vec<MorePartitions>,
        validate_only: bool,
    },
    /// Starts, replaces or cancels moves of replicas.
    Reassign {
        partitions: Vec<Reassignment>,
    },
    /// Makes a learner of the quorum a voter. Carried out by the active controller without a record: the membership is Raft's.
    AddVoter {
        node_id: NodeId,
    },
    /// Makes a voter a learner.
    RemoveVoter {
        node_id: NodeId,
    },
    /// Another voter becomes the active controller.
    TransferController {
        node_id: NodeId,
    },
}

/// The answer to the request of the same name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ControllerReply {
    /// To what the controller asks of itself, and to changes of the quorum.
    Done,
    RegisterBroker {
        broker_epoch: BrokerEpoch,
    },
    Heartbeat(HeartbeatReply),
    AlterPartition {
        results: Vec<Result<PartitionImage, AlterPartitionRefusal>>,
    },
    /// `[first, first + count)`.
    AllocateProducerIds {
        first: i64,
        count: i64,
    },
    CreateTopics {
        results: Vec<Result<CreatedTopic, Refusal>>,
        index: MetadataIndex,
    },
    DeleteTopics {
        results: Vec<Result<DeletedTopic, Refusal>>,
        index: MetadataIndex,
    },
    AlterConfigs {
        results: Vec<Result<(), Refusal>>,
        index: MetadataIndex,
    },
    Drain {
        index: MetadataIndex,
    },
    UnregisterBroker {
        index: MetadataIndex,
    },
    /// Of all partitions: those that needed an election.
    ElectLeaders {
        results: Vec<(TopicIdPartition, Result<(), Refusal>)>,
        index: MetadataIndex,
    },
    CreatePartitions {
        results: Vec<Result<(), Refusal>>,
        index: MetadataIndex,
    },
    Reassign {
        results: Vec<Result<(), Refusal>>,
        index: MetadataIndex,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBrokerRequest {
    pub cluster_id: ClusterId,
    pub registration: RegisterBrokerRecord,
    /// The registration under which the broker last ran, if nothing that it had acknowledged can have been lost since:
    /// from the clean-shutdown mark, or because all of it was on disk and recovery found it there (replication.md
    /// 1.5). Else [`BrokerEpoch::NONE`], and then its replicas are no eligible leaders.
    pub previous_broker_epoch: BrokerEpoch,
    /// Set by the controller's shell after a probe showed that the registered incarnation is gone.
    pub supersede: bool,
}

/// All that a broker cannot serve, as of now. Answered with [`ControllerReply::Done`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportOfflineRequest {
    pub node_id: NodeId,
    pub broker_epoch: BrokerEpoch,
    pub offline: Arc<OfflineImage>,
    /// Those of its replicas that may lack records that they had acknowledged: they are no eligible leaders any more.
    pub lossy: BTreeSet<TopicIdPartition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatRequest {
    pub node_id: NodeId,
    pub broker_epoch: BrokerEpoch,
    /// Last metadata index that the broker has applied *and published* to its partitions.
    pub applied_index: MetadataIndex,
    pub want_fence: bool,
    pub want_shutdown: bool,
    /// How long some log disk has not done what it was asked to do.
    pub disk_stall_ms: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    pub is_fenced: bool,
    pub is_caught_up: bool,
    pub in_controlled_shutdown: bool,
    pub should_shut_down: bool,
}

/// Leaders propose ISR changes with this (replication.md 1.4.4, 2.9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartitionRequest {
    pub node_id: NodeId,
    pub broker_epoch: BrokerEpoch,
    /// Numbered per broker incarnation from 1. A resend keeps its number.
    pub sequence: u64,
    pub partitions: Vec<AlterPartition>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartition {
    pub partition: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// With the broker epoch of each member as the leader knows it; NONE where it does not.
    pub isr: Vec<(NodeId, BrokerEpoch)>,
    pub recovered: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reassignment {
    pub partition: TopicIdPartition,
    /// Who shall hold it, the preferred leader first; `None` cancels what is under way.
    pub replicas: Option<Vec<NodeId>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlterPartitionRefusal {
    pub code: ErrorCode,
    /// What the controller holds, where the partition exists.
    pub current: Option<Box<PartitionImage>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatableTopic {
    pub name: String,
    /// Chosen by the shell that received the request, so that deciding stays pure.
    pub topic_id: TopicId,
    /// -1: the cluster's default.
    pub partition_count: i32,
    /// -1: the cluster's default, min(3, registered unfenced brokers).
    pub replication_factor: i16,
    /// Partition number to replicas. Empty: placed by the controller.
    pub assignments: BTreeMap<i32, Vec<NodeId>>,
    pub configs: Vec<(String, Option<String>)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedTopic {
    pub name: String,
    pub topic_id: TopicId,
    pub partition_count: i32,
    pub replication_factor: i16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MorePartitions {
    pub name: String,
    /// How many there shall be.
    pub count: i32,
    /// Replicas of each new one. `None`: placed by the controller.
    pub assignments: Option<Vec<Vec<NodeId>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TopicSelector {
    Name(String),
    Id(TopicId),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTopic {
    pub name: Arc<str>,
    pub topic_id: TopicId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigChange {
    pub resource: ConfigResource,
    /// Applied together or not at all.
    pub operations: Vec<(String, ConfigOperation)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigOperation {
    Set(String),
    Delete,
    /// To a list.
    Append(String),
    /// From a list.
    Subtract(String),
}
