//! Key 23: where a leader epoch ends, to notice a truncated log.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct OffsetForLeaderEpochRequest {
        [3..] replica_id: i32 = -2,
        [0..] topics: Vec<OffsetForLeaderTopic>,
    }

    pub struct OffsetForLeaderTopic {
        [0..] topic: Text,
        [0..] partitions: Vec<OffsetForLeaderPartition>,
    }

    pub struct OffsetForLeaderPartition {
        [0..] partition: i32,
        [2..] current_leader_epoch: i32 = -1,
        [0..] leader_epoch: i32,
    }

    pub struct OffsetForLeaderEpochResponse {
        [2..] throttle_time_ms: i32,
        [0..] topics: Vec<OffsetForLeaderTopicResult>,
    }

    pub struct OffsetForLeaderTopicResult {
        [0..] topic: Text,
        [0..] partitions: Vec<EpochEndOffset>,
    }

    pub struct EpochEndOffset {
        [0..] error_code: i16,
        [0..] partition: i32,
        [1..] leader_epoch: i32 = -1,
        [0..] end_offset: i64 = -1,
    }
}
