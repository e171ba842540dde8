//! Key 10: who coordinates a group or a transactional id.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct FindCoordinatorRequest {
        [0..=3] key: Text,
        [1..] key_type: i8,
        [4..] coordinator_keys: Vec<Text>,
    }

    pub struct FindCoordinatorResponse {
        [1..] throttle_time_ms: i32,
        [0..=3] error_code: i16,
        [1..=3] error_message: Option<Text>,
        [0..=3] node_id: i32,
        [0..=3] host: Text,
        [0..=3] port: i32,
        [4..] coordinators: Vec<Coordinator>,
    }

    pub struct Coordinator {
        [4..] key: Text,
        [4..] node_id: i32,
        [4..] host: Text,
        [4..] port: i32,
        [4..] error_code: i16,
        [4..] error_message: Option<Text>,
    }
}
