//! What a leader checks about a batch from a client, in Kafka's order (kafka-protocol.md 3.4).
//!
//! Records of an uncompressed batch are always walked over: that costs a few nanoseconds each. A compressed one is
//! opened only when a rule cannot do without: a compacted topic, whose records need keys. For the other rules its
//! header speaks for it: the checksum shows that this is what the client built, and a client that lies about its own
//! timestamps or deltas harms its own topic's readers only, for whom decompressing everything would be a poor trade.

use super::records::{Outline, next_outline};
use super::{
    Batch, BatchHeader, Compression, DECOMPRESSED_SIZE_MAX, Refusal, assign_max_timestamp,
    compression,
};
use crate::types::TimestampMs;

/// The configs of a topic that rule over its batches, and the time.
#[derive(Debug, Clone, Copy)]
pub struct ProduceRules {
    pub now_ms: TimestampMs,
    pub size_max: u32,
    /// Records need keys.
    pub compacted: bool,
    pub log_append_time: bool,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
}

/// Checks the one batch in `bytes` and corrects its timestamp fields in place. Gives its header, as it is then; the batch
/// may be appended once the producer state agrees.
pub fn validate(bytes: &mut [u8], rules: &ProduceRules) -> Result<BatchHeader, Refusal> {
    let (batch, rest) = Batch::split_first(bytes)?;
    let header = batch.header;
    if !rest.is_empty() {
        return Err(Refusal::Invalid("more than one batch"));
    }
    if header.base_offset != 0 {
        return Err(Refusal::Invalid("base offset is not 0"));
    }
    let size = header.size as u64;
    if size > u64::from(rules.size_max) {
        return Err(Refusal::TooLarge { size, limit: u64::from(rules.size_max) });
    }
    batch.check_crc()?;
    check_header(&header)?;

    let max_timestamp_ms = check_records(&batch, rules)?;
    let max_timestamp_ms = if rules.log_append_time { rules.now_ms } else { max_timestamp_ms };
    if rules.log_append_time || max_timestamp_ms != header.max_timestamp_ms {
        assign_max_timestamp(bytes, max_timestamp_ms, rules.log_append_time);
    }
    BatchHeader::parse(bytes)
}

fn check_header(header: &BatchHeader) -> Result<(), Refusal> {
    if header.record_count <= 0 {
        return Err(Refusal::Invalid("no records"));
    }
    if i64::from(header.last_offset_delta) + 1 != i64::from(header.record_count) {
        return Err(Refusal::Invalid("record count does not match the last offset"));
    }
    if header.is_control() {
        return Err(Refusal::Invalid("clients may not write control batches"));
    }
    if header.producer_id >= 0 && (header.base_sequence < 0 || header.producer_epoch < 0) {
        return Err(Refusal::Invalid("producer id without epoch or sequence"));
    }
    if header.is_transactional() {
        return Err(Refusal::Transactional);
    }
    if Compression::from_codec(header.codec()).is_none() {
        return Err(Refusal::Codec(header.codec()));
    }
    if header.is_log_append_time() {
        return Err(Refusal::TimestampType);
    }
    Ok(())
}

/// Returns the largest timestamp. A bad timestamp wins over whatever else is wrong with the records.
fn check_records(batch: &Batch<'_>, rules: &ProduceRules) -> Result<TimestampMs, Refusal> {
    let header = &batch.header;
    if header.is_compressed() && !rules.compacted {
        rules.check_timestamp(header.base_timestamp_ms)?;
        rules.check_timestamp(header.max_timestamp_ms)?;
        return Ok(header.max_timestamp_ms);
    }
    let body = compression::decompress(header.codec(), batch.body(), DECOMPRESSED_SIZE_MAX)?;
    let mut rest = body.as_ref();
    let mut max_timestamp_ms = -1;
    let mut first_refusal = None;
    for index in 0..header.record_count {
        let outline = next_outline(&mut rest).filter(Outline::is_well_formed);
        let Some(outline) = outline else {
            return Err(Refusal::InvalidRecord { index, reason: "malformed" });
        };
        let timestamp_ms = header.base_timestamp_ms.wrapping_add(outline.timestamp_delta);
        rules.check_timestamp(timestamp_ms)?;
        max_timestamp_ms = max_timestamp_ms.max(timestamp_ms);
        if first_refusal.is_none() {
            first_refusal = rules.refuse_record(index, &outline);
        }
    }
    match first_refusal {
        Some(refusal) => Err(refusal),
        None if !rest.is_empty() => Err(Refusal::Invalid("bytes after the last record")),
        None => Ok(max_timestamp_ms),
    }
}

impl ProduceRules {
    fn check_timestamp(&self, timestamp_ms: TimestampMs) -> Result<(), Refusal> {
        let min = self.now_ms.saturating_sub(self.timestamp_before_max_ms);
        let max = self.now_ms.saturating_add(self.timestamp_after_max_ms);
        let exempt = self.log_append_time || timestamp_ms == -1;
        if exempt || (min..=max).contains(&timestamp_ms) {
            return Ok(());
        }
        Err(Refusal::Timestamp { timestamp_ms, min, max })
    }

    fn refuse_record(&self, index: i32, outline: &Outline<'_>) -> Option<Refusal> {
        let reason = if outline.offset_delta != index {
            "its offset does not follow the one before"
        } else if self.compacted && !outline.has_key {
            "a compacted topic needs keys"
        } else {
            return None;
        };
        Some(Refusal::InvalidRecord { index, reason })
    }
}

#[cfg(test)]
#[path = "validate_test.rs"]
mod tests;
