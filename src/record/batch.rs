//! Views of record batches: the fixed header, its checksum, and the two fields that a broker patches.
//!
//! Base offset and leader epoch lie outside of the CRC, so the log assigns offsets without touching the rest.

use super::{Compression, Refusal};
use crate::types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

/// Bytes before the first record.
pub const HEADER_SIZE: usize = 61;
/// Bytes that are not counted by the batch length: base offset and the length itself.
pub const LENGTH_OVERHEAD: usize = 12;
/// Where the checksummed part begins.
const CHECKSUMMED_FROM: usize = 21;

pub(super) const CODEC_MASK: i16 = 0x07;
const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;
pub(super) const DELETE_HORIZON: i16 = 0x40;
/// All that a producer may set.
const OF_PRODUCERS: i16 = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL;

/// The header of one batch, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: Offset,
    /// Bytes of the whole batch.
    pub size: usize,
    pub leader_epoch: LeaderEpoch,
    pub magic: i8,
    pub crc: u32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp_ms: TimestampMs,
    pub max_timestamp_ms: TimestampMs,
    pub producer_id: ProducerId,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N bytes")
}

impl BatchHeader {
    /// Reads the header at the front of `bytes`, which may end before the batch does. Nothing but magic, size and
    /// the order of the offsets is checked.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        // Message sets of old may be shorter than our header.
        let magic = i8::from_be_bytes([*bytes.get(16).ok_or(Refusal::CutShort)?]);
        if magic != 2 {
            return Err(Refusal::Magic(magic));
        }
        if bytes.len() < HEADER_SIZE {
            return Err(Refusal::CutShort);
        }
        let length = usize::try_from(i32::from_be_bytes(take(bytes, 8)))
            .map_err(|_| Refusal::Corrupt("negative length"))?;
        let header = Self {
            base_offset: i64::from_be_bytes(take(bytes, 0)),
            size: length + LENGTH_OVERHEAD,
            leader_epoch: LeaderEpoch(i32::from_be_bytes(take(bytes, 12))),
            magic,
            crc: u32::from_be_bytes(take(bytes, 17)),
            attributes: i16::from_be_bytes(take(bytes, 21)),
            last_offset_delta: i32::from_be_bytes(take(bytes, 23)),
            base_timestamp_ms: i64::from_be_bytes(take(bytes, 27)),
            max_timestamp_ms: i64::from_be_bytes(take(bytes, 35)),
            producer_id: i64::from_be_bytes(take(bytes, 43)),
            producer_epoch: i16::from_be_bytes(take(bytes, 51)),
            base_sequence: i32::from_be_bytes(take(bytes, 53)),
            record_count: i32::from_be_bytes(take(bytes, 57)),
        };
        if header.size < HEADER_SIZE {
            return Err(Refusal::Corrupt("shorter than its header"));
        }
        if header.base_offset < 0
            || header.last_offset_delta < 0
            || header.base_offset.checked_add(i64::from(header.last_offset_delta) + 1).is_none()
        {
            return Err(Refusal::Corrupt("offsets out of range"));
        }
        Ok(header)
    }

    /// Writes the header over the front of `batch`, which is exactly one batch: its size and CRC are those of the bytes.
    ///
    /// # Panics
    /// When the batch is 2 GiB or larger; limits are the caller's to keep.
    pub(super) fn write(&self, batch: &mut [u8]) {
        let length = i32::try_from(batch.len() - LENGTH_OVERHEAD).expect("smaller than 2 GiB");
        let mut put = |at: usize, field: &[u8]| batch[at..at + field.len()].copy_from_slice(field);
        put(0, &self.base_offset.to_be_bytes());
        put(8, &length.to_be_bytes());
        put(12, &self.leader_epoch.0.to_be_bytes());
        put(16, &self.magic.to_be_bytes());
        put(21, &self.attributes.to_be_bytes());
        put(23, &self.last_offset_delta.to_be_bytes());
        put(27, &self.base_timestamp_ms.to_be_bytes());
        put(35, &self.max_timestamp_ms.to_be_bytes());
        put(43, &self.producer_id.to_be_bytes());
        put(51, &self.producer_epoch.to_be_bytes());
        put(53, &self.base_sequence.to_be_bytes());
        put(57, &self.record_count.to_be_bytes());
        write_crc(batch);
    }

    pub fn last_offset(&self) -> Offset {
        self.base_offset + i64::from(self.last_offset_delta)
    }
    pub fn next_offset(&self) -> Offset {
        self.last_offset() + 1
    }
    /// The sequence of the last record; wraps from 2^31-1 to 0. -1 without a producer id.
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return -1;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        i32::try_from(last & i64::from(i32::MAX)).expect("masked to 31 bits")
    }
    /// The number of the compression codec, known or not.
    pub fn codec(&self) -> u8 {
        self.attributes.to_be_bytes()[1] & CODEC_MASK.to_be_bytes()[1]
    }
    pub fn is_compressed(&self) -> bool {
        self.codec() != 0
    }
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME != 0
    }
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL != 0
    }
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }
    /// Sets the largest timestamp, and with `log_append_time` the type.
    pub(super) fn set_max_timestamp(
        &mut self,
        max_timestamp_ms: TimestampMs,
        log_append_time: bool,
    ) {
        self.max_timestamp_ms = max_timestamp_ms;
        if log_append_time {
            self.attributes |= LOG_APPEND_TIME;
        }
    }
    pub(super) fn set_compression(&mut self, compression: Compression) {
        self.attributes = self.attributes & !CODEC_MASK | compression as i16;
    }
    /// Bits that no producer sets: the delete horizon, and those without a meaning.
    pub(super) fn has_unknown_attributes(&self) -> bool {
        self.attributes & !OF_PRODUCERS != 0
    }
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON != 0
    }
}

/// One whole batch.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    pub header: BatchHeader,
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Takes the first batch of `bytes`; what follows it is in the second half of the pair. No checksum is checked.
    pub fn split_first(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Refusal> {
        let header = BatchHeader::parse(bytes)?;
        let (bytes, rest) = bytes.split_at_checked(header.size).ok_or(Refusal::CutShort)?;
        Ok((Self { header, bytes }, rest))
    }

    pub fn check_crc(&self) -> Result<(), Refusal> {
        let computed = crc32c::crc32c(&self.bytes[CHECKSUMMED_FROM..]);
        let stored = self.header.crc;
        if computed == stored { Ok(()) } else { Err(Refusal::Checksum { stored, computed }) }
    }

    /// The records, still compressed.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_SIZE..]
    }
}

/// The batches in `bytes`, one after the other; ends at the first that is malformed, with the reason.
pub fn batches(mut bytes: &[u8]) -> impl Iterator<Item = Result<Batch<'_>, Refusal>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        match Batch::split_first(bytes) {
            Ok((batch, rest)) => {
                bytes = rest;
                Some(Ok(batch))
            }
            Err(refusal) => {
                bytes = &[];
                Some(Err(refusal))
            }
        }
    })
}

/// Assigns offsets to the batch at the front of `bytes`. The CRC stays valid.
pub fn assign_offset(bytes: &mut [u8], base_offset: Offset, leader_epoch: LeaderEpoch) {
    bytes[0..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[12..16].copy_from_slice(&leader_epoch.0.to_be_bytes());
}

fn write_crc(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[CHECKSUMMED_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
