//! What one replica stream has to send: the slots in which something changed.
//!
//! The leader's side of a stream has one for batches, the follower's side one for acks. Partitions mark their slot, at
//! most once until it is taken ([`Partition`](super::partition::Partition) keeps that flag); the stream's task takes all
//! of them at once. So there is one wake-up per pair of brokers, however many partitions moved.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::types::time;

/// How long a change that is only news (a high watermark) waits for something urgent to travel with.
const SOON: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
pub struct Outbox {
    dirty: Mutex<Dirty>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Dirty {
    now: Vec<u32>,
    soon: Vec<u32>,
    /// When `soon` must go even if alone.
    soon_at: Option<Instant>,
}

impl Outbox {
    /// Something to send at once.
    pub fn mark(&self, slot: u32) {
        let mut dirty = self.dirty.lock();
        dirty.now.push(slot);
        let first = dirty.now.len() == 1;
        drop(dirty);
        if first {
            self.wake.notify_one();
        }
    }

    /// Something to send with the next urgent thing, or alone after a few milliseconds.
    pub fn mark_soon(&self, slot: u32) {
        let mut dirty = self.dirty.lock();
        dirty.soon.push(slot);
        let first = dirty.soon_at.is_none();
        if first {
            dirty.soon_at = Some(Instant::from_std(time::now()) + SOON);
        }
        let wake = first && dirty.now.is_empty();
        drop(dirty);
        if wake {
            self.wake.notify_one();
        }
    }

    /// The slots to look at, oldest mark first; a slot may be there twice. Waits until there are some. One task at a
    /// time. Cancel safe.
    pub async fn take_dirty(&self) -> Vec<u32> {
        loop {
            let soon_at = {
                let mut dirty = self.dirty.lock();
                let due = || dirty.soon_at.is_some_and(|at| at <= Instant::from_std(time::now()));
                if !dirty.now.is_empty() || due() {
                    dirty.soon_at = None;
                    let mut slots = std::mem::take(&mut dirty.now);
                    slots.append(&mut dirty.soon);
                    return slots;
                }
                dirty.soon_at
            };
            match soon_at {
                // Either way the queues tell.
                Some(at) => drop(timeout_at(at, self.wake.notified()).await),
                None => self.wake.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn urgent_marks_take_the_others_along() {
        let outbox = Outbox::default();
        outbox.mark_soon(7);
        outbox.mark(1);
        outbox.mark(2);
        assert_eq!(outbox.take_dirty().await, [1, 2, 7]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn news_goes_alone_after_a_while() {
        let outbox = Outbox::default();
        let marked_at = time::now();
        outbox.mark_soon(7);
        outbox.mark_soon(8);
        assert_eq!(outbox.take_dirty().await, [7, 8]);
        assert!(time::now() - marked_at >= SOON);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_mark_wakes_whoever_waits() {
        let outbox = Arc::new(Outbox::default());
        let task = tokio::spawn({
            let outbox = Arc::clone(&outbox);
            async move { outbox.take_dirty().await }
        });
        tokio::task::yield_now().await;
        outbox.mark(3);
        assert_eq!(task.await.expect("the task ends"), [3]);
    }
}
