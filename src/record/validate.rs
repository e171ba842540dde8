//! What a leader checks about a batch from a client, in Kafka's order (kafka-protocol.md 3.4).
//!
//! Every batch is opened, whatever its codec: one that cannot be read would stop its readers at its offset. Bodies are
//! streamed through a small window, so what they decompress to takes no memory; it is bounded all the same, by
//! [`DECOMPRESSED_SIZE_MAX`], because it takes time. A batch goes on as it came, byte for byte, unless the topic wants
//! another codec or its offsets have gaps.

use super::decode::with_body;
use super::records::{Outline, SizeLimits, visit_outlines};
use super::rewrite::rewrite;
use super::{Batch, BatchHeader, Compression, DECOMPRESSED_SIZE_MAX, RecordError, Refusal};
use crate::types::TimestampMs;

/// The configs of a topic that rule over its batches, and the time.
#[derive(Debug, Clone, Copy)]
pub struct ProduceRules {
    pub now_ms: TimestampMs,
    pub size_max: u32,
    /// Of one record, decompressed.
    pub record_size_max: u32,
    /// Records need keys.
    pub compacted: bool,
    pub log_append_time: bool,
    pub timestamp_before_max_ms: i64,
    pub timestamp_after_max_ms: i64,
    /// The codec in which batches are stored, and its level; `None`: the producer's.
    pub compression: Option<(Compression, i32)>,
}

/// A batch that may be appended, once the producer state agrees.
#[derive(Debug)]
pub struct Validated {
    pub header: BatchHeader,
    /// What to append instead of the bytes that came.
    pub rewritten: Option<Vec<u8>>,
}

/// Records at fault that are named to the client.
const RECORD_ERRORS_MAX: usize = 1000;

/// Checks the one batch in `bytes` and corrects its timestamp fields in place.
pub fn validate(bytes: &mut [u8], rules: &ProduceRules) -> Result<Validated, Refusal> {
    let (batch, rest) = Batch::split_first(bytes)?;
    let header = batch.header;
    if !rest.is_empty() {
        return Err(Refusal::Invalid("more than one batch"));
    }
    if header.base_offset != 0 {
        return Err(Refusal::Invalid("base offset is not 0"));
    }
    rules.check_size(header.size)?;
    batch.check_crc()?;
    check_header(&header)?;

    let findings = Findings::of(&batch, rules)?;
    let mut header = header;
    let max_timestamp_ms =
        if rules.log_append_time { rules.now_ms } else { findings.max_timestamp_ms };
    header.set_max_timestamp(max_timestamp_ms, rules.log_append_time);
    let codec = Compression::from_codec(header.codec()).ok_or(Refusal::Codec(header.codec()))?;
    let (target, level) = rules.compression.unwrap_or((codec, codec.default_level()));
    if target != codec || !findings.is_consecutive {
        let mut rewritten = rewrite(&batch, target, level, !findings.is_consecutive)?;
        rules.check_size(rewritten.len())?;
        header.set_compression(target);
        header.write(&mut rewritten);
        return Ok(Validated {
            header: BatchHeader::parse(&rewritten)?,
            rewritten: Some(rewritten),
        });
    }
    if header != batch.header {
        header.write(bytes);
    }
    Ok(Validated { header, rewritten: None })
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
    if header.has_unknown_attributes() {
        return Err(Refusal::Invalid("attributes that clients do not set"));
    }
    if header.is_log_append_time() {
        return Err(Refusal::TimestampType);
    }
    Ok(())
}

/// What the records of a batch say.
struct Findings {
    max_timestamp_ms: TimestampMs,
    /// Their offsets are 0, 1, 2 and so on.
    is_consecutive: bool,
}

impl Findings {
    /// One bad record refuses the batch; a bad timestamp wins over whatever else is wrong with others.
    fn of(batch: &Batch<'_>, rules: &ProduceRules) -> Result<Self, Refusal> {
        let header = &batch.header;
        let limits = SizeLimits {
            record: if header.is_compressed() {
                rules.record_size_max as usize
            } else {
                usize::MAX
            },
            body: DECOMPRESSED_SIZE_MAX,
        };
        let mut findings = Self { max_timestamp_ms: -1, is_consecutive: true };
        let mut errors = Vec::new();
        let mut is_timestamp_bad = false;
        let mut visit = |index: i32, outline: Outline| {
            let timestamp_ms = header.base_timestamp_ms.wrapping_add(outline.timestamp_delta);
            findings.max_timestamp_ms = findings.max_timestamp_ms.max(timestamp_ms);
            findings.is_consecutive &= outline.offset_delta == index;
            let is_bad = rules.is_timestamp_bad(timestamp_ms);
            if (is_bad || (rules.compacted && !outline.has_key)) && errors.len() < RECORD_ERRORS_MAX
            {
                errors.push(RecordError { index, reason: rules.reason(timestamp_ms, is_bad) });
            }
            is_timestamp_bad |= is_bad;
        };
        with_body(header.codec(), batch.body(), |body| {
            visit_outlines(header, body, limits, &mut visit)
        })??;
        match errors.is_empty() {
            true => Ok(findings),
            false if is_timestamp_bad => Err(Refusal::Timestamps(errors)),
            false => Err(Refusal::Records(errors)),
        }
    }
}

impl ProduceRules {
    fn check_size(&self, size: usize) -> Result<(), Refusal> {
        let (size, limit) = (size as u64, u64::from(self.size_max));
        if size > limit { Err(Refusal::TooLarge { size, limit }) } else { Ok(()) }
    }

    fn timestamps(&self) -> std::ops::RangeInclusive<TimestampMs> {
        let min = self.now_ms.saturating_sub(self.timestamp_before_max_ms);
        min..=self.now_ms.saturating_add(self.timestamp_after_max_ms)
    }

    fn is_timestamp_bad(&self, timestamp_ms: TimestampMs) -> bool {
        let exempt = self.log_append_time || timestamp_ms == -1;
        !exempt && !self.timestamps().contains(&timestamp_ms)
    }

    fn reason(&self, timestamp_ms: TimestampMs, is_timestamp_bad: bool) -> String {
        if is_timestamp_bad {
            let (min, max) = self.timestamps().into_inner();
            format!("timestamp {timestamp_ms} is outside of {min}..={max}")
        } else {
            "a compacted topic needs keys".to_owned()
        }
    }
}

#[cfg(test)]
#[path = "validate_test.rs"]
mod tests;
