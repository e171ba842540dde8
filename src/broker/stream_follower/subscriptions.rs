//! What is subscribed on a stream, what is to be, and what waits to be told to the leader.
//!
//! Invariant: the lock around this is never held while a partition is called.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::Target;
use crate::broker::partition::Partition;
use crate::protocol::native::AckedPartition;
use crate::types::TopicIdPartition;

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    pub(super) target: Option<Target>,
    /// Grows when a connection that was made before is not wanted any more.
    pub(super) generation: u64,
    pub(super) followed: HashMap<TopicIdPartition, Followed>,
    pub(super) by_slot: HashMap<u32, Arc<Partition>>,
    pub(super) to_subscribe: Vec<TopicIdPartition>,
    pub(super) to_drop: Vec<u32>,
    /// Acknowledgements of what counts as stored already.
    pub(super) to_ack: Vec<AckedPartition>,
    /// Partitions whose subscription failed, and when to try again.
    pub(super) retries: Vec<(Instant, TopicIdPartition)>,
}

#[derive(Debug)]
pub(super) struct Followed {
    pub(super) partition: Arc<Partition>,
    /// `None` while it is not subscribed.
    pub(super) slot: Option<u32>,
}

impl Subscriptions {
    /// The slot's subscription is over. The leader knows, or will be told by `to_drop`.
    pub(super) fn end_slot(&mut self, slot: u32) {
        if let Some(partition) = self.by_slot.remove(&slot)
            && let Some(followed) = self.followed.get_mut(&partition.id())
            && followed.slot == Some(slot)
        {
            followed.slot = None;
        }
    }

    pub(super) fn drop_subscription(&mut self, id: TopicIdPartition) {
        if let Some(slot) = self.followed.get(&id).and_then(|followed| followed.slot) {
            self.end_slot(slot);
            self.to_drop.push(slot);
        }
    }

    /// A connection begins or has ended: everything is to be subscribed. Returns the slots that it had.
    pub(super) fn start_over(&mut self) -> HashMap<u32, Arc<Partition>> {
        self.to_drop.clear();
        self.to_ack.clear();
        self.retries.clear();
        for followed in self.followed.values_mut() {
            followed.slot = None;
        }
        self.to_subscribe = self.followed.keys().copied().collect();
        std::mem::take(&mut self.by_slot)
    }

    /// With the generation that it is wanted in.
    pub(super) fn wanted_connection(&self) -> Option<(Target, u64)> {
        let target = self.target.clone()?;
        (target.is_unfenced || !self.followed.is_empty()).then_some((target, self.generation))
    }

    /// Moves what is due to the subscriptions to make; when the next one is.
    pub(super) fn take_due_retries(&mut self, now: Instant) -> Option<Instant> {
        let due: Vec<_> = self.retries.extract_if(.., |(due, _)| *due <= now).collect();
        self.to_subscribe.extend(due.into_iter().map(|(_, id)| id));
        self.retries.iter().map(|(due, _)| *due).min()
    }
}
