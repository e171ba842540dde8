//! Definitions of the dynamic configs.

use crate::types::TimestampMs;

/// When a record counts (design D9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk.
    Fsync,
    /// When the operating system has it.
    PageCache,
}

/// Which time a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// The configs of a topic that something reads, typed and valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    pub segment_bytes: u32,
    pub segment_ms: TimestampMs,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    pub max_message_bytes: u32,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: TimestampMs,
    pub message_timestamp_after_max_ms: TimestampMs,
    pub file_delete_delay_ms: TimestampMs,
    /// `None`: 2 when there are three replicas or more, else 1. Read it through [`TopicConfig::min_isr`].
    pub min_insync_replicas: Option<u32>,
    /// `None`: the broker's.
    pub durability: Option<Durability>,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: (1 << 20) + 12,
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: TimestampMs::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            file_delete_delay_ms: 60_000,
            min_insync_replicas: None,
            durability: None,
        }
    }
}

impl TopicConfig {
    /// How many in-sync replicas an acknowledgement of all needs, of a partition with so many replicas: never more
    /// than there are.
    pub fn min_isr(&self, replica_count: usize) -> usize {
        let wanted = match self.min_insync_replicas {
            Some(count) => count as usize,
            None if replica_count >= 3 => 2,
            None => 1,
        };
        wanted.min(replica_count)
    }
}
