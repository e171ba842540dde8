//! Dynamic configs: what exists, what a value may be, and what holds for a topic.
//!
//! All of Kafka's topic configs are known. Those that nothing implements yet accept only their default, so that no
//! setting is a fake success (design D13). A topic config's default for the cluster has the name that Kafka gives it on
//! brokers (`log.segment.bytes`); it is set on [`ConfigResource::Cluster`], or on [`ConfigResource::Broker`] for what one
//! broker holds.
//!
//! [`ConfigResource::Broker`]: crate::types::ConfigResource::Broker
//! [`ConfigResource::Cluster`]: crate::types::ConfigResource::Cluster

mod defs;
mod describe;
mod topic;
mod value;

pub use defs::{ConfigDef, ConfigKind, cluster_def, topic_def, topic_defs};
pub use describe::{ConfigSource, ConfigSynonym, DescribedConfig};
pub use topic::{CleanupPolicy, Durability, MinIsr, TimestampType, TopicConfig};
pub use value::{InvalidConfig, validate_cluster, validate_topic};

pub(crate) use value::list_items;
