//! One change to all partitions that it concerns, in one pass over the image.

use std::sync::Arc;

use super::partition_change::{Rules, partition_change};
use crate::metadata::config::MinIsr;
use crate::metadata::{
    MetadataImage, MetadataRecord, PartitionChangeRecord, PartitionImage, TopicImage,
};
use crate::types::{NodeId, TopicIdPartition};

pub(super) struct Sweep<'a> {
    pub image: &'a MetadataImage,
    /// See [`Rules::acceptable`]; what `image` says of single replicas comes on top.
    pub acceptable: &'a dyn Fn(NodeId) -> bool,
    pub unclean_shutdown: Option<NodeId>,
    /// See [`Rules::prefers_first`].
    pub prefers_first: bool,
}

impl<'a> Sweep<'a> {
    /// After which nobody has lost anything, and leaders that may stay do.
    pub(super) fn new(image: &'a MetadataImage, acceptable: &'a dyn Fn(NodeId) -> bool) -> Self {
        Self { image, acceptable, unclean_shutdown: None, prefers_first: false }
    }
}

impl Sweep<'_> {
    /// `wanted` says what a partition shall become, or `None` where the change does not concern it.
    pub(super) fn all(
        &self,
        wanted: impl Fn(&PartitionImage) -> Option<PartitionImage>,
    ) -> Vec<MetadataRecord> {
        self.topics(self.image.topics.values(), wanted)
    }

    pub(super) fn topics<'t>(
        &self,
        topics: impl Iterator<Item = &'t Arc<TopicImage>>,
        wanted: impl Fn(&PartitionImage) -> Option<PartitionImage>,
    ) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        for topic in topics {
            let mut min_isr = None;
            for (partition, old) in (0..).zip(&topic.partitions) {
                let Some(wanted) = wanted(old) else { continue };
                let min_isr = *min_isr.get_or_insert_with(|| self.image.min_isr(&topic.name));
                let id = TopicIdPartition { topic_id: topic.topic_id, partition };
                records.extend(self.change(id, old, wanted, min_isr));
            }
        }
        records
    }

    /// What a partition becomes; `None` when that is what it is.
    pub(super) fn change(
        &self,
        id: TopicIdPartition,
        old: &PartitionImage,
        wanted: PartitionImage,
        min_isr: MinIsr,
    ) -> Option<MetadataRecord> {
        let rules = Rules {
            acceptable: &|node| (self.acceptable)(node) && self.image.is_online(node, id),
            unclean_shutdown: self.unclean_shutdown,
            prefers_first: self.prefers_first,
            min_isr,
        };
        let state = partition_change(old, wanted, &rules)?;
        Some(MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: id.topic_id,
            partition: id.partition,
            state: Arc::new(state),
        }))
    }

    /// Takes a broker out of every ISR, and with it out of every leadership.
    pub(super) fn without(&self, node_id: NodeId) -> Vec<MetadataRecord> {
        self.without_where(node_id, |partition| {
            partition.isr.contains(&node_id)
                || (self.unclean_shutdown == Some(node_id) && partition.elr.contains(&node_id))
        })
    }

    /// Takes a broker out of the ISR of these partitions.
    pub(super) fn without_where(
        &self,
        node_id: NodeId,
        is_concerned: impl Fn(&PartitionImage) -> bool,
    ) -> Vec<MetadataRecord> {
        self.all(|partition| {
            is_concerned(partition).then(|| {
                let mut wanted = partition.clone();
                wanted.isr.retain(|member| *member != node_id);
                wanted
            })
        })
    }
}
