//! What partitions ask of the broker: it notes it and wakes who does it.

use std::sync::Arc;

use super::alter_partition::IsrChanges;
use super::partition::PartitionEvents;
use super::publication::Publication;
use super::ticks::Ticks;
use crate::types::{BrokerEpoch, NodeId, TopicIdPartition};

#[derive(Debug)]
pub(super) struct Events {
    pub(super) publication: Arc<Publication>,
    pub(super) isr_changes: Arc<IsrChanges>,
    pub(super) ticks: Arc<Ticks>,
}

impl PartitionEvents for Events {
    fn active_broker_epoch(&self, node: NodeId) -> Option<BrokerEpoch> {
        self.publication.with_image(|image| {
            let broker = image.broker(node).filter(|broker| broker.is_active())?;
            Some(broker.broker_epoch)
        })
    }

    fn isr_change_wanted(&self, partition: TopicIdPartition) {
        self.isr_changes.want(partition);
    }

    fn tick_wanted(&self, partition: TopicIdPartition) {
        self.ticks.want(partition);
    }
}
