//! Key 2: the offset at a time, or at an end.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct ListOffsetsRequest {
        [0..] replica_id: i32 = -1,
        [2..] isolation_level: i8,
        [0..] topics: Vec<ListOffsetsTopic>,
        [10..] timeout_ms: i32,
    }

    pub struct ListOffsetsTopic {
        [0..] name: Text,
        [0..] partitions: Vec<ListOffsetsPartition>,
    }

    pub struct ListOffsetsPartition {
        [0..] partition_index: i32,
        [4..] current_leader_epoch: i32 = -1,
        /// A time, or one of the `TIMESTAMP_*` below.
        [0..] timestamp: i64,
    }

    pub struct ListOffsetsResponse {
        [2..] throttle_time_ms: i32,
        [0..] topics: Vec<ListOffsetsTopicResponse>,
    }

    pub struct ListOffsetsTopicResponse {
        [0..] name: Text,
        [0..] partitions: Vec<ListOffsetsPartitionResponse>,
    }

    pub struct ListOffsetsPartitionResponse {
        [0..] partition_index: i32,
        [0..] error_code: i16,
        [1..] timestamp: i64 = -1,
        [1..] offset: i64 = -1,
        [4..] leader_epoch: i32 = -1,
    }
}

pub const TIMESTAMP_LATEST: i64 = -1;
pub const TIMESTAMP_EARLIEST: i64 = -2;
/// From version 7: the record with the highest timestamp.
pub const TIMESTAMP_MAX: i64 = -3;
/// From version 8: the first record on local disk.
pub const TIMESTAMP_EARLIEST_LOCAL: i64 = -4;
/// From version 9: the last record in remote storage.
pub const TIMESTAMP_LATEST_TIERED: i64 = -5;
/// From version 11: the first record that is not in remote storage yet.
pub const TIMESTAMP_EARLIEST_PENDING_UPLOAD: i64 = -6;
