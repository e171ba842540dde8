//! The single records of a batch.

use std::borrow::Cow;

use super::{Batch, Refusal, compression, varint};
use crate::types::{Offset, TimestampMs};

/// One record, borrowed from the (decompressed) body of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    pub offset: Offset,
    pub timestamp_ms: TimestampMs,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// The body of a batch, decompressed.
#[derive(Debug)]
pub struct Records<'a> {
    body: Cow<'a, [u8]>,
    header: super::BatchHeader,
}

/// Decompresses the records of `batch`, but not to more than `size_max` bytes.
pub fn records<'a>(batch: &Batch<'a>, size_max: usize) -> Result<Records<'a>, Refusal> {
    let body = compression::decompress(batch.header.codec(), batch.body(), size_max)?;
    Ok(Records { body, header: batch.header })
}

pub(super) const CUT_SHORT: Refusal = Refusal::Corrupt("record cut short");

impl Records<'_> {
    /// In order; ends at the first malformed one, with the reason. Bytes after the last record are malformed too.
    pub fn iter(&self) -> impl Iterator<Item = Result<Record<'_>, Refusal>> {
        let header = self.header;
        let mut rest = self.body.as_ref();
        let mut left = header.record_count.max(0);
        let mut failed = false;
        std::iter::from_fn(move || {
            if failed || (left == 0 && rest.is_empty()) {
                return None;
            }
            let next = if left == 0 {
                Err(Refusal::Corrupt("bytes after the last record"))
            } else {
                left -= 1;
                next_record(&header, &mut rest)
            };
            failed = next.is_err();
            Some(next)
        })
    }
}

/// The parts of a record that rules look at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outline<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
    /// From the key length on.
    pub rest: &'a [u8],
}

/// Steps over one record. Looks at what comes before the key, and no further.
pub(super) fn next_outline<'a>(bytes: &mut &'a [u8]) -> Option<Outline<'a>> {
    let length = usize::try_from(varint::read_int(bytes)?).ok()?;
    let (mut record, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    record = record.get(1..)?;
    let timestamp_delta = varint::read_long(&mut record)?;
    let offset_delta = varint::read_int(&mut record)?;
    let mut after_key_length = record;
    let has_key = varint::read_int(&mut after_key_length)? >= 0;
    Some(Outline { timestamp_delta, offset_delta, has_key, rest: record })
}

impl Outline<'_> {
    /// Whether key, value and headers fill the record exactly, so that every reader can take it apart.
    pub(super) fn is_well_formed(&self) -> bool {
        let mut rest = self.rest;
        let rest = &mut rest;
        let mut fields = || -> Result<(), Refusal> {
            next_bytes(rest)?;
            next_bytes(rest)?;
            let header_count = varint::read_int(rest).ok_or(CUT_SHORT)?;
            // A header takes two bytes at least, so a forged count ends with the record.
            for _ in 0..usize::try_from(header_count).map_err(|_| CUT_SHORT)? {
                next_bytes(rest)?.ok_or(CUT_SHORT)?;
                next_bytes(rest)?;
            }
            if rest.is_empty() { Ok(()) } else { Err(CUT_SHORT) }
        };
        fields().is_ok()
    }
}

fn next_record<'a>(
    header: &super::BatchHeader,
    bytes: &mut &'a [u8],
) -> Result<Record<'a>, Refusal> {
    let outline = next_outline(bytes).ok_or(CUT_SHORT)?;
    let mut rest = outline.rest;
    let key = next_bytes(&mut rest)?;
    let value = next_bytes(&mut rest)?;
    let header_count = varint::read_int(&mut rest)
        .and_then(|count| usize::try_from(count).ok())
        .filter(|&count| count <= rest.len())
        .ok_or(Refusal::Corrupt("header count"))?;
    let mut headers = Vec::with_capacity(header_count);
    for _ in 0..header_count {
        let name = next_bytes(&mut rest)?
            .and_then(|name| std::str::from_utf8(name).ok())
            .ok_or(Refusal::Corrupt("header key"))?;
        headers.push((name, next_bytes(&mut rest)?));
    }
    if !rest.is_empty() {
        return Err(Refusal::Corrupt("record longer than its fields"));
    }
    Ok(Record {
        offset: header.base_offset + i64::from(outline.offset_delta),
        timestamp_ms: if header.is_log_append_time() {
            header.max_timestamp_ms
        } else {
            header.base_timestamp_ms.wrapping_add(outline.timestamp_delta)
        },
        key,
        value,
        headers,
    })
}

/// A length (-1: null) and that many bytes.
pub(super) fn next_bytes<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Refusal> {
    let length = varint::read_int(bytes).ok_or(CUT_SHORT)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| Refusal::Corrupt("negative length"))?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or(CUT_SHORT)?;
    *bytes = rest;
    Ok(Some(taken))
}
