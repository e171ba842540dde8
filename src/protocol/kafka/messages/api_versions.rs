//! Key 18: which APIs, in which versions.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct ApiVersionsRequest {
        [3..] client_software_name: Text,
        [3..] client_software_version: Text,
    }

    pub struct ApiVersionsResponse {
        [0..] error_code: i16,
        [0..] api_keys: Vec<ApiVersionRange>,
        [1..] throttle_time_ms: i32,
        [3..] supported_features: Vec<SupportedFeature> => tag 0,
        [3..] finalized_features_epoch: i64 = -1 => tag 1,
        [3..] finalized_features: Vec<FinalizedFeature> => tag 2,
        [3..] zk_migration_ready: bool => tag 3,
    }

    pub struct ApiVersionRange {
        [0..] api_key: i16,
        [0..] min_version: i16,
        [0..] max_version: i16,
    }

    pub struct SupportedFeature {
        [3..] name: Text,
        [3..] min_version: i16,
        [3..] max_version: i16,
    }

    pub struct FinalizedFeature {
        [3..] name: Text,
        [3..] max_version_level: i16,
        [3..] min_version_level: i16,
    }
}
