//! The immutable state that the metadata log makes, and `replay`, its only mutator.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::record::{PartitionImage, RegisterBrokerRecord};
use crate::types::{BrokerEpoch, ConfigResource, MetadataIndex, NodeId, TimestampMs, TopicId};

/// Everything the cluster agrees on, after the entry at `index`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataImage {
    /// Last entry of the metadata log that was applied, whatever it held.
    pub index: MetadataIndex,
    /// Last entry that held a batch which was not dropped: the basis of the next one.
    pub batch_index: MetadataIndex,
    pub time_ms: TimestampMs,
    pub brokers: OrdMap<NodeId, Arc<BrokerImage>>,
    pub topics: OrdMap<TopicId, Arc<TopicImage>>,
    pub topic_ids: OrdMap<Arc<str>, TopicId>,
    pub configs: OrdMap<ConfigResource, OrdMap<String, String>>,
    pub features: OrdMap<String, i16>,
    pub next_producer_id: i64,
    /// Per broker: its last numbered request and the encoded reply.
    pub sequences: OrdMap<NodeId, (u64, Vec<u8>)>,
    /// Rolling digest of all batches (replication.md 1.1 R7).
    pub digest: u128,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerImage {
    pub registration: RegisterBrokerRecord,
    pub broker_epoch: BrokerEpoch,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicImage {
    pub topic_id: TopicId,
    pub name: Arc<str>,
    /// Indexed by partition number, dense.
    pub partitions: Vec<Arc<PartitionImage>>,
}
