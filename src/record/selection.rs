//! Leaving records out of a batch, as compaction does (kafka-protocol.md 3.1; replication.md 3.9).
//!
//! What stays keeps its offset, and the batch its first and last offset, sequences and leader epoch: so a batch may have
//! gaps inside, end before its last offset, or have no record at all. Records are copied as bytes; only a delete horizon,
//! which takes the place of the base timestamp, changes their timestamp deltas.

use std::borrow::Cow;
use std::ops::Range;

use super::batch::{CODEC_MASK, DELETE_HORIZON};
use super::decode::decompress;
use super::records::{next_bytes, next_head};
use super::{Batch, BatchHeader, Compression, HEADER_SIZE, Refusal, varint};
use crate::types::{Offset, TimestampMs};

/// What decides whether a record stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyedRecord<'a> {
    pub offset: Offset,
    pub key: Option<&'a [u8]>,
    /// Otherwise it is a tombstone: it deletes its key.
    pub has_value: bool,
}

/// The records of a batch that stay.
#[derive(Debug)]
pub struct Selection<'a> {
    header: BatchHeader,
    /// Of all records, decompressed.
    body: Cow<'a, [u8]>,
    /// Where those that stay lie, neighbours together.
    kept: Vec<Range<usize>>,
    kept_count: i32,
    max_timestamp_ms: TimestampMs,
}

/// Asks about each record of `batch`, which is not decompressed to more than `size_max` bytes. Whatever is malformed is
/// refused.
pub fn select<'a>(
    batch: &Batch<'a>,
    size_max: usize,
    mut keep: impl FnMut(&KeyedRecord<'_>) -> bool,
) -> Result<Selection<'a>, Refusal> {
    let header = batch.header;
    let body = decompress(header.codec(), batch.body(), size_max)?;
    let mut kept: Vec<Range<usize>> = Vec::new();
    let mut kept_count = 0;
    let mut max_timestamp_ms = -1;
    let mut rest = body.as_ref();
    for _ in 0..header.record_count {
        let start = body.len() - rest.len();
        let head = next_head(&mut rest)?;
        let end = body.len() - rest.len();
        let mut fields = head.rest;
        let key = next_bytes(&mut fields)?;
        let has_value = next_bytes(&mut fields)?.is_some();
        let offset = header.offset_of(head.offset_delta);
        if !keep(&KeyedRecord { offset, key, has_value }) {
            continue;
        }
        kept_count += 1;
        let timestamp_ms = header.base_timestamp_ms.wrapping_add(head.timestamp_delta);
        max_timestamp_ms = max_timestamp_ms.max(timestamp_ms);
        match kept.last_mut().filter(|last| last.end == start) {
            Some(last) => last.end = end,
            None => kept.push(start..end),
        }
    }
    if !rest.is_empty() {
        return Err(Refusal::Corrupt("bytes after the last record"));
    }
    if header.is_log_append_time() {
        max_timestamp_ms = header.max_timestamp_ms;
    }
    Ok(Selection { header, body, kept, kept_count, max_timestamp_ms })
}

impl Selection<'_> {
    pub fn is_empty(&self) -> bool {
        self.kept_count == 0
    }

    /// Whether every record stays.
    pub fn is_whole(&self) -> bool {
        self.kept_count == self.header.record_count
    }

    /// The batch with the records that stay, in its own codec. With `delete_horizon_ms`, that is when its tombstones, or
    /// its marker, may go.
    pub fn encode(&self, delete_horizon_ms: Option<TimestampMs>) -> Vec<u8> {
        let mut records = Vec::with_capacity(self.kept.iter().map(Range::len).sum());
        for range in &self.kept {
            match delete_horizon_ms {
                None => records.extend_from_slice(&self.body[range.clone()]),
                Some(horizon_ms) => {
                    let moved = self.header.base_timestamp_ms.wrapping_sub(horizon_ms);
                    move_timestamps(&self.body[range.clone()], moved, &mut records);
                }
            }
        }
        let mut header = self.header;
        header.record_count = self.kept_count;
        header.max_timestamp_ms = self.max_timestamp_ms;
        if let Some(horizon_ms) = delete_horizon_ms {
            header.attributes |= DELETE_HORIZON;
            header.base_timestamp_ms = horizon_ms;
        }
        let mut batch = vec![0; HEADER_SIZE];
        let codec = Compression::from_codec(header.codec()).expect("it was decompressed");
        codec.compress(&records, &mut batch);
        header.write(&mut batch);
        batch
    }
}

/// Adds `moved` to the timestamp delta of each record.
fn move_timestamps(mut records: &[u8], moved: i64, out: &mut Vec<u8>) {
    const PARSED: &str = "the record was taken apart before";
    while !records.is_empty() {
        let head = next_head(&mut records).expect(PARSED);
        let delta = head.timestamp_delta.wrapping_add(moved);
        let offset_delta = i64::from(head.offset_delta);
        let size = 1 + varint::size(delta) + varint::size(offset_delta) + head.rest.len();
        varint::write_int(out, i32::try_from(size).expect("a record is smaller than 2 GiB"));
        out.push(0);
        varint::write_long(out, delta);
        varint::write_long(out, offset_delta);
        out.extend_from_slice(head.rest);
    }
}

/// What is left of a batch without records: it tells of its producer and of its last offset.
pub fn without_records(header: &BatchHeader) -> Vec<u8> {
    let mut header = *header;
    header.record_count = 0;
    header.base_timestamp_ms = -1;
    // Neither a codec nor a delete horizon.
    header.attributes &= !(DELETE_HORIZON | CODEC_MASK);
    let mut batch = vec![0; HEADER_SIZE];
    header.write(&mut batch);
    batch
}

#[cfg(test)]
#[path = "selection_test.rs"]
mod tests;
