//! Keys 3 and 75: brokers, topics, partitions and who leads them.

use super::super::message::message;
use super::super::text::Text;
use super::super::wire::Nullable;
use super::OPERATIONS_OMITTED;
use crate::types::Uuid;

message! {
    pub struct MetadataRequest {
        /// Null asks for all topics; in version 0 an empty list does.
        [0..] topics: Option<Vec<MetadataRequestTopic>>,
        [4..] allow_auto_topic_creation: bool = true,
        [8..=10] include_cluster_authorized_operations: bool,
        [8..] include_topic_authorized_operations: bool,
    }

    pub struct MetadataRequestTopic {
        [10..] topic_id: Uuid = Uuid::ZERO,
        /// Null from version 12 on, when the id is meant.
        [0..] name: Option<Text>,
    }

    pub struct MetadataResponse {
        [3..] throttle_time_ms: i32,
        [0..] brokers: Vec<MetadataBroker>,
        [2..] cluster_id: Option<Text>,
        [1..] controller_id: i32 = -1,
        [0..] topics: Vec<MetadataTopic>,
        [8..=10] cluster_authorized_operations: i32 = OPERATIONS_OMITTED,
        [13..] error_code: i16,
    }

    pub struct MetadataBroker {
        [0..] node_id: i32,
        [0..] host: Text,
        [0..] port: i32,
        [1..] rack: Option<Text>,
    }

    pub struct MetadataTopic {
        [0..] error_code: i16,
        [0..] name: Option<Text>,
        [10..] topic_id: Uuid = Uuid::ZERO,
        [1..] is_internal: bool,
        [0..] partitions: Vec<MetadataPartition>,
        [8..] topic_authorized_operations: i32 = OPERATIONS_OMITTED,
    }

    pub struct MetadataPartition {
        [0..] error_code: i16,
        [0..] partition_index: i32,
        [0..] leader_id: i32,
        [7..] leader_epoch: i32 = -1,
        [0..] replica_nodes: Vec<i32>,
        [0..] isr_nodes: Vec<i32>,
        [5..] offline_replicas: Vec<i32>,
    }

    pub struct DescribeTopicPartitionsRequest {
        [0..] topics: Vec<DescribeTopicPartitionsRequestTopic>,
        [0..] response_partition_limit: i32 = 2000,
        [0..] cursor: Nullable<TopicPartitionCursor>,
    }

    pub struct DescribeTopicPartitionsRequestTopic {
        [0..] name: Text,
    }

    /// Where the next page starts.
    pub struct TopicPartitionCursor {
        [0..] topic_name: Text,
        [0..] partition_index: i32,
    }

    pub struct DescribeTopicPartitionsResponse {
        [0..] throttle_time_ms: i32,
        [0..] topics: Vec<DescribedTopic>,
        [0..] next_cursor: Nullable<TopicPartitionCursor>,
    }

    pub struct DescribedTopic {
        [0..] error_code: i16,
        [0..] name: Option<Text>,
        [0..] topic_id: Uuid = Uuid::ZERO,
        [0..] is_internal: bool,
        [0..] partitions: Vec<DescribedPartition>,
        [0..] topic_authorized_operations: i32 = OPERATIONS_OMITTED,
    }

    pub struct DescribedPartition {
        [0..] error_code: i16,
        [0..] partition_index: i32,
        [0..] leader_id: i32,
        [0..] leader_epoch: i32 = -1,
        [0..] replica_nodes: Vec<i32>,
        [0..] isr_nodes: Vec<i32>,
        [0..] eligible_leader_replicas: Option<Vec<i32>>,
        [0..] last_known_elr: Option<Vec<i32>>,
        [0..] offline_replicas: Vec<i32>,
    }
}
