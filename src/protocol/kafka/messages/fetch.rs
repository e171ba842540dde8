//! Key 1: record batches to read.

use super::super::message::message;
use super::super::text::Text;
use super::super::wire::Records;
use crate::types::Uuid;

message! {
    pub struct FetchRequest {
        [12..] cluster_id: Option<Text> => tag 0,
        [0..=14] replica_id: i32 = -1,
        [15..] replica_state: ReplicaState => tag 1,
        [0..] max_wait_ms: i32,
        [0..] min_bytes: i32,
        [3..] max_bytes: i32 = i32::MAX,
        [4..] isolation_level: i8,
        [7..] session_id: i32,
        [7..] session_epoch: i32 = -1,
        [0..] topics: Vec<FetchTopic>,
        [7..] forgotten_topics_data: Vec<ForgottenTopic>,
        [11..] rack_id: Text,
    }

    pub struct ReplicaState {
        [15..] replica_id: i32 = -1,
        [15..] replica_epoch: i64 = -1,
    }

    pub struct FetchTopic {
        [0..=12] topic: Text,
        [13..] topic_id: Uuid = Uuid::ZERO,
        [0..] partitions: Vec<FetchPartition>,
    }

    pub struct FetchPartition {
        [0..] partition: i32,
        [9..] current_leader_epoch: i32 = -1,
        [0..] fetch_offset: i64,
        [12..] last_fetched_epoch: i32 = -1,
        [5..] log_start_offset: i64 = -1,
        [0..] partition_max_bytes: i32,
        [17..] replica_directory_id: Uuid = Uuid::ZERO => tag 0,
        [18..] high_watermark: i64 = i64::MAX => tag 1,
    }

    pub struct ForgottenTopic {
        [7..=12] topic: Text,
        [13..] topic_id: Uuid = Uuid::ZERO,
        [7..] partitions: Vec<i32>,
    }

    pub struct FetchResponse {
        [1..] throttle_time_ms: i32,
        [7..] error_code: i16,
        /// 0: no session.
        [7..] session_id: i32,
        [0..] responses: Vec<FetchTopicResponse>,
        /// Where the current leaders of the partitions above are (KIP-951).
        [16..] node_endpoints: Vec<NodeEndpoint> => tag 0,
    }

    pub struct FetchTopicResponse {
        [0..=12] topic: Text,
        [13..] topic_id: Uuid = Uuid::ZERO,
        [0..] partitions: Vec<FetchPartitionResponse>,
    }

    pub struct FetchPartitionResponse {
        [0..] partition_index: i32,
        [0..] error_code: i16,
        [0..] high_watermark: i64,
        [4..] last_stable_offset: i64 = -1,
        [5..] log_start_offset: i64 = -1,
        [12..] diverging_epoch: DivergingEpoch => tag 0,
        [12..] current_leader: LeaderIdAndEpoch => tag 1,
        [12..] snapshot_id: SnapshotId => tag 2,
        [4..] aborted_transactions: Option<Vec<AbortedTransaction>>,
        [11..] preferred_read_replica: i32 = -1,
        [0..] records: Records,
    }

    pub struct AbortedTransaction {
        [4..] producer_id: i64,
        [4..] first_offset: i64,
    }

    pub struct DivergingEpoch {
        [12..] epoch: i32 = -1,
        [12..] end_offset: i64 = -1,
    }

    pub struct SnapshotId {
        [0..] end_offset: i64 = -1,
        [0..] epoch: i32 = -1,
    }

    /// Who leads now, for a client that asked somebody else.
    pub struct LeaderIdAndEpoch {
        [0..] leader_id: i32 = -1,
        [0..] leader_epoch: i32 = -1,
    }

    /// Where that is.
    pub struct NodeEndpoint {
        [0..] node_id: i32,
        [0..] host: Text,
        [0..] port: i32,
        [0..] rack: Option<Text>,
    }
}
