//! Key 0: record batches to append.

use super::super::message::message;
use super::super::text::Text;
use super::super::wire::Records;
use super::{LeaderIdAndEpoch, NodeEndpoint};
use crate::types::Uuid;

message! {
    pub struct ProduceRequest {
        [3..] transactional_id: Option<Text>,
        [0..] acks: i16,
        [0..] timeout_ms: i32,
        [0..] topic_data: Vec<ProduceTopic>,
    }

    pub struct ProduceTopic {
        [0..=12] name: Text,
        [13..] topic_id: Uuid = Uuid::ZERO,
        [0..] partition_data: Vec<ProducePartition>,
    }

    pub struct ProducePartition {
        [0..] index: i32,
        [0..] records: Records,
    }

    pub struct ProduceResponse {
        [0..] responses: Vec<ProduceTopicResponse>,
        [1..] throttle_time_ms: i32,
        /// Where the current leaders of the partitions below are (KIP-951).
        [10..] node_endpoints: Vec<NodeEndpoint> => tag 0,
    }

    pub struct ProduceTopicResponse {
        [0..=12] name: Text,
        [13..] topic_id: Uuid = Uuid::ZERO,
        [0..] partition_responses: Vec<ProducePartitionResponse>,
    }

    pub struct ProducePartitionResponse {
        [0..] index: i32,
        [0..] error_code: i16,
        [0..] base_offset: i64,
        [2..] log_append_time_ms: i64 = -1,
        [5..] log_start_offset: i64 = -1,
        [8..] record_errors: Vec<RecordError>,
        [8..] error_message: Option<Text>,
        [10..] current_leader: LeaderIdAndEpoch => tag 0,
    }

    pub struct RecordError {
        [8..] batch_index: i32,
        [8..] batch_index_error_message: Option<Text>,
    }
}
