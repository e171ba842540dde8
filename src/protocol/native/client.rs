//! What a Rust program can ask on the clients port. Admin requests are `ControllerRequest`s under `Kind::Controller`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::protocol::ErrorCode;
use crate::types::{
    ClusterId, ConfigResource, Endpoints, HostPort, LeaderEpoch, NodeId, Offset, PartitionEpoch,
    RaftNodeId, TimestampMs, TopicId,
};

/// `topics: None` asks for all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataRequest {
    pub topics: Option<Vec<String>>,
}

/// Why a partition is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainRequest {
    pub topic: String,
    pub partition: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataReply {
    pub cluster_id: ClusterId,
    pub controller: Option<NodeId>,
    pub brokers: Vec<BrokerView>,
    pub topics: Vec<TopicView>,
    /// Names that were asked for and do not exist.
    pub unknown: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerView {
    pub node_id: NodeId,
    pub endpoints: Endpoints,
    pub rack: Option<String>,
    pub broker_epoch: i64,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    /// Log directories that failed, and why.
    pub offline_directories: BTreeMap<String, String>,
    /// How many of its replicas it cannot serve.
    pub offline_replicas: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicView {
    pub topic_id: TopicId,
    pub name: String,
    pub partitions: Vec<PartitionView>,
    /// Only what differs from the default.
    pub configs: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionView {
    pub partition: i32,
    pub leader: NodeId,
    pub leader_epoch: LeaderEpoch,
    pub partition_epoch: PartitionEpoch,
    pub replicas: Vec<NodeId>,
    pub isr: Vec<NodeId>,
    pub elr: Vec<NodeId>,
    /// Replicas that are being added, or removed, until those that shall stay are in sync.
    pub adding: Vec<NodeId>,
    pub removing: Vec<NodeId>,
}

/// The payload holds the batches of the entries, one batch an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProduceRequest {
    /// -1, 0 or 1. Unlike Kafka's, a request with 0 is answered, before the append is durable.
    pub acks: i16,
    pub timeout_ms: u32,
    pub entries: Vec<ProduceEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProduceEntry {
    pub topic_id: TopicId,
    pub partition: i32,
    pub size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProduceReply {
    pub results: Vec<Result<Produced, PartitionError>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Produced {
    pub base_offset: Offset,
    /// -1 unless the topic stamps records itself.
    pub log_append_time_ms: TimestampMs,
    pub log_start_offset: Offset,
}

/// A refusal for one partition, with who leads it where that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code:?}: {message}")]
pub struct PartitionError {
    pub code: ErrorCode,
    pub message: String,
    pub leader: Option<(NodeId, LeaderEpoch)>,
    /// The records of a batch that are at fault, by index, and why. Only Kafka's clients are told one by one.
    #[serde(skip)]
    pub record_errors: Vec<(i32, String)>,
}

/// Waits until `bytes_min` are there or `wait_ms` have passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchRequest {
    pub wait_ms: u32,
    pub bytes_min: u32,
    pub bytes_max: u32,
    pub entries: Vec<FetchEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchEntry {
    pub topic_id: TopicId,
    pub partition: i32,
    pub leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub bytes_max: u32,
}

/// The payload holds the batches of the entries, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchReply {
    pub results: Vec<Result<Fetched, PartitionError>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    pub size: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOffsetsRequest {
    pub entries: Vec<(TopicId, i32, OffsetQuery)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OffsetQuery {
    Earliest,
    /// The high watermark.
    Latest,
    /// First record at or after the time.
    Timestamp(TimestampMs),
    MaxTimestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListOffsetsReply {
    pub results: Vec<Result<ListedOffset, PartitionError>>,
}

/// Offset -1 and timestamp -1: no such record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedOffset {
    pub offset: Offset,
    pub timestamp: TimestampMs,
    pub leader_epoch: LeaderEpoch,
}

/// Deletes the records before an offset of each partition (-1: all that is committed).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteRecordsRequest {
    /// How long to wait until all live replicas have the new log starts.
    pub timeout_ms: u32,
    pub entries: Vec<(TopicId, i32, Offset)>,
}

/// The lowest log start of the live replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteRecordsReply {
    pub results: Vec<Result<Offset, PartitionError>>,
}

/// Of an idempotent producer without transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitProducerIdRequest;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InitProducerIdReply {
    pub producer_id: i64,
    pub producer_epoch: i16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumStatusRequest;

/// The quorum as the answering node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumStatus {
    pub cluster_id: ClusterId,
    /// The node that answered.
    pub node_id: NodeId,
    pub leader_id: Option<NodeId>,
    pub term: u64,
    pub last_log_index: u64,
    pub applied_index: u64,
    pub voters: Vec<QuorumMember>,
    pub learners: Vec<QuorumMember>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumMember {
    pub node_id: NodeId,
    pub raft_node_id: RaftNodeId,
    pub peer: HostPort,
    /// Entries behind the leader; `None` unless the active controller answers.
    pub lag: Option<u64>,
}

/// Effective configs of one resource, defaults included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribeConfigsRequest {
    pub resource: ConfigResource,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigView {
    pub name: String,
    pub value: Option<String>,
    /// `topic`, `broker`, `cluster`, `static` or `default`.
    pub source: String,
    pub read_only: bool,
    pub documentation: String,
}
