//! Keys 32, 33 and 44: configs of topics and brokers.

use super::super::message::message;
use super::super::text::Text;

message! {
    pub struct DescribeConfigsRequest {
        [0..] resources: Vec<DescribeConfigsResource>,
        [1..] include_synonyms: bool,
        [3..] include_documentation: bool,
    }

    pub struct DescribeConfigsResource {
        [0..] resource_type: i8,
        [0..] resource_name: Text,
        /// Null asks for all.
        [0..] configuration_keys: Option<Vec<Text>>,
    }

    pub struct DescribeConfigsResponse {
        [0..] throttle_time_ms: i32,
        [0..] results: Vec<DescribeConfigsResult>,
    }

    pub struct DescribeConfigsResult {
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
        [0..] resource_type: i8,
        [0..] resource_name: Text,
        [0..] configs: Vec<DescribedConfig>,
    }

    pub struct DescribedConfig {
        [0..] name: Text,
        [0..] value: Option<Text>,
        [0..] read_only: bool,
        [1..] config_source: i8 = -1,
        [0..] is_sensitive: bool,
        [1..] synonyms: Vec<ConfigSynonym>,
        [3..] config_type: i8,
        [3..] documentation: Option<Text>,
    }

    pub struct ConfigSynonym {
        [1..] name: Text,
        [1..] value: Option<Text>,
        [1..] source: i8,
    }

    pub struct AlterConfigsRequest {
        [0..] resources: Vec<ReplacedConfigs>,
        [0..] validate_only: bool,
    }

    pub struct ReplacedConfigs {
        [0..] resource_type: i8,
        [0..] resource_name: Text,
        [0..] configs: Vec<ReplacedConfig>,
    }

    pub struct ReplacedConfig {
        [0..] name: Text,
        [0..] value: Option<Text>,
    }

    pub struct AlterConfigsResponse {
        [0..] throttle_time_ms: i32,
        [0..] responses: Vec<AlterConfigsResult>,
    }

    pub struct IncrementalAlterConfigsRequest {
        [0..] resources: Vec<AlterConfigsResource>,
        [0..] validate_only: bool,
    }

    pub struct AlterConfigsResource {
        [0..] resource_type: i8,
        [0..] resource_name: Text,
        [0..] configs: Vec<AlterableConfig>,
    }

    pub struct AlterableConfig {
        [0..] name: Text,
        /// 0 set, 1 delete, 2 append to a list, 3 subtract from one.
        [0..] config_operation: i8,
        [0..] value: Option<Text>,
    }

    pub struct IncrementalAlterConfigsResponse {
        [0..] throttle_time_ms: i32,
        [0..] responses: Vec<AlterConfigsResult>,
    }

    pub struct AlterConfigsResult {
        [0..] error_code: i16,
        [0..] error_message: Option<Text>,
        [0..] resource_type: i8,
        [0..] resource_name: Text,
    }
}

/// What `resource_type` says.
pub const RESOURCE_TOPIC: i8 = 2;
pub const RESOURCE_BROKER: i8 = 4;
