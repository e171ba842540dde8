//! The one table of served APIs. ApiVersions answers, dispatch and header versions all come from it.
//!
//! `api_table!(name)` hands the rows to the macro `name!`, so that `server::kafka` adds its handlers without a second
//! list.

use std::ops::RangeInclusive;

use super::messages::*;
use super::wire::Wire;

/// Rows: key, name, served versions, lowest version that ApiVersions admits to, first flexible version, messages, and
/// the module of `server::kafka` that answers.
macro_rules! api_table {
    ($rows:ident) => {
        $rows! {
            // Advertised from 0: librdkafka before 2.11.1 takes a higher minimum for "no compression" (KAFKA-18659).
            0  Produce                    3..=13 from 0  flexible 9  ProduceRequest => ProduceResponse, produce;
            1  Fetch                      4..=18 from 4  flexible 12 FetchRequest => FetchResponse, fetch;
            2  ListOffsets                1..=11 from 1  flexible 6  ListOffsetsRequest => ListOffsetsResponse, list_offsets;
            3  Metadata                   0..=13 from 0  flexible 9  MetadataRequest => MetadataResponse, metadata;
            10 FindCoordinator            0..=6  from 0  flexible 3  FindCoordinatorRequest => FindCoordinatorResponse, find_coordinator;
            18 ApiVersions                0..=4  from 0  flexible 3  ApiVersionsRequest => ApiVersionsResponse, api_versions;
            19 CreateTopics               2..=7  from 2  flexible 5  CreateTopicsRequest => CreateTopicsResponse, create_topics;
            20 DeleteTopics               1..=6  from 1  flexible 4  DeleteTopicsRequest => DeleteTopicsResponse, delete_topics;
            21 DeleteRecords              0..=2  from 0  flexible 2  DeleteRecordsRequest => DeleteRecordsResponse, delete_records;
            22 InitProducerId             0..=5  from 0  flexible 2  InitProducerIdRequest => InitProducerIdResponse, init_producer_id;
            23 OffsetForLeaderEpoch       2..=4  from 2  flexible 4  OffsetForLeaderEpochRequest => OffsetForLeaderEpochResponse, offset_for_leader_epoch;
            32 DescribeConfigs            1..=4  from 1  flexible 4  DescribeConfigsRequest => DescribeConfigsResponse, describe_configs;
            33 AlterConfigs               0..=2  from 0  flexible 2  AlterConfigsRequest => AlterConfigsResponse, alter_configs;
            35 DescribeLogDirs            1..=4  from 1  flexible 2  DescribeLogDirsRequest => DescribeLogDirsResponse, describe_log_dirs;
            37 CreatePartitions           0..=3  from 0  flexible 2  CreatePartitionsRequest => CreatePartitionsResponse, create_partitions;
            43 ElectLeaders               0..=2  from 0  flexible 2  ElectLeadersRequest => ElectLeadersResponse, elect_leaders;
            44 IncrementalAlterConfigs    0..=1  from 0  flexible 1  IncrementalAlterConfigsRequest => IncrementalAlterConfigsResponse, incremental_alter_configs;
            45 AlterPartitionReassignments 0..=1 from 0  flexible 0  AlterPartitionReassignmentsRequest => AlterPartitionReassignmentsResponse, alter_partition_reassignments;
            46 ListPartitionReassignments 0..=0  from 0  flexible 0  ListPartitionReassignmentsRequest => ListPartitionReassignmentsResponse, list_partition_reassignments;
            60 DescribeCluster            0..=2  from 0  flexible 0  DescribeClusterRequest => DescribeClusterResponse, describe_cluster;
            75 DescribeTopicPartitions    0..=0  from 0  flexible 0  DescribeTopicPartitionsRequest => DescribeTopicPartitionsResponse, describe_topic_partitions;
        }
    };
}

pub(crate) use api_table;

/// A request, and what answers it.
pub trait Request: Wire {
    const API: Api;
    type Response: Wire;
}

macro_rules! rows {
    ($(
        $key:literal $name:ident $min:literal ..= $max:literal from $advertised:literal flexible $flexible:literal
        $request:ident => $response:ident, $handler:ident;
    )+) => {
        /// An API that we serve, under Kafka's name and number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum Api { $($name = $key,)+ }

        impl Api {
            /// All of them, by key.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            pub fn from_key(key: i16) -> Option<Self> {
                match key { $($key => Some(Self::$name),)+ _ => None }
            }

            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)+ }
            }

            /// Versions that get an answer.
            pub fn served(self) -> RangeInclusive<i16> {
                match self { $(Self::$name => $min..=$max,)+ }
            }

            /// Versions that ApiVersions lists.
            pub fn advertised(self) -> RangeInclusive<i16> {
                match self { $(Self::$name => $advertised..=$max,)+ }
            }

            /// Whether this version has compact lengths and tagged fields.
            pub fn is_flexible(self, version: i16) -> bool {
                version >= match self { $(Self::$name => $flexible,)+ }
            }
        }

        $(impl Request for $request {
            const API: Api = Api::$name;
            type Response = $response;
        })+
    };
}

api_table!(rows);

impl Api {
    pub fn key(self) -> i16 {
        self as i16
    }

    /// Answers to ApiVersions keep the first header for ever: a client must read them before it knows anything.
    pub fn has_flexible_response_header(self, version: i16) -> bool {
        self != Self::ApiVersions && self.is_flexible(version)
    }
}
