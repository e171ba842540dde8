//! The leader's side of a replica stream: who is pushed what.

use std::sync::Arc;

use super::Partition;
use super::state::{FollowerStream, Marked};
use crate::broker::outbox::Outbox;
use crate::protocol::ErrorCode;
use crate::protocol::native::{AckedPartition, PushEvent, Subscription};
use crate::replication::{FollowerFetch, LogEnds, Session, SubscribeRefusal};
use crate::storage::Slice;
use crate::types::{BrokerEpoch, NodeId, Offset};

/// What to push to a follower; with an empty slice only the offsets have moved.
#[derive(Debug, Clone)]
pub struct FollowerRead {
    pub fetch_offset: Offset,
    pub slice: Slice,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
}

impl Partition {
    /// Serves a follower from its fetch offset on, in place of an earlier subscription of the same follower. `outbox` is
    /// its stream's. Slot numbers of one follower process must grow, over all of its streams: a lower one is old news.
    pub fn subscribe(
        &self,
        follower: NodeId,
        broker_epoch: BrokerEpoch,
        subscription: &Subscription,
        outbox: &Arc<Outbox>,
    ) -> Result<(), PushEvent> {
        self.update(|state, context, after| {
            let ends = self.log_ends();
            let refused = |code| PushEvent::Refused {
                code,
                log_start_offset: ends.start,
                end_offset: ends.end,
            };
            let slot = subscription.slot;
            let fetch = FollowerFetch {
                node: follower,
                session: Session { slot, broker_epoch },
                leader_epoch: subscription.leader_epoch,
                ends: LogEnds {
                    start: subscription.log_start_offset,
                    end: subscription.fetch_offset,
                    durable: subscription.durable_offset,
                },
                last_fetched_epoch: subscription.last_fetched_epoch,
            };
            let Some(leader) = state.replica.leader_mut() else {
                return Err(refused(ErrorCode::NotLeaderOrFollower));
            };
            let epoch_end = |epoch| self.log.end_offset_for_epoch(epoch);
            let effects = match leader.on_subscribe(&fetch, epoch_end, context) {
                Ok(effects) => effects,
                Err(SubscribeRefusal::Diverging { epoch, end_offset }) => {
                    return Err(PushEvent::Diverging { epoch, end_offset });
                }
                Err(SubscribeRefusal::Superseded) => {
                    return Err(refused(ErrorCode::NotLeaderOrFollower));
                }
                Err(SubscribeRefusal::Code(code)) => return Err(refused(code)),
            };
            // Perhaps it comes back because what it was pushed is not what was written.
            self.log.look_again_from(subscription.fetch_offset);
            state.streams.retain(|stream| stream.node != follower);
            let mut stream = FollowerStream {
                node: follower,
                slot,
                outbox: Arc::clone(outbox),
                marked: Marked::No,
                next_offset: subscription.fetch_offset,
                told: (-1, -1),
            };
            // If there is nothing to push, it still learns the high watermark.
            stream.mark();
            state.streams.push(stream);
            self.take_effects(state, effects, after);
            Ok(())
        })
    }

    /// The follower has dropped the slot, or its stream has ended.
    pub fn unsubscribe(&self, follower: NodeId, slot: u32) {
        self.update(|state, _, _| {
            state.streams.retain(|stream| (stream.node, stream.slot) != (follower, slot));
            if let Some(leader) = state.replica.leader_mut() {
                leader.on_unsubscribe(follower, slot);
            }
        });
    }

    /// The next thing to push to a subscribed follower, at most `size_max` bytes of it unless the first batch is larger.
    /// `None` when there is nothing, or no such subscription. When more is left, the slot is marked again. After an
    /// error the subscription has ended, and the follower is to be told.
    pub fn read_for_follower(
        &self,
        follower: NodeId,
        slot: u32,
        size_max: usize,
    ) -> Result<Option<FollowerRead>, PushEvent> {
        let (from, told, high_watermark) = {
            let mut state = self.state.lock();
            let high_watermark = state.replica.high_watermark();
            let Some(stream) = state.stream_mut(follower, slot) else { return Ok(None) };
            stream.marked = Marked::No;
            (stream.next_offset, stream.told, high_watermark)
        };
        let ends = self.log_ends();
        let slice = self.log.read(from, ends.end, size_max, true).map_err(|error| {
            self.unsubscribe(follower, slot);
            PushEvent::Refused {
                code: error.code(),
                log_start_offset: ends.start,
                end_offset: ends.end,
            }
        })?;
        if slice.is_empty() && told == (high_watermark, ends.start) {
            return Ok(None);
        }
        let mut state = self.state.lock();
        // If the subscription is over, so is this leadership perhaps: what was read may be of the next one.
        let Some(stream) = state.stream_mut(follower, slot) else { return Ok(None) };
        stream.told = (high_watermark, ends.start);
        if !slice.is_empty() {
            stream.next_offset = slice.next_offset;
            if slice.next_offset < ends.end {
                stream.mark();
            }
        }
        Ok(Some(FollowerRead {
            fetch_offset: from,
            slice,
            high_watermark,
            log_start_offset: ends.start,
        }))
    }

    /// A follower's progress. An ack of an earlier subscription is dropped.
    pub fn on_ack(&self, follower: NodeId, ack: &AckedPartition) {
        self.update(|state, context, after| {
            let Some(leader) = state.replica.leader_mut() else { return };
            let ends = LogEnds {
                start: ack.log_start_offset,
                end: ack.end_offset,
                durable: ack.durable_offset,
            };
            let effects = leader.on_ack(follower, ack.slot, ends, context);
            self.take_effects(state, effects, after);
            self.settle_trims(state, context, after);
        });
    }
}

impl super::state::State {
    fn stream_mut(&mut self, follower: NodeId, slot: u32) -> Option<&mut FollowerStream> {
        self.streams.iter_mut().find(|stream| (stream.node, stream.slot) == (follower, slot))
    }
}
