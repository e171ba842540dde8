//! Key 22: the identity of an idempotent producer.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct InitProducerIdRequest {
        [0..] transactional_id: Option<Text>,
        [0..] transaction_timeout_ms: i32,
        [3..] producer_id: i64 = -1,
        [3..] producer_epoch: i16 = -1,
        [6..] enable_2_pc: bool,
        [6..] keep_prepared_txn: bool,
    }

    pub struct InitProducerIdResponse {
        [0..] throttle_time_ms: i32,
        [0..] error_code: i16,
        [0..] producer_id: i64 = -1,
        [0..] producer_epoch: i16,
        [6..] ongoing_txn_producer_id: i64 = -1,
        [6..] ongoing_txn_producer_epoch: i16 = -1,
    }
}
