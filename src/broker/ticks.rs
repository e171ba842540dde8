//! Lets time pass for the partitions that asked for it: somebody waits there, or a follower is behind.
//!
//! Invariant: while no partition asks, nothing runs here.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::registry::Registry;
use crate::types::{TopicIdPartition, time};

const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Ticks {
    wanted: Mutex<HashSet<TopicIdPartition>>,
    news: Notify,
}

impl Ticks {
    pub(super) fn want(&self, partition: TopicIdPartition) {
        let mut wanted = self.wanted.lock();
        if wanted.is_empty() {
            self.news.notify_one();
        }
        wanted.insert(partition);
    }

    pub(super) async fn run(&self, registry: &Registry) {
        loop {
            if self.wanted.lock().is_empty() {
                self.news.notified().await;
            }
            tokio::time::sleep(TICK).await;
            self.tick(registry);
        }
    }

    /// Partitions are called outside of the lock: they ask for the next tick themselves when something new happens.
    fn tick(&self, registry: &Registry) {
        let ticked = std::mem::take(&mut *self.wanted.lock());
        let now = time::now();
        let again: Vec<_> = ticked
            .into_iter()
            .filter(|id| registry.get(*id).is_some_and(|partition| partition.on_tick(now)))
            .collect();
        self.wanted.lock().extend(again);
    }
}
