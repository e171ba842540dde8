//! What changed between two images, however many batches lie between them.

use std::sync::Arc;

use super::{BrokerImage, MetadataImage, PartitionImage};
use crate::types::{NodeId, TopicId, TopicIdPartition};

/// The difference between two images. Subscribers apply it in the order of replication.md 1.8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataDelta {
    pub brokers: Vec<BrokerDelta>,
    pub topics_added: Vec<TopicId>,
    pub topics_removed: Vec<TopicId>,
    pub partitions: Vec<PartitionDelta>,
    /// Topics (of the new image) whose effective config differs, also by a cluster default. Added topics are not here.
    pub topics_reconfigured: Vec<TopicId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerDelta {
    pub node_id: NodeId,
    pub old: Option<Arc<BrokerImage>>,
    pub new: Option<Arc<BrokerImage>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDelta {
    pub partition: TopicIdPartition,
    /// `None`: created.
    pub old: Option<Arc<PartitionImage>>,
    /// `None`: deleted.
    pub new: Option<Arc<PartitionImage>>,
}

impl MetadataDelta {
    /// Costs time for what changed, and a pointer comparison for what did not.
    pub fn between(old: &MetadataImage, new: &MetadataImage) -> Self {
        let _ = (old, new);
        todo!()
    }
}
