//! Key 37: more partitions for topics.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct CreatePartitionsRequest {
        [0..] topics: Vec<CreatePartitionsTopic>,
        [0..] timeout_ms: i32,
        [0..] validate_only: bool,
    }

    pub struct CreatePartitionsTopic {
        [0..] name: Text,
        /// How many there shall be.
        [0..] count: i32,
        /// Of the new ones; null lets the controller choose.
        [0..] assignments: Option<Vec<CreatePartitionsAssignment>>,
    }

    pub struct CreatePartitionsAssignment {
        [0..] broker_ids: Vec<i32>,
    }

    pub struct CreatePartitionsResponse {
        [0..] throttle_time_ms: i32,
        [0..] results: Vec<CreatePartitionsTopicResult>,
    }

    pub struct CreatePartitionsTopicResult {
        [0..] name: Text,
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
    }
}
