//! What the lock of a partition guards, and what is left to do once it is free.

use std::sync::{Arc, Weak};
use std::time::Instant;

use tokio::sync::oneshot;

use super::Partition;
use super::error::{not_leader, refuse};
use super::events::PartitionEvents;
use super::trim::{Trim, TrimResult};
use crate::broker::outbox::Outbox;
use crate::broker::purgatory::{Completion, FetchQueue, FetchWaiter, ProduceQueue};
use crate::protocol::ErrorCode;
use crate::protocol::native::PartitionError;
use crate::replication::{Effects, Leader, Replica, Role};
use crate::types::{NodeId, Offset, TopicIdPartition};

pub(super) struct State {
    pub(super) replica: Replica,
    /// The subscribed followers, as leader.
    pub(super) streams: Vec<FollowerStream>,
    /// Where acks go, as follower.
    pub(super) acks: Option<AckStream>,
    /// Wait for the high watermark.
    pub(super) committed: ProduceQueue,
    /// Wait for the own disk.
    pub(super) durable: ProduceQueue,
    pub(super) fetches: FetchQueue,
    /// Wait for the log start of other replicas.
    pub(super) trims: Vec<Trim>,
}

/// A follower that is pushed to.
pub(super) struct FollowerStream {
    pub(super) node: NodeId,
    pub(super) slot: u32,
    pub(super) outbox: Arc<Outbox>,
    pub(super) marked: Marked,
    /// What is pushed next.
    pub(super) next_offset: Offset,
    /// What it was told last.
    pub(super) told: (Offset, Offset),
}

/// How the slot is in its outbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Marked {
    No,
    Soon,
    Now,
}

impl FollowerStream {
    pub(super) fn mark(&mut self) {
        if self.marked < Marked::Now {
            self.marked = Marked::Now;
            self.outbox.mark(self.slot);
        }
    }

    /// A log start that it does not know is told, though nothing else has happened.
    pub(super) fn tell_start(&mut self, start: Offset) {
        if self.told.1 != start {
            self.mark_soon();
        }
    }

    pub(super) fn mark_soon(&mut self) {
        if self.marked < Marked::Soon {
            self.marked = Marked::Soon;
            self.outbox.mark_soon(self.slot);
        }
    }
}

pub(super) struct AckStream {
    pub(super) slot: u32,
    pub(super) outbox: Arc<Outbox>,
    pub(super) marked: bool,
}

impl State {
    pub(super) fn new(replica: Replica) -> Self {
        Self {
            replica,
            streams: Vec::new(),
            acks: None,
            committed: ProduceQueue::default(),
            durable: ProduceQueue::default(),
            fetches: FetchQueue::default(),
            trims: Vec::new(),
        }
    }

    pub(super) fn leader(&mut self, me: NodeId) -> Result<&mut Leader, PartitionError> {
        let known = self.replica.current_leader();
        self.replica.leader_mut().ok_or_else(|| not_leader(me, known))
    }

    pub(super) fn needs_tick(&self) -> bool {
        !self.committed.is_empty()
            || !self.durable.is_empty()
            || !self.trims.is_empty()
            || matches!(self.replica.role(), Role::Leader(leader) if leader.needs_tick())
    }

    /// A later acknowledgement is wanted, if this replica follows somebody.
    pub(super) fn mark_ack(&mut self) {
        if let Some(acks) = self.acks.as_mut().filter(|acks| !acks.marked) {
            acks.marked = true;
            acks.outbox.mark(acks.slot);
        }
    }

    pub(super) fn forget_streams(&mut self) {
        self.streams.clear();
        self.acks = None;
    }

    /// Of replicas that are not assigned any more.
    pub(super) fn forget_ended_sessions(&mut self) {
        let Role::Leader(leader) = self.replica.role() else { return self.streams.clear() };
        self.streams.retain(|stream| {
            leader.remotes().iter().any(|remote| {
                remote.node == stream.node
                    && remote.session.is_some_and(|session| session.slot == stream.slot)
            })
        });
    }

    pub(super) fn fail_waiters(&mut self, me: NodeId, after: &mut AfterUnlock) {
        let leader = self.replica.current_leader();
        let error = || not_leader(me, leader);
        self.committed.fail(error, &mut after.completions);
        self.durable.fail(error, &mut after.completions);
        after.fetches.append(&mut self.fetches.take());
        after.trims.extend(self.trims.drain(..).map(|trim| trim.fail(error())));
    }

    pub(super) fn expire_waiters(&mut self, now: Instant, after: &mut AfterUnlock) {
        let error = || {
            refuse(ErrorCode::RequestTimedOut, "written, but not acknowledged before the timeout")
        };
        self.committed.expire(now, error, &mut after.completions);
        self.durable.expire(now, error, &mut after.completions);
    }
}

/// What waits for the lock to be free.
#[derive(Default)]
pub(super) struct AfterUnlock {
    pub(super) completions: Vec<Completion>,
    pub(super) fetches: Vec<Weak<FetchWaiter>>,
    pub(super) trims: Vec<(oneshot::Sender<TrimResult>, TrimResult)>,
    pub(super) propose: bool,
    pub(super) tick: bool,
}

impl AfterUnlock {
    pub(super) fn carry_out(self, id: TopicIdPartition, events: &dyn PartitionEvents) {
        for completion in self.completions {
            completion.send();
        }
        for (waiter, result) in self.trims {
            // Whoever does not wait any more does not need to know.
            let _ = waiter.send(result);
        }
        for waiter in self.fetches.iter().filter_map(Weak::upgrade) {
            waiter.wake();
        }
        if self.propose {
            events.isr_change_wanted(id);
        }
        if self.tick {
            events.tick_wanted(id);
        }
    }
}

impl Partition {
    /// Turns decided effects into answers, wake-ups and marks.
    pub(super) fn take_effects(
        &self,
        state: &mut State,
        effects: Effects,
        after: &mut AfterUnlock,
    ) {
        after.propose |= effects.propose;
        let Some(high_watermark) = effects.high_watermark else { return };
        self.log().set_high_watermark_checkpoint(high_watermark);
        let State { replica, streams, committed, fetches, .. } = state;
        if let Role::Leader(leader) = replica.role() {
            committed.complete(
                high_watermark,
                |produced| super::produce::judge(leader, produced),
                &mut after.completions,
            );
        }
        after.fetches.append(&mut fetches.take());
        for stream in streams {
            stream.mark_soon();
        }
    }
}
