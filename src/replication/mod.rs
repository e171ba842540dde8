//! How one partition is kept the same on several brokers: roles, ISR, high watermark, truncation (replication.md 2).
//!
//! ```text
//!              image: leader is me              acks, appends, flushes, ticks, controller's replies
//!   Follower ----------------------> Leader  ------------------------------------------------------> Effects
//!            <----------------------         isr: Committed <-> PendingExpand | PendingShrink
//!              image: it is not me
//! ```
//! `broker::partition` feeds events in, under its lock, and carries out the [`Effects`]. It owns the log; here a log is
//! its three ends ([`LogEnds`]).
//!
//! Invariant: no tokio, no clock, no randomness, no `HashMap` iteration, no I/O. Time comes in with the [`Context`].

mod follower;
mod isr;
mod leader;
#[cfg(test)]
mod leader_test;
mod progress;
mod replica;
#[cfg(test)]
mod replica_test;
#[cfg(test)]
mod simulation_test;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use follower::{Follower, FollowerRefusal, Reset};
pub use isr::IsrState;
pub use leader::{
    FetchRefusal, FollowerFetch, Leader, SubscribeRefusal, check_fetch, check_leader_epoch,
};
pub use progress::{Remote, Session};
pub use replica::{Applied, Replica, Role, RoleChange};

use crate::metadata::config::TopicConfig;
use crate::types::{BrokerEpoch, NodeId, Offset};

/// Where a log starts, where it ends, and up to where its owner vouches for it: in page-cache mode to its end, in fsync
/// mode to what is on disk (replication.md 3.6). The ends are exclusive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogEnds {
    pub start: Offset,
    pub end: Offset,
    pub durable: Offset,
}

/// When a follower is too slow (replication.md 2.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// An ISR member that was not caught up for so long is removed.
    pub lag_max: Duration,
    /// An ISR member that is behind and says nothing for so long is removed.
    pub silence_max: Duration,
    /// A replica outside the ISR that was caught up so recently holds the high watermark: it is about to join.
    pub joining_max: Duration,
    /// How long after a refusal the leader proposes again.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lag_max: Duration::from_secs(10),
            silence_max: Duration::from_millis(1500),
            joining_max: Duration::from_millis(500),
            retry: Duration::from_millis(50),
        }
    }
}

/// What configs say about the replication of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub topic: Arc<TopicConfig>,
    pub timing: Timing,
}

/// What an event may look at besides the partition.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub now: Instant,
    /// The broker epoch of a broker that is registered, unfenced and not shutting down, by the published image.
    pub active: &'a dyn Fn(NodeId) -> Option<BrokerEpoch>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("now", &self.now).finish_non_exhaustive()
    }
}

/// What the shell has to do after an event. A closed set, without allocation: it is made for every ack.
#[must_use]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effects {
    /// The high watermark has moved to here: wake who waits for it, tell followers.
    pub high_watermark: Option<Offset>,
    /// There is a proposal that the controller must hear of: `Leader::pending_alter`.
    pub propose: bool,
}

impl Effects {
    pub const NONE: Self = Self { high_watermark: None, propose: false };

    /// Both, the later one's high watermark winning.
    pub fn and(self, later: Self) -> Self {
        Self {
            high_watermark: later.high_watermark.or(self.high_watermark),
            propose: self.propose || later.propose,
        }
    }
}
