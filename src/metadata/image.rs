//! The immutable state that the metadata log makes. `replay` is its only mutator.

use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use super::record::{OfflineImage, PartitionImage, RegisterBrokerRecord};
use crate::types::{
    BrokerEpoch, ConfigResource, MetadataIndex, NodeId, TimestampMs, TopicId, TopicIdPartition,
};

/// Everything the cluster agrees on, after the entry at `index`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetadataImage {
    /// Last entry of the metadata log that was applied, whatever it held.
    pub index: MetadataIndex,
    /// Last entry that held a batch which was not dropped: the basis of the next one.
    pub batch_index: MetadataIndex,
    /// How many batches were applied.
    pub batch_count: u64,
    pub time_ms: TimestampMs,
    pub brokers: OrdMap<NodeId, Arc<BrokerImage>>,
    pub topics: OrdMap<TopicId, Arc<TopicImage>>,
    pub topic_ids: OrdMap<Arc<str>, TopicId>,
    pub configs: OrdMap<ConfigResource, OrdMap<String, String>>,
    pub features: OrdMap<String, i16>,
    pub next_producer_id: i64,
    /// Per broker: its last numbered request and the encoded reply.
    pub sequences: OrdMap<NodeId, (u64, Vec<u8>)>,
    /// Rolling digest of all batches and of what they made (replication.md 1.1 R7).
    pub digest: u128,
    /// Per broker, what it cannot serve. Those that can serve everything are not here.
    pub offline: OrdMap<NodeId, Arc<OfflineImage>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokerImage {
    pub registration: RegisterBrokerRecord,
    pub broker_epoch: BrokerEpoch,
    pub fenced: bool,
    pub in_controlled_shutdown: bool,
    /// Where its last controlled shutdown began.
    pub shutdown_index: MetadataIndex,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicImage {
    pub topic_id: TopicId,
    pub name: Arc<str>,
    /// Indexed by partition number, dense.
    pub partitions: Vec<Arc<PartitionImage>>,
}

impl MetadataImage {
    pub fn topic(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.topic_ids.get(name).and_then(|id| self.topics.get(id))
    }

    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.topics.get(&id)
    }

    pub fn partition(&self, p: TopicIdPartition) -> Option<&Arc<PartitionImage>> {
        self.topic_and_partition(p).map(|(_, partition)| partition)
    }

    pub fn topic_and_partition(
        &self,
        p: TopicIdPartition,
    ) -> Option<(&Arc<TopicImage>, &Arc<PartitionImage>)> {
        let topic = self.topics.get(&p.topic_id)?;
        Some((topic, topic.partition(p.partition)?))
    }

    pub fn broker(&self, id: NodeId) -> Option<&Arc<BrokerImage>> {
        self.brokers.get(&id)
    }

    /// Registered, unfenced, not in controlled shutdown.
    pub fn is_active(&self, id: NodeId) -> bool {
        self.broker(id).is_some_and(|broker| broker.is_active())
    }

    /// Whether the broker has not said that its replica is out of service.
    pub fn is_online(&self, id: NodeId, partition: TopicIdPartition) -> bool {
        self.offline.get(&id).is_none_or(|offline| !offline.replicas.contains(&partition))
    }

    /// Whether the replica may lead, or be in sync, as far as its broker is concerned.
    pub fn can_serve(&self, id: NodeId, partition: TopicIdPartition) -> bool {
        self.is_active(id) && self.is_online(id, partition)
    }
}

impl TopicImage {
    pub fn partition(&self, partition: i32) -> Option<&Arc<PartitionImage>> {
        self.partitions.get(usize::try_from(partition).ok()?)
    }

    /// Assigned replicas per partition, as creation set it: the count of partition 0.
    pub fn replication_factor(&self) -> usize {
        self.partitions.first().map_or(0, |partition| partition.replicas.len())
    }
}

impl BrokerImage {
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }
}
