//! What the tools for operators ask on the clients port.

use serde::{Deserialize, Serialize};

use super::{PartitionError, Produced};
use crate::types::{Offset, TopicIdPartition};

/// The payload holds batches that another log assigned offsets to; they keep them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportRequest {
    pub partition: TopicIdPartition,
    /// Where the caller believes that the log ends.
    pub expected_end: Offset,
    pub timeout_ms: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportReply {
    pub result: Result<Produced, PartitionError>,
}

/// Asks a broker for its own replica, leader or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReplicaRequest {
    pub partition: TopicIdPartition,
    /// Below the start of the log, the start.
    pub from: Offset,
    /// Nothing at or above it is read, nor above the high watermark that the replica knows.
    pub upper: Offset,
    /// One batch is read however large it is.
    pub bytes_max: u32,
    /// Whether the payload shall hold the batches.
    pub with_bytes: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadReplicaReply {
    pub result: Result<ReplicaRange, PartitionError>,
}

/// Some batches of a replica, and where its log begins and what is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRange {
    pub log_start_offset: Offset,
    pub high_watermark: Offset,
    pub next_offset: Offset,
    pub size: u32,
    /// XXH3 of the bytes.
    pub digest: u64,
}
