//! One replica of one partition on this broker: its log, its role, and who waits for it.
//!
//! Rules live in `replication`; this is their shell. Every event takes one short lock, appends if it must, lets the
//! state machine decide, and carries out the effects (answers, wake-ups, marks) once the lock is free. Called by the
//! front ends through `Broker`, by the replica streams, by the reconciler and by the flusher.
//!
//! Invariant: under the lock there is no waiting except for the append itself, and no call back into this partition.
//! An idle partition has no task and no timer: one whose state time may change asks to be ticked.

mod error;
mod events;
mod fetch;
mod follow;
mod isr;
mod lead;
#[cfg(test)]
mod partition_test;
mod produce;
mod state;
mod trim;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

pub use error::{FollowerError, NextStep};
pub use events::PartitionEvents;
pub use fetch::FetchedSlice;
pub use isr::AlterReply;
pub use lead::FollowerRead;
pub use produce::ProduceOutcome;
pub use trim::TrimResult;

use self::state::{AfterUnlock, State};
use crate::metadata::PartitionImage;
use crate::metadata::config::TopicConfig;
use crate::replication::{Context, LogEnds, Replica, Role, RoleChange, Settings, Timing};
use crate::storage::PartitionLog;
use crate::types::{LeaderEpoch, NodeId, Offset, TopicIdPartition, TopicPartition, time};

pub struct Partition {
    id: TopicIdPartition,
    me: NodeId,
    log: Arc<PartitionLog>,
    events: Arc<dyn PartitionEvents>,
    /// Set while the broker ticks this partition.
    ticking: AtomicBool,
    state: Mutex<State>,
}

/// A partition as this broker sees it, for display and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionStatus {
    pub leader: Option<NodeId>,
    pub leader_epoch: LeaderEpoch,
    pub high_watermark: Offset,
    pub ends: LogEnds,
    /// As the leader knows it; `None` elsewhere.
    pub leading: Option<LeadingStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeadingStatus {
    pub isr: Vec<NodeId>,
    pub min_isr: usize,
    /// The other replicas, and where their logs end as far as is known.
    pub followers: Vec<(NodeId, Option<Offset>)>,
}

impl Partition {
    /// Without a role until the first image is applied.
    pub fn new(
        me: NodeId,
        log: Arc<PartitionLog>,
        timing: Timing,
        events: Arc<dyn PartitionEvents>,
    ) -> Arc<Self> {
        let (id, topic) = (log.id(), log.config());
        let high_watermark =
            log.high_watermark_checkpoint().min(log.end_offset()).max(log.start_offset());
        let replica = Replica::new(me, id, high_watermark, Settings { topic, timing });
        let state = Mutex::new(State::new(replica));
        Arc::new(Self { id, me, log, events, ticking: AtomicBool::new(false), state })
    }

    pub fn id(&self) -> TopicIdPartition {
        self.id
    }

    pub fn name(&self) -> &TopicPartition {
        self.log.name()
    }

    pub fn log(&self) -> &Arc<PartitionLog> {
        &self.log
    }

    /// Follows the image; never one from before this process was registered, under which it may have led with a log that
    /// it has lost the end of. When the result is a new leader epoch under another leader, the caller subscribes there.
    pub fn apply_image(&self, image: &PartitionImage) -> RoleChange {
        self.update(|state, context, after| {
            let ends = self.log_ends();
            let applied = state.replica.apply_image(image, ends, context);
            match applied.change {
                RoleChange::Leader { epoch, new_epoch: true } => {
                    state.forget_streams();
                    self.log.assign_epoch(epoch, ends.end);
                    if ends.durable < ends.end {
                        self.log.flush_soon();
                    }
                }
                RoleChange::Leader { new_epoch: false, .. } => state.forget_ended_sessions(),
                RoleChange::Follower { new_epoch: true, .. } | RoleChange::NoLeader => {
                    state.forget_streams();
                }
                RoleChange::Follower { .. } | RoleChange::Ignored => {}
            }
            if applied.lost_leadership {
                state.fail_waiters(self.me, after);
            }
            self.take_effects(state, applied.effects, after);
            applied.change
        })
    }

    /// Takes over the topic's configs.
    pub fn update_config(&self, topic: Arc<TopicConfig>) {
        self.log.update_config(Arc::clone(&topic));
        self.update(|state, context, after| {
            let settings = Settings { topic, ..state.replica.settings().clone() };
            let effects = state.replica.set_settings(settings, context);
            self.take_effects(state, effects, after);
        });
        self.on_durable();
    }

    /// Stops serving, before the log is deleted or closed. Whoever waits is told that the leader is elsewhere.
    pub fn close(&self) {
        self.update(|state, _, after| {
            state.replica.resign();
            state.forget_streams();
            state.fail_waiters(self.me, after);
        });
    }

    /// More of the log is on disk, or a later log start: called on the threads of the log directory.
    pub fn on_durable(&self) {
        self.update(|state, context, after| {
            let ends = self.log_ends();
            match state.replica.role_mut() {
                Role::Leader(leader) => {
                    let effects = leader.on_log(ends, context);
                    state.durable.complete(ends.durable, Ok, &mut after.completions);
                    self.take_effects(state, effects, after);
                    for stream in &mut state.streams {
                        stream.tell_start(ends.start);
                    }
                    self.settle_trims(state, context, after);
                }
                Role::Follower(_) => state.mark_ack(),
            }
        });
    }

    /// Time has passed. Says whether time may still change something: whether to tick again. The broker takes its whole
    /// set of partitions to tick, ticks each, and puts those back that say so.
    pub fn on_tick(&self, now: Instant) -> bool {
        self.update_at(now, |state, context, after| {
            state.expire_waiters(now, after);
            if let Some(leader) = state.replica.leader_mut() {
                let effects = leader.on_tick(context);
                self.take_effects(state, effects, after);
            }
            self.settle_trims(state, context, after);
            let again = state.needs_tick();
            // Whoever needs the next tick gets it by the answer, not by asking again.
            self.ticking.store(again, Ordering::Relaxed);
            again
        })
    }

    pub fn high_watermark(&self) -> Offset {
        self.state.lock().replica.high_watermark()
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.state.lock().replica.leader_epoch()
    }

    pub fn is_leader(&self) -> bool {
        matches!(self.state.lock().replica.role(), Role::Leader(_))
    }

    pub fn status(&self) -> PartitionStatus {
        let state = self.state.lock();
        let leading = match state.replica.role() {
            Role::Leader(leader) => Some(LeadingStatus {
                isr: leader.isr().committed().to_vec(),
                min_isr: leader.min_isr(),
                followers: leader.remotes().iter().map(|r| (r.node, r.end_offset())).collect(),
            }),
            Role::Follower(_) => None,
        };
        PartitionStatus {
            leader: state.replica.current_leader().map(|(leader, _)| leader),
            leader_epoch: state.replica.leader_epoch(),
            high_watermark: state.replica.high_watermark(),
            ends: self.log_ends(),
            leading,
        }
    }

    /// The durable end first: it never passes the end that is read after it.
    fn log_ends(&self) -> LogEnds {
        let durable = self.log.durable_end_offset();
        LogEnds { start: self.log.start_offset(), end: self.log.end_offset(), durable }
    }

    /// Runs one event under the lock, and what it asks for after it.
    fn update<R>(&self, event: impl FnOnce(&mut State, Context<'_>, &mut AfterUnlock) -> R) -> R {
        self.update_at(time::now(), event)
    }

    fn update_at<R>(
        &self,
        now: Instant,
        event: impl FnOnce(&mut State, Context<'_>, &mut AfterUnlock) -> R,
    ) -> R {
        let active = |node| self.events.active_broker_epoch(node);
        let context = Context { now, active: &active };
        let mut after = AfterUnlock::default();
        let result = {
            let mut state = self.state.lock();
            let result = event(&mut state, context, &mut after);
            if !self.ticking.load(Ordering::Relaxed) && state.needs_tick() {
                self.ticking.store(true, Ordering::Relaxed);
                after.tick = true;
            }
            result
        };
        after.carry_out(self.id, &*self.events);
        result
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partition").field("id", &self.id).finish_non_exhaustive()
    }
}
