//! The facts of the metadata log.
//!
//! A batch is what one turn of the controller loop proposes and what every node replays whole or not at all. Records
//! say what *is*, never what somebody asked for (design D3). New variants are appended at the end of the enum, and are
//! written only when `metadata.version` allows them; a node that reads a variant it does not know stops.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::types::{
    BrokerEpoch, ConfigResource, DirectoryId, Endpoints, IncarnationId, LeaderEpoch, MetadataIndex,
    NodeId, PartitionEpoch, RaftNodeId, TimestampMs, TopicId, TopicIdPartition,
};

/// Format of [`MetadataBatch`]. A node refuses batches with a higher number.
pub const BATCH_VERSION: u16 = 1;

/// What one turn of the controller decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataBatch {
    pub version: u16,
    /// Index of the last batch that the decision saw. Replay drops a batch whose basis is not the last one.
    pub basis: MetadataIndex,
    /// Raft term under which it was decided.
    pub controller_epoch: u64,
    /// Wall clock of the active controller, never lower than in an earlier batch.
    pub time_ms: TimestampMs,
    /// Who asked and why: the audit trail. One entry per request that produced records.
    pub causes: Vec<Cause>,
    pub records: Vec<MetadataRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    pub principal: String,
    pub request: String,
    /// How many of the batch's records it produced.
    pub record_count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MetadataRecord {
    RegisterBroker(RegisterBrokerRecord),
    UnregisterBroker {
        node_id: NodeId,
    },
    BrokerChange(BrokerChangeRecord),
    Topic(TopicRecord),
    RemoveTopic {
        topic_id: TopicId,
    },
    Partition(PartitionRecord),
    PartitionChange(PartitionChangeRecord),
    /// `value: None` removes the key.
    Config {
        resource: ConfigResource,
        key: String,
        value: Option<String>,
    },
    /// The first producer id that has not been handed out.
    ProducerIds {
        next: i64,
    },
    FeatureLevel {
        name: String,
        level: i16,
    },
    /// The last numbered request of a broker and its reply, so that a resend gets the same answer (1.1 R4).
    BrokerSequence {
        node_id: NodeId,
        sequence: u64,
        reply: Vec<u8>,
    },
    /// Digest of the image before this batch; a node whose own digest differs stops (1.1 R7).
    Digest {
        index: MetadataIndex,
        digest: u128,
    },
    /// All that a broker cannot serve from now on, in place of what it said before.
    Offline {
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        offline: Arc<OfflineImage>,
    },
}

/// What a broker cannot serve although it is alive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfflineImage {
    /// Log directories, and what is wrong with each.
    pub directories: BTreeMap<String, String>,
    /// Replicas: those in these directories, and those whose log is damaged.
    pub replicas: BTreeSet<TopicIdPartition>,
}

/// A new registration. Its broker epoch is the index at which it is replayed. It starts fenced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterBrokerRecord {
    pub node_id: NodeId,
    pub incarnation: IncarnationId,
    pub raft_node_id: RaftNodeId,
    pub directory_ids: Vec<DirectoryId>,
    pub endpoints: Endpoints,
    pub rack: Option<String>,
    /// Feature name to the inclusive range of levels it supports.
    pub features: BTreeMap<String, (i16, i16)>,
}

/// Only the fields that are `Some` change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerChangeRecord {
    pub node_id: NodeId,
    pub broker_epoch: BrokerEpoch,
    pub fenced: Option<bool>,
    pub in_controlled_shutdown: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    pub topic_id: TopicId,
    pub name: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRecord {
    pub topic_id: TopicId,
    pub partition: i32,
    /// Shared with the image that it becomes part of.
    pub state: Arc<PartitionImage>,
}

/// The whole state of a partition, in records as in the image: partitions are small and change often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionImage {
    /// Assigned replicas, preferred leader first.
    pub replicas: Vec<NodeId>,
    pub isr: Vec<NodeId>,
    /// Eligible leader replicas (KIP-966): complete up to the high watermark, though not in the ISR.
    pub elr: Vec<NodeId>,
    pub last_known_elr: Vec<NodeId>,
    /// [`NodeId::NONE`] when nobody may lead.
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    /// Replicas that a reassignment adds and removes.
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
    pub recovery: LeaderRecovery,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaderRecovery {
    Recovered,
    /// The leader was elected uncleanly and has not said yet that it recovered.
    Recovering,
}

/// The next state of a partition. Replay checks that its epochs follow the image's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionChangeRecord {
    pub topic_id: TopicId,
    pub partition: i32,
    /// Shared with the image that it becomes part of.
    pub state: Arc<PartitionImage>,
}
