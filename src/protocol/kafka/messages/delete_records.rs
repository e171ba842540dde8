//! Key 21: raising the log start of partitions.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct DeleteRecordsRequest {
        [0..] topics: Vec<DeleteRecordsTopic>,
        [0..] timeout_ms: i32,
    }

    pub struct DeleteRecordsTopic {
        [0..] name: Text,
        [0..] partitions: Vec<DeleteRecordsPartition>,
    }

    pub struct DeleteRecordsPartition {
        [0..] partition_index: i32,
        /// -1: the high watermark.
        [0..] offset: i64,
    }

    pub struct DeleteRecordsResponse {
        [0..] throttle_time_ms: i32,
        [0..] topics: Vec<DeleteRecordsTopicResult>,
    }

    pub struct DeleteRecordsTopicResult {
        [0..] name: Text,
        [0..] partitions: Vec<DeleteRecordsPartitionResult>,
    }

    pub struct DeleteRecordsPartitionResult {
        [0..] partition_index: i32,
        /// The lowest log start of all live replicas.
        [0..] low_watermark: i64 = -1,
        [0..] error_code: i16,
    }
}
