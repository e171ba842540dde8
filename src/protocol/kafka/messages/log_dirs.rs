//! Key 35: what lies in which log directory.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct DescribeLogDirsRequest {
        /// None asks for everything.
        [1..] topics: Option<Vec<DescribableLogDirTopic>>,
    }

    pub struct DescribableLogDirTopic {
        [1..] topic: Text,
        [1..] partitions: Vec<i32>,
    }

    pub struct DescribeLogDirsResponse {
        [1..] throttle_time_ms: i32,
        [3..] error_code: i16,
        [1..] results: Vec<DescribeLogDirsResult>,
    }

    pub struct DescribeLogDirsResult {
        [1..] error_code: i16,
        [1..] log_dir: Text,
        [1..] topics: Vec<DescribeLogDirsTopic>,
        /// -1 where the disk does not tell.
        [4..] total_bytes: i64 = -1,
        [4..] usable_bytes: i64 = -1,
    }

    pub struct DescribeLogDirsTopic {
        [1..] name: Text,
        [1..] partitions: Vec<DescribeLogDirsPartition>,
    }

    pub struct DescribeLogDirsPartition {
        [1..] partition_index: i32,
        [1..] partition_size: i64,
        /// Records below the high watermark that it lacks.
        [1..] offset_lag: i64,
        /// It is a copy that is to take the place of the one elsewhere.
        [1..] is_future_key: bool,
    }
}
