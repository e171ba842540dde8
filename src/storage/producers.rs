//! What the log knows about idempotent producers: epoch and last five batches of each (replication.md 3.7). Pure.
//!
//! The snapshot file is Kafka's: it holds the last batch of each producer only, so after a restart the duplicate window
//! is as wide as what was replayed from the log.

use std::collections::BTreeMap;

use super::AppendError;
use super::inspect::ProducerEntry;
use crate::record::BatchHeader;
use crate::types::{Offset, ProducerId, TimestampMs};

/// Batches of a producer that a retry is compared with.
const WINDOW: usize = 5;
/// `producer.id.expiration.ms`.
const EXPIRATION_MS: i64 = 24 * 3_600_000;
const EXPIRATION_CHECK_MS: i64 = 600_000;

/// A batch that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AppendedBatch {
    pub(super) last_sequence: i32,
    pub(super) last_offset: Offset,
    pub(super) offset_delta: i32,
    pub(super) timestamp_ms: TimestampMs,
}

impl AppendedBatch {
    fn of(header: &BatchHeader) -> Self {
        Self {
            last_sequence: header.last_sequence(),
            last_offset: header.last_offset(),
            offset_delta: header.last_offset_delta,
            timestamp_ms: header.max_timestamp_ms,
        }
    }

    pub(super) fn base_offset(&self) -> Offset {
        self.last_offset - i64::from(self.offset_delta)
    }

    /// Sequences count modulo 2^31.
    fn first_sequence(&self) -> i32 {
        self.last_sequence.wrapping_sub(self.offset_delta) & i32::MAX
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// Oldest first, at most [`WINDOW`].
    batches: Vec<AppendedBatch>,
    coordinator_epoch: i32,
    transaction_first_offset: Offset,
    /// When it last wrote, by our clock: a client's own timestamps may be years old.
    seen_ms: TimestampMs,
}

/// All producers of one partition.
#[derive(Debug, Clone, Default)]
pub(super) struct Producers {
    by_id: BTreeMap<ProducerId, Producer>,
    expired_ms: TimestampMs,
}

impl Producers {
    /// Decides about a batch from a client, whose offsets are not assigned yet: `Some` when it was appended before.
    pub(super) fn check(&self, header: &BatchHeader) -> Result<Option<AppendedBatch>, AppendError> {
        let producer_id = header.producer_id;
        let Some(known) = self.by_id.get(&producer_id).filter(|_| producer_id >= 0) else {
            // It may be new, or its state may have expired: any sequence is good.
            return Ok(None);
        };
        let (found, current) = (header.producer_epoch, known.epoch);
        if found < current {
            return Err(AppendError::InvalidProducerEpoch { producer_id, found, current });
        }
        let (first, last) = (header.base_sequence, header.last_sequence());
        let expected = if found > current {
            0
        } else {
            let copy = known
                .batches
                .iter()
                .find(|batch| batch.first_sequence() == first && batch.last_sequence == last);
            if copy.is_some() {
                return Ok(copy.copied());
            }
            known.batches.last().map_or(0, |last| last.last_sequence.wrapping_add(1) & i32::MAX)
        };
        if first == expected {
            return Ok(None);
        }
        Err(AppendError::OutOfOrderSequence { producer_id, found: first, expected })
    }

    /// Takes note of a batch that is in the log.
    pub(super) fn on_appended(&mut self, header: &BatchHeader, now_ms: TimestampMs) {
        if header.producer_id < 0 {
            return;
        }
        self.expire(now_ms);
        let producer = self.by_id.entry(header.producer_id).or_insert_with(|| Producer {
            epoch: header.producer_epoch,
            batches: Vec::new(),
            coordinator_epoch: -1,
            transaction_first_offset: -1,
            seen_ms: now_ms,
        });
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        producer.seen_ms = now_ms;
        if header.is_control() {
            producer.transaction_first_offset = -1;
        } else if header.is_transactional() && producer.transaction_first_offset < 0 {
            producer.transaction_first_offset = header.base_offset;
        }
        // Markers of transactions have an epoch but no sequence.
        if header.base_sequence >= 0 {
            if producer.batches.len() == WINDOW {
                producer.batches.remove(0);
            }
            producer.batches.push(AppendedBatch::of(header));
        }
    }

    fn expire(&mut self, now_ms: TimestampMs) {
        if now_ms.saturating_sub(self.expired_ms) >= EXPIRATION_CHECK_MS {
            self.expired_ms = now_ms;
            self.by_id.retain(|_, producer| {
                producer.transaction_first_offset >= 0
                    || now_ms.saturating_sub(producer.seen_ms) < EXPIRATION_MS
            });
        }
    }

    /// Where the first transaction begins that has no marker.
    pub(super) fn first_unstable(&self) -> Option<Offset> {
        let first_offsets = self.by_id.values().map(|producer| producer.transaction_first_offset);
        first_offsets.filter(|&offset| offset >= 0).min()
    }

    /// Epoch and newest batch of each.
    pub(super) fn last_batches(&self) -> BTreeMap<ProducerId, (i16, Option<Offset>)> {
        let last = |producer: &Producer| producer.batches.last().map(|batch| batch.last_offset);
        self.by_id.iter().map(|(&id, it)| (id, (it.epoch, last(it)))).collect()
    }

    /// The last sequence of each producer.
    #[cfg(test)]
    pub(super) fn last_sequences(&self) -> BTreeMap<ProducerId, i32> {
        let last = |producer: &Producer| Some(producer.batches.last()?.last_sequence);
        self.by_id.iter().filter_map(|(id, producer)| Some((*id, last(producer)?))).collect()
    }

    pub(super) fn clear(&mut self) {
        self.by_id.clear();
    }

    /// As a snapshot lists them.
    pub(super) fn entries(&self) -> impl Iterator<Item = ProducerEntry> {
        self.by_id.iter().map(|(id, producer)| {
            let last = producer.batches.last();
            ProducerEntry {
                producer_id: *id,
                producer_epoch: producer.epoch,
                last_sequence: last.map_or(-1, |last| last.last_sequence),
                last_offset: last.map_or(-1, |last| last.last_offset),
                offset_delta: last.map_or(0, |last| last.offset_delta),
                timestamp_ms: last.map_or(producer.seen_ms, |last| last.timestamp_ms),
                coordinator_epoch: producer.coordinator_epoch,
                transaction_first_offset: producer.transaction_first_offset,
            }
        })
    }

    /// Where `stated`, a snapshot, contradicts this, which was replayed from a log that begins at `first_offset`. A
    /// producer that a snapshot does not list may have expired.
    pub(super) fn disagreement(&self, stated: &Self, first_offset: Offset) -> Option<String> {
        stated.entries().find_map(|stated| {
            let id = stated.producer_id;
            let replayed = self.by_id.get(&id);
            let last = replayed.and_then(|replayed| replayed.batches.last());
            let last = last.map_or((-1, -1), |last| (last.last_sequence, last.last_offset));
            let is_same = last == (stated.last_sequence, stated.last_offset)
                && replayed.is_none_or(|replayed| replayed.epoch == stated.producer_epoch);
            (!is_same && stated.last_offset >= first_offset).then(|| {
                format!(
                    "producer {id} has sequence {} at offset {} in it, {} at {} in the log",
                    stated.last_sequence, stated.last_offset, last.0, last.1
                )
            })
        })
    }

    /// The content of a snapshot file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_SIZE + ENTRY_SIZE * self.by_id.len());
        out.extend_from_slice(&SNAPSHOT_VERSION.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        let count = i32::try_from(self.by_id.len()).expect("fewer producers than 2^31");
        out.extend_from_slice(&count.to_be_bytes());
        for entry in self.entries() {
            out.extend_from_slice(&entry.producer_id.to_be_bytes());
            out.extend_from_slice(&entry.producer_epoch.to_be_bytes());
            out.extend_from_slice(&entry.last_sequence.to_be_bytes());
            out.extend_from_slice(&entry.last_offset.to_be_bytes());
            out.extend_from_slice(&entry.offset_delta.to_be_bytes());
            out.extend_from_slice(&entry.timestamp_ms.to_be_bytes());
            out.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
            out.extend_from_slice(&entry.transaction_first_offset.to_be_bytes());
        }
        let crc = crc32c::crc32c(&out[CHECKSUMMED_FROM..]);
        out[2..CHECKSUMMED_FROM].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// `None` when the content is not that of a whole snapshot of what is below `end`: then the log is replayed instead.
    pub(super) fn decode(content: &[u8], end: Offset, now_ms: TimestampMs) -> Option<Self> {
        let (head, entries) = content.split_at_checked(HEAD_SIZE)?;
        let version = i16::from_be_bytes(*head.first_chunk()?);
        let crc = u32::from_be_bytes(*head[2..].first_chunk()?);
        let count = usize::try_from(i32::from_be_bytes(*head[6..].first_chunk()?)).ok()?;
        let whole = version == SNAPSHOT_VERSION
            && entries.len().checked_div(ENTRY_SIZE) == Some(count)
            && entries.len().is_multiple_of(ENTRY_SIZE)
            && crc32c::crc32c(&content[CHECKSUMMED_FROM..]) == crc;
        if !whole {
            return None;
        }
        let mut by_id = BTreeMap::new();
        for entry in entries.chunks_exact(ENTRY_SIZE) {
            let last = AppendedBatch {
                last_sequence: i32::from_be_bytes(*entry[10..].first_chunk()?),
                last_offset: i64::from_be_bytes(*entry[14..].first_chunk()?),
                offset_delta: i32::from_be_bytes(*entry[22..].first_chunk()?),
                timestamp_ms: i64::from_be_bytes(*entry[26..].first_chunk()?),
            };
            let producer = Producer {
                epoch: i16::from_be_bytes(*entry[8..].first_chunk()?),
                batches: if last.last_sequence >= 0 { vec![last] } else { Vec::new() },
                coordinator_epoch: i32::from_be_bytes(*entry[34..].first_chunk()?),
                transaction_first_offset: i64::from_be_bytes(*entry[38..].first_chunk()?),
                seen_ms: now_ms,
            };
            if last.last_offset >= end || producer.transaction_first_offset >= end {
                return None;
            }
            by_id.insert(i64::from_be_bytes(*entry.first_chunk()?), producer);
        }
        Some(Self { by_id, expired_ms: now_ms })
    }
}

const SNAPSHOT_VERSION: i16 = 1;
/// Version, CRC, count.
const HEAD_SIZE: usize = 10;
const CHECKSUMMED_FROM: usize = 6;
const ENTRY_SIZE: usize = 46;

#[cfg(test)]
#[path = "producers_test.rs"]
mod tests;
