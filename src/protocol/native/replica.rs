//! The replica stream: one connection per (follower broker, leader broker) pair (design D6).
//!
//! ```text
//! follower                                   leader
//!   Subscribe {partitions, offsets, epochs} -->
//!                                          <-- Push {partition, high watermark, ...; batches as payload}
//!   Ack {end offset, durable end offset}    -->      ... and so on; idle partitions send nothing
//! ```
//! A partition is named by the slot number that the follower chose when it subscribed; a later subscription of the
//! same partition takes a new slot, so that nothing that was under way can be taken for an answer to it.

use serde::{Deserialize, Serialize};

use crate::protocol::ErrorCode;
use crate::types::{LeaderEpoch, Offset, TopicIdPartition};

/// Adds partitions to the stream and drops some.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSubscribe {
    pub add: Vec<Subscription>,
    pub drop: Vec<u32>,
}

/// Means what a Kafka follower fetch means, and is checked as one (replication.md 2.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    pub slot: u32,
    pub partition: TopicIdPartition,
    pub leader_epoch: LeaderEpoch,
    /// The follower's log end offset.
    pub fetch_offset: Offset,
    pub durable_offset: Offset,
    /// Epoch of its last record; NONE when its log has no epoch.
    pub last_fetched_epoch: LeaderEpoch,
    pub log_start_offset: Offset,
}

/// The follower's progress. Means what the fetch offset of the next Kafka fetch means.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaAck {
    pub partitions: Vec<AckedPartition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AckedPartition {
    pub slot: u32,
    pub end_offset: Offset,
    pub durable_offset: Offset,
    pub log_start_offset: Offset,
}

/// What the leader pushes. The payload holds the batches of the entries, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaPush {
    pub entries: Vec<PushEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushEntry {
    pub slot: u32,
    pub event: PushEvent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PushEvent {
    /// Whole batches from `fetch_offset` on (none when `size` is 0: only the offsets moved).
    Batches { fetch_offset: Offset, size: u32, high_watermark: Offset, log_start_offset: Offset },
    /// The follower's log diverges: the largest epoch not above its own that the leader knows, and where it ends.
    Diverging { epoch: LeaderEpoch, end_offset: Offset },
    /// The slot ends with this error; the follower subscribes again when its image or a back-off says so.
    Refused { code: ErrorCode, log_start_offset: Offset, end_offset: Offset },
}
