//! What clients read: batches below the high watermark, and offsets (replication.md 2.6).

use std::sync::Arc;

use super::Partition;
use super::error::refuse;
use crate::broker::purgatory::FetchWaiter;
use crate::protocol::ErrorCode;
use crate::protocol::native::{ListedOffset, OffsetQuery, PartitionError};
use crate::replication::{FetchRefusal, check_fetch, check_leader_epoch};
use crate::storage::{ReadError, Slice, TimestampedOffset};
use crate::types::{LeaderEpoch, Offset};

/// What a fetch of one partition found.
#[derive(Debug, Clone)]
pub struct FetchedSlice {
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    pub slice: Slice,
    /// The reader's log has records that this one does not: the epoch to truncate to, and where it ends. No batches then.
    pub diverging: Option<(LeaderEpoch, Offset)>,
}

/// The offset of no record.
const NO_OFFSET: ListedOffset =
    ListedOffset { offset: -1, timestamp: -1, leader_epoch: LeaderEpoch::NONE };

fn unreadable(error: &ReadError) -> PartitionError {
    refuse(error.code(), error.to_string())
}

impl Partition {
    /// Reads whole batches from `offset` on, below the high watermark. An offset between that and the log's end reads
    /// nothing, without error: after an election the high watermark may be behind what a client has seen.
    pub fn fetch_read(
        &self,
        offset: Offset,
        leader_epoch: LeaderEpoch,
        last_fetched_epoch: LeaderEpoch,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<FetchedSlice, PartitionError> {
        let high_watermark = self.led(leader_epoch)?.high_watermark;
        let ends = self.log_ends();
        let mut fetched = FetchedSlice {
            high_watermark,
            log_start_offset: ends.start,
            slice: Slice { file: None, position: 0, size: 0, next_offset: offset },
            diverging: None,
        };
        let epoch_end = |epoch| self.log.end_offset_for_epoch(epoch);
        match check_fetch(offset, last_fetched_epoch, ends, epoch_end) {
            Ok(()) => {}
            Err(FetchRefusal::Diverging { epoch, end_offset }) => {
                fetched.diverging = Some((epoch, end_offset));
                return Ok(fetched);
            }
            Err(FetchRefusal::OutOfRange) => {
                let message = format!("offset {offset} is not in {}..={}", ends.start, ends.end);
                return Err(refuse(ErrorCode::OffsetOutOfRange, message));
            }
        }
        if offset < high_watermark {
            fetched.slice = self
                .log
                .read(offset, high_watermark, bytes_max, at_least_one)
                .map_err(|error| unreadable(&error))?;
        }
        Ok(fetched)
    }

    /// What this replica holds, leader or not: whole batches with offsets from `from` on and below `upper` and the high
    /// watermark as it knows it. Below the start of its log, the start.
    pub fn read_replica(
        &self,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
    ) -> Result<FetchedSlice, PartitionError> {
        let (high_watermark, log_start_offset) = (self.high_watermark(), self.log.start_offset());
        let slice = self
            .log
            .read(from.max(log_start_offset), upper.min(high_watermark), bytes_max, true)
            .map_err(|error| unreadable(&error))?;
        Ok(FetchedSlice { high_watermark, log_start_offset, slice, diverging: None })
    }

    /// Wakes `waiter` at the next change of the high watermark or of the role. False: there is one already since the
    /// high watermark was `seen`, so read again. Register before every wait.
    pub fn register_fetch_waiter(&self, waiter: &Arc<FetchWaiter>, seen: Offset) -> bool {
        let mut state = self.state.lock();
        let unchanged = state.leader(self.me).is_ok_and(|leader| leader.high_watermark() == seen);
        if unchanged {
            state.fetches.register(waiter);
        }
        unchanged
    }

    pub fn list_offset(
        &self,
        query: OffsetQuery,
        leader_epoch: LeaderEpoch,
    ) -> Result<ListedOffset, PartitionError> {
        let led = self.led(leader_epoch)?;
        let not_available = || {
            let message = "the new leader does not know yet how far the last one was read";
            refuse(ErrorCode::OffsetNotAvailable, message)
        };
        let found = |found: Result<Option<TimestampedOffset>, ReadError>| {
            let found = found.map_err(|error| unreadable(&error))?;
            match found {
                Some(TimestampedOffset { timestamp_ms: timestamp, offset, leader_epoch }) => {
                    Ok(ListedOffset { offset, timestamp, leader_epoch })
                }
                None if !led.settled => Err(not_available()),
                None => Ok(NO_OFFSET),
            }
        };
        match query {
            OffsetQuery::Earliest => {
                Ok(ListedOffset { offset: self.log.start_offset(), ..NO_OFFSET })
            }
            OffsetQuery::Latest if !led.settled => Err(not_available()),
            OffsetQuery::Latest => {
                let (offset, leader_epoch) = (led.high_watermark, led.epoch);
                Ok(ListedOffset { offset, leader_epoch, ..NO_OFFSET })
            }
            OffsetQuery::Timestamp(timestamp) => {
                found(self.log.find_by_timestamp(timestamp, led.high_watermark))
            }
            OffsetQuery::MaxTimestamp if !led.settled => Err(not_available()),
            OffsetQuery::MaxTimestamp => found(self.log.max_timestamp(led.high_watermark)),
        }
    }

    /// Where an epoch ends, for clients that check their position (KIP-320).
    pub fn end_offset_for_epoch(
        &self,
        epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, PartitionError> {
        self.led(leader_epoch)?;
        Ok(self.log.end_offset_for_epoch(epoch))
    }

    /// That this broker leads, under the epoch that the client knows.
    fn led(&self, asked: LeaderEpoch) -> Result<Led, PartitionError> {
        let mut state = self.state.lock();
        let leader = state.leader(self.me)?;
        check_leader_epoch(asked, leader.epoch()).map_err(|code| {
            let mut error = refuse(code, format!("the leader epoch is {}", leader.epoch()));
            error.leader = Some((self.me, leader.epoch()));
            error
        })?;
        Ok(Led {
            epoch: leader.epoch(),
            high_watermark: leader.high_watermark(),
            settled: leader.is_high_watermark_settled(),
        })
    }
}

struct Led {
    epoch: LeaderEpoch,
    high_watermark: Offset,
    settled: bool,
}
