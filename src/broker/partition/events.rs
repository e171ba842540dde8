//! What a partition asks of the broker that holds it.

use crate::types::{BrokerEpoch, NodeId, TopicIdPartition};

/// Implemented by the broker. None of these may call a partition, wait, or take a lock that is held while one is called.
pub trait PartitionEvents: Send + Sync {
    /// The epoch of a broker that is registered, unfenced and not in controlled shutdown, by the published image.
    fn active_broker_epoch(&self, node: NodeId) -> Option<BrokerEpoch>;
    /// The partition has a proposal for the controller: send its `pending_alter` until there is an answer.
    fn isr_change_wanted(&self, partition: TopicIdPartition);
    /// Put the partition into the set that is ticked, every 100 ms or so.
    fn tick_wanted(&self, partition: TopicIdPartition);
}
