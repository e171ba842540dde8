//! One replica of one partition.

use std::fs::File;
use std::sync::Arc;

use super::{AppendError, ReadError, Result};
use crate::metadata::config::TopicConfig;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId, TopicIdPartition, TopicPartition};

/// What the leader stamps on a batch.
#[derive(Debug, Clone, Copy)]
pub struct LeaderAppend {
    pub leader_epoch: LeaderEpoch,
    pub now_ms: TimestampMs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// -1 with `message.timestamp.type=CreateTime`.
    pub log_append_time_ms: TimestampMs,
    pub log_start_offset: Offset,
    /// The batch was there already: the offsets are those of the first copy, and nothing was written.
    pub duplicate: bool,
}

/// Whole batches in one file. Empty: no file, size 0.
#[derive(Debug, Clone)]
pub struct Slice {
    pub file: Option<Arc<File>>,
    pub position: u64,
    pub size: usize,
    /// The offset after the last batch; where to read on.
    pub next_offset: Offset,
}

impl Slice {
    pub fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// Appends the bytes to `out`.
    pub fn read_into(&self, _out: &mut Vec<u8>) -> Result<(), ReadError> {
        todo!()
    }

    /// Fills `out`, which is `size` bytes long.
    pub fn read_exact(&self, _out: &mut [u8]) -> Result<(), ReadError> {
        todo!()
    }
}

/// A record found by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampedOffset {
    pub timestamp_ms: TimestampMs,
    pub offset: Offset,
    pub leader_epoch: LeaderEpoch,
}

/// One writer at a time (a mutex inside); readers wait neither for a write nor for a flush.
pub struct PartitionLog {}

impl PartitionLog {
    pub fn name(&self) -> &TopicPartition {
        todo!()
    }
    pub fn topic_id(&self) -> TopicId {
        todo!()
    }
    pub fn id(&self) -> TopicIdPartition {
        todo!()
    }

    /// First offset that may be read.
    pub fn start_offset(&self) -> Offset {
        todo!()
    }
    /// The offset of the next record.
    pub fn end_offset(&self) -> Offset {
        todo!()
    }
    /// Everything below counts as stored: `end_offset` itself in page-cache mode, what is on disk in fsync mode.
    pub fn durable_end_offset(&self) -> Offset {
        todo!()
    }

    /// Validates one batch (kafka-protocol.md 3.4), assigns offsets in place and writes it.
    pub fn append_as_leader(
        &self,
        _batch: &mut [u8],
        _stamp: LeaderAppend,
    ) -> Result<Appended, AppendError> {
        todo!()
    }

    /// Appends batches as they are in the leader's log. Returns the new end offset. Batches before a bad one stay.
    pub fn append_as_follower(&self, _batches: &[u8]) -> Result<Offset, AppendError> {
        todo!()
    }

    /// Whole batches that hold offsets from `from` on and none at or above `upper`, at most `size_max` bytes of them
    /// (but the first one always with `at_least_one`). The first batch may begin below `from`.
    pub fn read(
        &self,
        _from: Offset,
        _upper: Offset,
        _size_max: usize,
        _at_least_one: bool,
    ) -> Result<Slice, ReadError> {
        todo!()
    }

    /// Asks the flusher for a round. Appends in fsync mode do that themselves.
    pub fn flush_soon(&self) {
        todo!()
    }

    /// Drops everything from `offset` on. Returns the new end offset, which is lower when `offset` is inside a batch.
    pub fn truncate_to(&self, _offset: Offset) -> Result<Offset> {
        todo!()
    }
    /// Drops everything and goes on at `start`.
    pub fn truncate_fully(&self, _start: Offset) -> Result<()> {
        todo!()
    }
    /// Never goes back. Segments that are wholly below are deleted.
    pub fn raise_start_offset(&self, _start: Offset) -> Result<()> {
        todo!()
    }

    /// The largest known epoch not above `epoch`, and where it ends (replication.md 2.8).
    pub fn end_offset_for_epoch(&self, _epoch: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        todo!()
    }
    /// NONE when no epoch is known.
    pub fn latest_epoch(&self) -> LeaderEpoch {
        todo!()
    }
    /// Says that `epoch` starts at `start`, even without a record yet.
    pub fn assign_epoch(&self, _epoch: LeaderEpoch, _start: Offset) {
        todo!()
    }

    /// The first record at or after `timestamp_ms`, if it is below `upper`.
    pub fn find_by_timestamp(
        &self,
        _timestamp_ms: TimestampMs,
        _upper: Offset,
    ) -> Result<Option<TimestampedOffset>, ReadError> {
        todo!()
    }
    /// The first record that has the largest timestamp below `upper`.
    pub fn max_timestamp(&self, _upper: Offset) -> Result<Option<TimestampedOffset>, ReadError> {
        todo!()
    }

    pub fn config(&self) -> Arc<TopicConfig> {
        todo!()
    }
    pub fn update_config(&self, _config: Arc<TopicConfig>) {
        todo!()
    }

    /// The high watermark that was on disk at start, or was set since.
    pub fn high_watermark_checkpoint(&self) -> Offset {
        todo!()
    }
    /// Remembered on disk within seconds. Cheap: an atomic store when it is called often.
    pub fn set_high_watermark_checkpoint(&self, _offset: Offset) {
        todo!()
    }

    /// Bytes of all segments.
    pub fn size(&self) -> u64 {
        todo!()
    }
}
