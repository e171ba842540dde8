//! The follower's side of a replica stream: appends what the leader pushes, truncates where the logs diverge.

use std::sync::Arc;

use tracing::{error, info};

use super::Partition;
use super::error::{BACKOFF, FollowerError, NextStep};
use super::state::{AckStream, State};
use crate::broker::outbox::Outbox;
use crate::protocol::ErrorCode;
use crate::protocol::native::{AckedPartition, Subscription};
use crate::record;
use crate::replication::{Effects, Follower, FollowerRefusal, Reset};
use crate::types::{LeaderEpoch, NodeId, Offset};

impl Partition {
    /// Begins a subscription under a slot that this process has never used before; the one before is over. `acks` is
    /// where acknowledgements are marked that come later than the append (see [`Partition::take_ack`]). `None` when
    /// there is nobody to follow.
    pub fn follower_subscription(
        &self,
        slot: u32,
        acks: &Arc<Outbox>,
    ) -> Option<(NodeId, Subscription)> {
        self.update(|state, _, _| {
            let follower = state.replica.follower_mut()?;
            let leader = follower.leader().filter(|_| self.log.takes_batches())?;
            follower.subscribe(slot);
            let leader_epoch = follower.epoch();
            state.acks = Some(AckStream { slot, outbox: Arc::clone(acks), marked: false });
            let ends = self.log_ends();
            let subscription = Subscription {
                slot,
                partition: self.id,
                leader_epoch,
                fetch_offset: ends.end,
                durable_offset: ends.durable,
                last_fetched_epoch: self.log.latest_epoch(),
                log_start_offset: self.log.durable_start_offset(),
            };
            Some((leader, subscription))
        })
    }

    /// Ends a subscription from this side: its stream has ended.
    pub fn end_subscription(&self, slot: u32) {
        self.update(|state, _, _| {
            if let Some(follower) = state.replica.follower_mut() {
                follower.unsubscribe(slot);
            }
            state.acks.take_if(|acks| acks.slot == slot);
        });
    }

    /// Applies a push. The ack is there when batches were appended and this broker vouches for them already; otherwise
    /// the slot is marked in the ack outbox once it does.
    pub fn append_from_leader(
        &self,
        slot: u32,
        fetch_offset: Offset,
        batches: &[u8],
        high_watermark: Offset,
        log_start_offset: Offset,
    ) -> Result<Option<AckedPartition>, FollowerError> {
        self.update(|state, _, after| {
            let follower = follower(state)?;
            follower.on_push(slot, fetch_offset, self.log_ends())?;
            if !batches.is_empty() {
                check_epochs(batches, follower.epoch())?;
                self.log.append_as_follower(batches)?;
            }
            let ends = self.log_ends();
            if let Some(known) = follower.on_high_watermark(high_watermark, ends) {
                let effects = Effects { high_watermark: Some(known), ..Effects::NONE };
                self.take_effects(state, effects, after);
            }
            if log_start_offset > ends.start && log_start_offset <= ends.end {
                self.log.raise_start_offset(log_start_offset)?;
            }
            if self.log.is_damaged() && ends.end >= high_watermark {
                self.log.end_repair()?;
            }
            let vouched = !batches.is_empty() && ends.durable == ends.end;
            Ok(vouched.then(|| self.acked(slot)))
        })
    }

    /// The acknowledgement of a marked slot; `None` when its subscription is over.
    pub fn take_ack(&self, slot: u32) -> Option<AckedPartition> {
        let mut state = self.state.lock();
        let acks = state.acks.as_mut().filter(|acks| acks.slot == slot)?;
        acks.marked = false;
        Some(self.acked(slot))
    }

    /// The leader's log diverges from this one (replication.md 2.7): truncates, then the caller subscribes again.
    pub fn on_diverging(
        &self,
        slot: u32,
        epoch: LeaderEpoch,
        end_offset: Offset,
    ) -> Result<(), FollowerError> {
        self.update(|state, _, _| {
            let own = self.log.end_offset_for_epoch(epoch);
            let ends = self.log_ends();
            let reset = follower(state)?.on_diverging(slot, epoch, end_offset, own, ends);
            self.reset(state, reset)
        })
    }

    /// The leader has ended the slot with an error.
    pub fn on_refused(
        &self,
        slot: u32,
        code: ErrorCode,
        leader_start: Offset,
        leader_end: Offset,
    ) -> Result<NextStep, FollowerError> {
        self.update(|state, _, _| {
            let follower = follower(state)?;
            if follower.slot() != Some(slot) {
                return Ok(NextStep::Ignore);
            }
            if code != ErrorCode::OffsetOutOfRange {
                follower.unsubscribe(slot);
                state.acks = None;
                return Ok(match code {
                    // A retry costs little, and this broker may be the one whose image is behind for good.
                    ErrorCode::FencedLeaderEpoch | ErrorCode::KafkaStorageError => {
                        NextStep::SubscribeAfter(10 * BACKOFF)
                    }
                    _ => NextStep::SubscribeAfter(BACKOFF),
                });
            }
            let ends = self.log_ends();
            let reset = follower.on_out_of_range(slot, leader_start, leader_end, ends);
            self.reset(state, reset)?;
            Ok(NextStep::SubscribeAfter(BACKOFF))
        })
    }

    fn reset(
        &self,
        state: &mut State,
        reset: Result<Reset, FollowerRefusal>,
    ) -> Result<(), FollowerError> {
        let reset = reset.inspect_err(|refusal| {
            if matches!(refusal, FollowerRefusal::BelowHighWatermark { .. }) {
                error!(partition = %self.name(), %refusal, "replica stops: records would be lost");
            }
        })?;
        state.acks = None;
        let from = self.log.end_offset();
        match reset {
            Reset::Nothing => {}
            Reset::TruncateTo(offset) => {
                let end = self.log.truncate_to(offset)?;
                info!(partition = %self.name(), from, to = end, "truncated to follow the leader");
            }
            Reset::RestartAt(offset) => {
                self.log.truncate_fully(offset)?;
                info!(partition = %self.name(), from, at = offset, "restarted at the leader's start");
            }
        }
        Ok(())
    }

    fn acked(&self, slot: u32) -> AckedPartition {
        let ends = self.log_ends();
        AckedPartition {
            slot,
            end_offset: ends.end,
            durable_offset: ends.durable,
            log_start_offset: self.log.durable_start_offset(),
        }
    }
}

fn follower(state: &mut State) -> Result<&mut Follower, FollowerRefusal> {
    state.replica.follower_mut().ok_or(FollowerRefusal::StaleSlot)
}

/// A leader reads without a lock what it pushes, so a deposed one might push what its successor wrote.
fn check_epochs(batches: &[u8], current: LeaderEpoch) -> Result<(), FollowerError> {
    for batch in record::batches(batches) {
        let found = batch?.header.leader_epoch;
        if found > current {
            return Err(FollowerError::ForeignEpoch { found, current });
        }
    }
    Ok(())
}
