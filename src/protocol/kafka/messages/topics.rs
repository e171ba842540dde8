//! Keys 19, 20, 43, 45 and 46: making and removing topics, choosing their leaders, and moving them.

use super::super::message::message;
use super::super::text::Text;
use crate::types::Uuid;

message! {
    pub struct CreateTopicsRequest {
        [0..] topics: Vec<CreatableTopic>,
        [0..] timeout_ms: i32 = 60_000,
        [1..] validate_only: bool,
    }

    pub struct CreatableTopic {
        [0..] name: Text,
        /// -1: the default of the cluster, or as many as are assigned below.
        [0..] num_partitions: i32,
        [0..] replication_factor: i16,
        [0..] assignments: Vec<CreatableAssignment>,
        [0..] configs: Vec<CreatableConfig>,
    }

    pub struct CreatableAssignment {
        [0..] partition_index: i32,
        [0..] broker_ids: Vec<i32>,
    }

    pub struct CreatableConfig {
        [0..] name: Text,
        [0..] value: Option<Text>,
    }

    pub struct CreateTopicsResponse {
        [2..] throttle_time_ms: i32,
        [0..] topics: Vec<CreatedTopic>,
    }

    pub struct CreatedTopic {
        [0..] name: Text,
        [7..] topic_id: Uuid = Uuid::ZERO,
        [0..] error_code: i16,
        [1..] error_message: Option<Text>,
        [5..] topic_config_error_code: i16 => tag 0,
        [5..] num_partitions: i32 = -1,
        [5..] replication_factor: i16 = -1,
        [5..] configs: Option<Vec<CreatedTopicConfig>>,
    }

    pub struct CreatedTopicConfig {
        [5..] name: Text,
        [5..] value: Option<Text>,
        [5..] read_only: bool,
        [5..] config_source: i8 = -1,
        [5..] is_sensitive: bool,
    }

    pub struct DeleteTopicsRequest {
        [6..] topics: Vec<DeleteTopicState>,
        [0..=5] topic_names: Vec<Text>,
        [0..] timeout_ms: i32,
    }

    /// By name, or by id where the name is null.
    pub struct DeleteTopicState {
        [6..] name: Option<Text>,
        [6..] topic_id: Uuid = Uuid::ZERO,
    }

    pub struct DeleteTopicsResponse {
        [1..] throttle_time_ms: i32,
        [0..] responses: Vec<DeletedTopic>,
    }

    pub struct DeletedTopic {
        [0..] name: Option<Text>,
        [6..] topic_id: Uuid = Uuid::ZERO,
        [0..] error_code: i16,
        [5..] error_message: Option<Text>,
    }

    pub struct ElectLeadersRequest {
        /// 0: preferred; 1: unclean.
        [1..] election_type: i8,
        /// Null asks for all.
        [0..] topic_partitions: Option<Vec<ElectedTopic>>,
        [0..] timeout_ms: i32 = 60_000,
    }

    pub struct ElectedTopic {
        [0..] topic: Text,
        [0..] partitions: Vec<i32>,
    }

    pub struct ElectLeadersResponse {
        [0..] throttle_time_ms: i32,
        [1..] error_code: i16,
        [0..] replica_election_results: Vec<ElectionResult>,
    }

    pub struct ElectionResult {
        [0..] topic: Text,
        [0..] partition_result: Vec<PartitionElectionResult>,
    }

    pub struct PartitionElectionResult {
        [0..] partition_id: i32,
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
    }

    pub struct AlterPartitionReassignmentsRequest {
        [0..] timeout_ms: i32 = 60_000,
        [1..] allow_replication_factor_change: bool = true,
        [0..] topics: Vec<ReassignedTopic>,
    }

    pub struct ReassignedTopic {
        [0..] name: Text,
        [0..] partitions: Vec<ReassignedPartition>,
    }

    pub struct ReassignedPartition {
        [0..] partition_index: i32,
        /// Null cancels.
        [0..] replicas: Option<Vec<i32>>,
    }

    pub struct AlterPartitionReassignmentsResponse {
        [0..] throttle_time_ms: i32,
        [1..] allow_replication_factor_change: bool = true,
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
        [0..] responses: Vec<ReassignedTopicResult>,
    }

    pub struct ReassignedTopicResult {
        [0..] name: Text,
        [0..] partitions: Vec<ReassignedPartitionResult>,
    }

    pub struct ReassignedPartitionResult {
        [0..] partition_index: i32,
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
    }

    pub struct ListPartitionReassignmentsRequest {
        [0..] timeout_ms: i32 = 60_000,
        /// Null asks for all.
        [0..] topics: Option<Vec<ReassignmentsTopic>>,
    }

    pub struct ReassignmentsTopic {
        [0..] name: Text,
        [0..] partition_indexes: Vec<i32>,
    }

    pub struct ListPartitionReassignmentsResponse {
        [0..] throttle_time_ms: i32,
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
        [0..] topics: Vec<OngoingTopicReassignment>,
    }

    pub struct OngoingTopicReassignment {
        [0..] name: Text,
        [0..] partitions: Vec<OngoingPartitionReassignment>,
    }

    pub struct OngoingPartitionReassignment {
        [0..] partition_index: i32,
        [0..] replicas: Vec<i32>,
        [0..] adding_replicas: Vec<i32>,
        [0..] removing_replicas: Vec<i32>,
    }
}
