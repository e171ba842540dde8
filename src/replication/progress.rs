//! What a leader knows of one follower: how far it is, and since when it has been too slow.
//!
//! Followers of an idle partition say nothing, so no clock runs while a follower is caught up. When the leader appends,
//! the clocks of those who had everything start.

use std::time::Instant;

use super::{LogEnds, Timing};
use crate::types::{BrokerEpoch, NodeId, Offset};

/// One subscription of a follower. A progress report counts only under the session that it was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub slot: u32,
    pub broker_epoch: BrokerEpoch,
}

/// Another assigned replica, as the leader of one leader epoch knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub node: NodeId,
    /// The one that reports count under; `None` once its stream has ended.
    pub session: Option<Session>,
    /// Of the last session: the incarnation whose progress `ends` is.
    pub broker_epoch: Option<BrokerEpoch>,
    /// `None` until it subscribes under this leader epoch.
    ends: Option<LogEnds>,
    /// When it last was known to have had everything.
    caught_up_at: Option<Instant>,
    /// Once it has this offset, it had everything at this time. Kept until it is reached, so that a follower with a
    /// long pipeline is credited for keeping up with a moving end.
    mark: Option<(Offset, Instant)>,
    /// Last report, or when it was last given something to report on.
    heard_at: Instant,
}

impl Remote {
    /// Before it has subscribed.
    pub fn new(node: NodeId, now: Instant) -> Self {
        Self {
            node,
            session: None,
            broker_epoch: None,
            ends: None,
            caught_up_at: None,
            mark: None,
            heard_at: now,
        }
    }

    /// How far it vouches for its log; `None` while that is unknown.
    pub fn acknowledged(&self) -> Option<Offset> {
        self.ends.map(|ends| ends.durable.min(ends.end))
    }

    /// Its log end, as last reported.
    pub fn end_offset(&self) -> Option<Offset> {
        self.ends.map(|ends| ends.end)
    }

    /// Its log start, as last reported.
    pub fn start_offset(&self) -> Option<Offset> {
        self.ends.map(|ends| ends.start)
    }

    /// A new session starts with what the follower says now, though it may be less than it said before.
    pub fn start_session(&mut self, session: Session, ends: LogEnds) {
        self.session = Some(session);
        self.broker_epoch = Some(session.broker_epoch);
        self.ends = Some(ends);
        self.mark = None;
    }

    /// Reports within a session never go back.
    pub fn report(&mut self, ends: LogEnds) {
        let known = self.ends.unwrap_or_default();
        self.ends = Some(LogEnds {
            start: ends.start,
            end: ends.end.max(known.end),
            durable: ends.durable.max(known.durable),
        });
    }

    /// Runs the clocks after a report, while the leader's log ends at `leader_end`.
    pub fn on_report(&mut self, leader_end: Offset, now: Instant) {
        self.heard_at = now;
        let acknowledged = self.acknowledged().unwrap_or(0);
        if acknowledged >= leader_end {
            self.caught_up_at = Some(now);
            self.mark = None;
            return;
        }
        match self.mark {
            Some((offset, marked_at)) if acknowledged >= offset => {
                self.caught_up_at = self.caught_up_at.max(Some(marked_at));
                self.mark = Some((leader_end, now));
            }
            Some(_) => {}
            None => self.mark = Some((leader_end, now)),
        }
    }

    /// Starts the clocks if it had everything until the leader's log grew from `old_end` to `new_end`.
    pub fn on_append(&mut self, old_end: Offset, new_end: Offset, now: Instant) {
        if !self.is_behind(old_end) {
            self.caught_up_at = Some(now);
            self.heard_at = now;
            self.mark = Some((new_end, now));
        }
    }

    pub fn is_behind(&self, leader_end: Offset) -> bool {
        self.acknowledged().is_none_or(|offset| offset < leader_end)
    }

    /// Behind for too long, or behind and silent: no ISR should wait for it.
    pub fn is_too_slow(&self, leader_end: Offset, timing: &Timing, now: Instant) -> bool {
        self.is_behind(leader_end)
            && (now.saturating_duration_since(self.heard_at) > timing.silence_max
                || self
                    .caught_up_at
                    .is_none_or(|at| now.saturating_duration_since(at) > timing.lag_max))
    }

    /// For a member of an ISR: if it has never been seen caught up, it has been until now.
    pub fn assume_caught_up(&mut self, now: Instant) {
        self.caught_up_at.get_or_insert(now);
    }

    /// Outside the ISR, but so close that the leader waits for it.
    pub fn is_joining(&self, timing: &Timing, now: Instant) -> bool {
        self.session.is_some()
            && self
                .caught_up_at
                .is_some_and(|at| now.saturating_duration_since(at) <= timing.joining_max)
    }
}
