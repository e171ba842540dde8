//! What stays of a batch (replication.md 3.9).
//!
//! A record stays when it lies beyond the range of the pass, or is the last one of its key there; a tombstone only until
//! the delete horizon of its batch. Records of aborted transactions go at once, a marker when nothing of its
//! transaction is left and its horizon has passed. Every batch of the log is shown in order, because whether a marker's
//! transaction has batches left is known from those before it.

use std::collections::{BTreeMap, BTreeSet};

use super::offset_map::OffsetMap;
use super::transactions::{Marker, Outcomes, marker_of};
use crate::record::{
    Batch, BatchHeader, DECOMPRESSED_SIZE_MAX, Refusal, Selection, select, without_records,
};
use crate::types::{Offset, ProducerId, TimestampMs};

/// The newest batch of a producer that has a sequence, and its epoch.
pub(in super::super) type LastBatches = BTreeMap<ProducerId, (i16, Option<Offset>)>;

#[derive(Debug)]
pub(super) struct Rules {
    pub(super) map: OffsetMap,
    pub(super) outcomes: Outcomes,
    /// Batches from here on stay as they are.
    pub(super) clean_end: Offset,
    pub(super) now_ms: TimestampMs,
    pub(super) delete_retention_ms: TimestampMs,
    pub(super) last_batches: LastBatches,
    /// Producers whose transaction, the one under way in the order of the log, has batches.
    with_batches: BTreeSet<ProducerId>,
    /// Abort markers that stayed.
    pub(super) kept_aborts: BTreeSet<Offset>,
    pub(super) seen: Seen,
}

/// What was come across.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Seen {
    /// The earliest delete horizon of a batch that stayed.
    pub(super) next_horizon_ms: Option<TimestampMs>,
    /// Records that have no key and so cannot stay.
    pub(super) without_key: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Keep,
    Drop,
    Replace(Vec<u8>),
}

impl Rules {
    pub(super) fn new(map: OffsetMap, clean_end: Offset, now_ms: TimestampMs) -> Self {
        Self {
            map,
            outcomes: Outcomes::default(),
            clean_end,
            now_ms,
            delete_retention_ms: 0,
            last_batches: LastBatches::new(),
            with_batches: BTreeSet::new(),
            kept_aborts: BTreeSet::new(),
            seen: Seen::default(),
        }
    }

    /// With `holds_end`, the batch shows where its segment ends, and stays at least without records.
    pub(super) fn judge(&mut self, batch: &Batch<'_>, holds_end: bool) -> Result<Fate, Refusal> {
        let header = &batch.header;
        if header.base_offset >= self.clean_end {
            return Ok(Fate::Keep);
        }
        let fate = if header.is_control() {
            self.judge_marker(batch)?
        } else {
            self.judge_records(batch)?
        };
        Ok(match fate {
            Fate::Drop if holds_end || self.is_last_of_producer(header) => {
                if header.record_count == 0 {
                    Fate::Keep
                } else {
                    Fate::Replace(without_records(header))
                }
            }
            fate => fate,
        })
    }

    fn judge_marker(&mut self, batch: &Batch<'_>) -> Result<Fate, Refusal> {
        let header = &batch.header;
        if header.record_count == 0 {
            return Ok(Fate::Drop);
        }
        let Some(marker) = marker_of(batch)? else {
            return Ok(Fate::Keep);
        };
        let is_needed = self.with_batches.remove(&header.producer_id);
        let fate = if is_needed {
            Fate::Keep
        } else if !header.has_delete_horizon() {
            Fate::Replace(self.with_horizon(&select(batch, DECOMPRESSED_SIZE_MAX, |_| true)?))
        } else if header.base_timestamp_ms <= self.now_ms {
            return Ok(Fate::Drop);
        } else {
            self.wait_for(header.base_timestamp_ms);
            Fate::Keep
        };
        if marker == Marker::Abort {
            self.kept_aborts.insert(header.base_offset);
        }
        Ok(fate)
    }

    fn judge_records(&mut self, batch: &Batch<'_>) -> Result<Fate, Refusal> {
        let header = &batch.header;
        if header.is_transactional() {
            self.with_batches.insert(header.producer_id);
            if self.outcomes.is_aborted(header.producer_id, header.base_offset) {
                return Ok(Fate::Drop);
            }
        }
        let horizon_ms = header.has_delete_horizon().then_some(header.base_timestamp_ms);
        let tombstones_go = horizon_ms.is_some_and(|horizon_ms| horizon_ms <= self.now_ms);
        let (mut tombstones, mut without_key) = (0, 0);
        let selection = select(batch, DECOMPRESSED_SIZE_MAX, |record| {
            let Some(key) = record.key else {
                without_key += 1;
                return false;
            };
            let is_last = self.map.get(key).is_none_or(|last| record.offset >= last);
            let stays = is_last && (record.has_value || !tombstones_go);
            tombstones += usize::from(stays && !record.has_value);
            stays
        })?;
        self.seen.without_key += without_key;
        if selection.is_empty() {
            return Ok(Fate::Drop);
        }
        if tombstones > 0 {
            match horizon_ms {
                None => return Ok(Fate::Replace(self.with_horizon(&selection))),
                Some(horizon_ms) => self.wait_for(horizon_ms),
            }
        }
        if selection.is_whole() {
            return Ok(Fate::Keep);
        }
        Ok(Fate::Replace(selection.encode(None)))
    }

    fn with_horizon(&mut self, selection: &Selection<'_>) -> Vec<u8> {
        let horizon_ms = self.now_ms.saturating_add(self.delete_retention_ms);
        self.wait_for(horizon_ms);
        selection.encode(Some(horizon_ms))
    }

    fn wait_for(&mut self, horizon_ms: TimestampMs) {
        let next = self.seen.next_horizon_ms.get_or_insert(horizon_ms);
        *next = horizon_ms.min(*next);
    }

    /// Its sequence, or at least its epoch, must not be forgotten.
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        self.last_batches.get(&header.producer_id).is_some_and(|(epoch, last)| match last {
            Some(last) => *last == header.last_offset(),
            None => header.is_control() && header.producer_epoch == *epoch,
        })
    }
}
