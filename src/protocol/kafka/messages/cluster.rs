//! Key 60: the brokers and nothing else.

use super::super::message::message;
use super::super::text::Text;
use super::OPERATIONS_OMITTED;

message! {
    pub struct DescribeClusterRequest {
        [0..] include_cluster_authorized_operations: bool,
        /// 1 asks for brokers, 2 for controllers.
        [1..] endpoint_type: i8 = ENDPOINT_BROKERS,
        [2..] include_fenced_brokers: bool,
    }

    pub struct DescribeClusterResponse {
        [0..] throttle_time_ms: i32,
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
        [1..] endpoint_type: i8 = ENDPOINT_BROKERS,
        [0..] cluster_id: Text,
        [0..] controller_id: i32 = -1,
        [0..] brokers: Vec<DescribeClusterBroker>,
        [0..] cluster_authorized_operations: i32 = OPERATIONS_OMITTED,
    }

    pub struct DescribeClusterBroker {
        [0..] broker_id: i32,
        [0..] host: Text,
        [0..] port: i32,
        [0..] rack: Option<Text>,
        [2..] is_fenced: bool,
    }
}

pub const ENDPOINT_BROKERS: i8 = 1;
pub const ENDPOINT_CONTROLLERS: i8 = 2;
