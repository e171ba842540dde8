//! Makes batches: for our client, for tests, and for what the broker writes itself.

use super::{BatchHeader, Compression, HEADER_SIZE, varint};
use crate::types::{LeaderEpoch, ProducerId, TimestampMs};

/// Collects records, then gives the bytes of one batch with base offset 0 and no leader epoch.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    compression: Compression,
    /// Header (filled in at the end) and records, not compressed yet.
    bytes: Vec<u8>,
    record_count: i32,
    base_timestamp_ms: TimestampMs,
    max_timestamp_ms: TimestampMs,
    producer: (ProducerId, i16, i32),
}

impl BatchBuilder {
    pub fn new(compression: Compression) -> Self {
        Self {
            compression,
            bytes: vec![0; HEADER_SIZE],
            record_count: 0,
            base_timestamp_ms: -1,
            max_timestamp_ms: -1,
            producer: (-1, -1, -1),
        }
    }

    /// Makes the batch idempotent.
    pub fn set_producer(&mut self, id: ProducerId, epoch: i16, base_sequence: i32) {
        self.producer = (id, epoch, base_sequence);
    }

    /// Adds a record.
    ///
    /// # Panics
    /// When a part is 2 GiB or larger; limits are the caller's to keep.
    pub fn push(
        &mut self,
        timestamp_ms: TimestampMs,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) {
        if self.record_count == 0 {
            self.base_timestamp_ms = timestamp_ms;
        }
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp_ms);
        let timestamp_delta = timestamp_ms.wrapping_sub(self.base_timestamp_ms);
        let size = 1
            + varint::size(timestamp_delta)
            + varint::size(i64::from(self.record_count))
            + bytes_size(key)
            + bytes_size(value)
            + varint::size(i64::from(length(headers.len())))
            + headers
                .iter()
                .map(|(name, value)| bytes_size(Some(name.as_bytes())) + bytes_size(*value))
                .sum::<usize>();

        let out = &mut self.bytes;
        varint::write_int(out, length(size));
        out.push(0);
        varint::write_long(out, timestamp_delta);
        varint::write_int(out, self.record_count);
        write_bytes(out, key);
        write_bytes(out, value);
        varint::write_int(out, length(headers.len()));
        for (name, value) in headers {
            write_bytes(out, Some(name.as_bytes()));
            write_bytes(out, *value);
        }
        self.record_count += 1;
    }

    pub fn record_count(&self) -> i32 {
        self.record_count
    }

    pub fn is_empty(&self) -> bool {
        self.record_count == 0
    }

    /// Bytes of the batch before compression.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The finished batch.
    pub fn build(self) -> Vec<u8> {
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let mut batch = if self.compression == Compression::None {
            self.bytes
        } else {
            let mut compressed = Vec::with_capacity(HEADER_SIZE + self.bytes.len() / 2);
            compressed.resize(HEADER_SIZE, 0);
            self.compression.compress(&self.bytes[HEADER_SIZE..], &mut compressed);
            compressed
        };
        BatchHeader {
            base_offset: 0,
            size: batch.len(),
            leader_epoch: LeaderEpoch::NONE,
            magic: 2,
            crc: 0,
            attributes: self.compression as i16,
            last_offset_delta: (self.record_count - 1).max(0),
            base_timestamp_ms: self.base_timestamp_ms,
            max_timestamp_ms: self.max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count: self.record_count,
        }
        .write(&mut batch);
        batch
    }
}

fn length(size: usize) -> i32 {
    i32::try_from(size).expect("parts of a batch are smaller than 2 GiB")
}

fn bytes_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint::size(i64::from(length(bytes.len()))) + bytes.len())
}

fn write_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => varint::write_int(out, -1),
        Some(bytes) => {
            varint::write_int(out, length(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
#[path = "batch_test.rs"]
mod tests;
