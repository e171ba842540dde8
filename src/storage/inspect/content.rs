//! The files beside the batches, decoded.

use std::fs;
use std::path::Path;

use super::super::checkpoint::{parse_epochs, parse_offsets, parse_topic_id};
use super::super::index::{Entry, OffsetEntry, TimeEntry};
use super::super::producers::Producers;
use super::super::segment::base_offset;
use super::super::{Error, Result};
use super::files::FileKind;
use crate::types::{LeaderEpoch, Offset, ProducerId, TimestampMs, TopicId, TopicPartition};

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Offsets(Vec<IndexEntry>),
    Times(Vec<TimeIndexEntry>),
    Aborted(Vec<Aborted>),
    Producers(Vec<ProducerEntry>),
    LeaderEpochs(Vec<(LeaderEpoch, Offset)>),
    Checkpoint(Vec<(TopicPartition, Offset)>),
    TopicId(TopicId),
    Text(String),
}

/// The batch at `position` ends with `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    pub offset: Offset,
    pub position: u32,
}

/// The largest timestamp up to the batch with `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeIndexEntry {
    pub timestamp_ms: TimestampMs,
    pub offset: Offset,
}

/// A transaction that was aborted by the marker at `last_offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    pub producer_id: ProducerId,
    pub first_offset: Offset,
    pub last_offset: Offset,
    pub last_stable_offset: Offset,
}

/// Sequence, offset and timestamp are those of its last batch; -1 when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerEntry {
    pub producer_id: ProducerId,
    pub producer_epoch: i16,
    pub last_sequence: i32,
    pub last_offset: Offset,
    pub offset_delta: i32,
    pub timestamp_ms: TimestampMs,
    pub coordinator_epoch: i32,
    /// -1 without an open transaction.
    pub transaction_first_offset: Offset,
}

/// Reads a file of any kind but [`FileKind::Log`]. An error when it is not whole.
pub fn read(path: &Path) -> Result<Content> {
    let kind = FileKind::of(path)
        .filter(|kind| *kind != FileKind::Log)
        .ok_or_else(|| Error::malformed(path, "not a file that can be shown"))?;
    let bytes = fs::read(path).map_err(Error::io("read", path))?;
    let base = base_offset(path).unwrap_or(0);
    let malformed = |reason: &str| Error::malformed(path, reason);
    Ok(match kind {
        FileKind::OffsetIndex => {
            let entries = entries::<OffsetEntry>(path, &bytes)?;
            let entry = |entry: OffsetEntry| IndexEntry {
                offset: base + i64::from(entry.relative_offset),
                position: entry.position,
            };
            Content::Offsets(entries.into_iter().map(entry).collect())
        }
        FileKind::TimeIndex => {
            let entries = entries::<TimeEntry>(path, &bytes)?;
            let entry = |entry: TimeEntry| TimeIndexEntry {
                timestamp_ms: entry.timestamp_ms,
                offset: base + i64::from(entry.relative_offset),
            };
            Content::Times(entries.into_iter().map(entry).collect())
        }
        FileKind::TransactionIndex => {
            let entries = bytes.chunks(ABORTED_SIZE).map(parse_aborted).collect::<Option<_>>();
            Content::Aborted(entries.ok_or_else(|| malformed("not whole entries of version 0"))?)
        }
        FileKind::ProducerSnapshot => {
            let producers = Producers::decode(&bytes, base, -1)
                .ok_or_else(|| malformed("not a whole snapshot, or its checksum does not match"))?;
            Content::Producers(producers.entries().collect())
        }
        FileKind::LeaderEpochs => Content::LeaderEpochs(parse_epochs(&bytes).map_err(malformed)?),
        FileKind::Offsets => {
            Content::Checkpoint(parse_offsets(&bytes).map_err(malformed)?.into_iter().collect())
        }
        FileKind::TopicId => {
            Content::TopicId(parse_topic_id(&bytes).ok_or_else(|| malformed("no topic id"))?)
        }
        FileKind::Text | FileKind::Log => {
            Content::Text(String::from_utf8(bytes).map_err(|_| malformed("not text"))?)
        }
    })
}

/// The entries of an index. Kafka preallocates the indexes of the active segment: what a crash left of that is zeros at
/// the end, which are no entries.
fn entries<E: Entry>(path: &Path, bytes: &[u8]) -> Result<Vec<E>> {
    if !bytes.len().is_multiple_of(E::SIZE) {
        let reason = format!("{} bytes are not whole entries of {}", bytes.len(), E::SIZE);
        return Err(Error::malformed(path, reason));
    }
    let used = bytes.chunks_exact(E::SIZE).rposition(|entry| entry.iter().any(|byte| *byte != 0));
    let used = used.map_or(0, |last| last + 1) * E::SIZE;
    Ok(bytes[..used].chunks_exact(E::SIZE).map(E::decode).collect())
}

const ABORTED_SIZE: usize = 34;

fn parse_aborted(entry: &[u8]) -> Option<Aborted> {
    let field = |at: usize| Some(i64::from_be_bytes(*entry.get(at..)?.first_chunk()?));
    let is_known = *entry.first_chunk()? == [0; 2];
    is_known.then_some(Aborted {
        producer_id: field(2)?,
        first_offset: field(10)?,
        last_offset: field(18)?,
        last_stable_offset: field(26)?,
    })
}
