//! The partitions that this broker holds replicas of.
//!
//! Read on every request, changed by the reconciler only. Readers take no lock.

use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::HashMap;

use super::partition::Partition;
use crate::types::TopicIdPartition;

#[derive(Debug, Default)]
pub(super) struct Registry {
    partitions: ArcSwap<HashMap<TopicIdPartition, Arc<Partition>>>,
}

impl Registry {
    pub(super) fn get(&self, id: TopicIdPartition) -> Option<Arc<Partition>> {
        self.partitions.load().get(&id).cloned()
    }

    /// All of them, as of now. Cheap: the map is persistent.
    pub(super) fn all(&self) -> HashMap<TopicIdPartition, Arc<Partition>> {
        (**self.partitions.load()).clone()
    }

    /// Makes several changes visible at once. One caller at a time.
    pub(super) fn update(
        &self,
        change: impl FnOnce(&mut HashMap<TopicIdPartition, Arc<Partition>>),
    ) {
        let mut partitions = self.all();
        change(&mut partitions);
        self.partitions.store(Arc::new(partitions));
    }
}
