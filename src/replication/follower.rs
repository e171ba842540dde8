//! A follower of a partition: whom it follows, under which slot, and how its log is made a prefix of the leader's.
//!
//! Invariants: nothing is appended, truncated or acknowledged for a slot that is not the current one, so what was under
//! way when the leadership changed is dropped. The log is never truncated below the high watermark (15).

use super::LogEnds;
use crate::types::{LeaderEpoch, NodeId, Offset};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Follower {
    leader: Option<NodeId>,
    epoch: LeaderEpoch,
    /// The current subscription.
    slot: Option<u32>,
    high_watermark: Offset,
}

/// What to do with the log before the next subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    Nothing,
    TruncateTo(Offset),
    /// The leader has none of it any more: empty, to go on at this offset.
    RestartAt(Offset),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FollowerRefusal {
    #[error("the message is of a subscription that has ended")]
    StaleSlot,
    #[error("the batches start at {offset}, the log ends at {end_offset}")]
    Gap { offset: Offset, end_offset: Offset },
    #[error(
        "following the leader would truncate to {offset}, below the high watermark {high_watermark}"
    )]
    BelowHighWatermark { offset: Offset, high_watermark: Offset },
}

impl Follower {
    pub(super) fn new(leader: Option<NodeId>, epoch: LeaderEpoch, high_watermark: Offset) -> Self {
        Self { leader, epoch, slot: None, high_watermark }
    }

    /// `None`: nobody leads.
    pub fn leader(&self) -> Option<NodeId> {
        self.leader
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    pub fn slot(&self) -> Option<u32> {
        self.slot
    }

    /// Begins a subscription under a new slot; the one before is over.
    pub fn subscribe(&mut self, slot: u32) {
        self.slot = Some(slot);
    }

    /// Ends the subscription, if it is still that one.
    pub fn unsubscribe(&mut self, slot: u32) {
        if self.slot == Some(slot) {
            self.slot = None;
        }
    }

    /// Whether batches from `fetch_offset` on, or none, may be applied to the log.
    pub fn on_push(
        &self,
        slot: u32,
        fetch_offset: Offset,
        ends: LogEnds,
    ) -> Result<(), FollowerRefusal> {
        self.check_slot(slot)?;
        if fetch_offset != ends.end {
            return Err(FollowerRefusal::Gap { offset: fetch_offset, end_offset: ends.end });
        }
        Ok(())
    }

    /// Takes over the leader's high watermark as far as the own log reaches. What was committed once stays committed,
    /// so a new leader that does not know as much yet does not lower it.
    pub fn on_high_watermark(&mut self, leaders: Offset, ends: LogEnds) -> Option<Offset> {
        let known = leaders.min(ends.end).max(ends.start);
        (known > self.high_watermark).then(|| {
            self.high_watermark = known;
            known
        })
    }

    /// The leader knows `epoch` to end at `end_offset`; `own` is this log's answer for the same epoch. Ends the
    /// subscription (replication.md 2.7).
    pub fn on_diverging(
        &mut self,
        slot: u32,
        epoch: LeaderEpoch,
        end_offset: Offset,
        own: Option<(LeaderEpoch, Offset)>,
        ends: LogEnds,
    ) -> Result<Reset, FollowerRefusal> {
        self.check_slot(slot)?;
        self.slot = None;
        let offset = match own {
            // This log has nothing of that epoch: give up what came after the one before it, and ask again.
            Some((own_epoch, own_end)) if own_epoch < epoch => own_end.min(ends.end),
            Some((_, own_end)) => own_end.min(end_offset).min(ends.end),
            None => end_offset.min(ends.end),
        };
        self.truncate_to(offset)
    }

    /// The leader cannot read on from this log's end. Ends the subscription.
    pub fn on_out_of_range(
        &mut self,
        slot: u32,
        leader_start: Offset,
        leader_end: Offset,
        ends: LogEnds,
    ) -> Result<Reset, FollowerRefusal> {
        self.check_slot(slot)?;
        self.slot = None;
        if leader_end < ends.end {
            return self.truncate_to(leader_end);
        }
        if leader_start > ends.end {
            self.high_watermark = leader_start;
            return Ok(Reset::RestartAt(leader_start));
        }
        Ok(Reset::Nothing)
    }

    fn check_slot(&self, slot: u32) -> Result<(), FollowerRefusal> {
        if self.slot == Some(slot) { Ok(()) } else { Err(FollowerRefusal::StaleSlot) }
    }

    fn truncate_to(&self, offset: Offset) -> Result<Reset, FollowerRefusal> {
        if offset < self.high_watermark {
            let high_watermark = self.high_watermark;
            return Err(FollowerRefusal::BelowHighWatermark { offset, high_watermark });
        }
        Ok(Reset::TruncateTo(offset))
    }
}
