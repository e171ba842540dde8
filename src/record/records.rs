//! The single records of a batch.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use super::decode::{decompress, with_body};
use super::{Batch, BatchHeader, RecordError, Refusal, varint};
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
    header: BatchHeader,
}

/// Decompresses the records of `batch`, but not to more than `size_max` bytes.
pub fn records<'a>(batch: &Batch<'a>, size_max: usize) -> Result<Records<'a>, Refusal> {
    let body = decompress(batch.header.codec(), batch.body(), size_max)?;
    Ok(Records { body, header: batch.header })
}

const CUT_SHORT: Refusal = Refusal::Corrupt("record cut short");

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
pub(super) struct Outline {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    pub has_key: bool,
}

/// What bounds the records of one batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeLimits {
    pub record: usize,
    pub body: usize,
}

impl SizeLimits {
    const NONE: Self = Self { record: usize::MAX, body: usize::MAX };
}

/// Steps over the records of a body that may be of any size: `visit` sees their outlines, by index. Each of them can be
/// taken apart, to its last header, and nothing follows the last one.
pub(super) fn visit_outlines(
    header: &BatchHeader,
    body: &mut dyn BufRead,
    limits: SizeLimits,
    mut visit: impl FnMut(i32, Outline),
) -> Result<(), Refusal> {
    let mut left = limits.body;
    for index in 0..header.record_count {
        let refuse =
            |reason| Refusal::Records(vec![RecordError { index, reason: String::from(reason) }]);
        let malformed = || refuse("malformed, or cannot be decompressed");
        let length = varint::read_int(body).and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or_else(malformed)?;
        if length > limits.record {
            return Err(refuse("larger than max.decompressed.message.bytes allows"));
        }
        left = left.checked_sub(length).ok_or(Refusal::Bomb { limit: limits.body })?;
        visit(index, next_outline(body, length).ok_or_else(malformed)?);
    }
    if body.fill_buf().is_ok_and(<[u8]>::is_empty) {
        Ok(())
    } else {
        Err(Refusal::Invalid("bytes after the last record"))
    }
}

/// Steps over one record of which the length was read.
fn next_outline(body: &mut dyn BufRead, length: usize) -> Option<Outline> {
    if let Some(mut record) = body.fill_buf().ok()?.get(..length) {
        let outline = read_outline(&mut record).filter(|_| record.is_empty());
        body.consume(length);
        return outline;
    }
    let mut record = body.take(length as u64);
    read_outline(&mut record).filter(|_| record.limit() == 0)
}

fn read_outline(record: &mut impl BufRead) -> Option<Outline> {
    skip(record, 1)?;
    let timestamp_delta = varint::read_long(record)?;
    let offset_delta = varint::read_int(record)?;
    let has_key = skip_bytes(record)?;
    skip_bytes(record)?;
    // A header takes two bytes at least, so a forged count ends with the record.
    for _ in 0..usize::try_from(varint::read_int(record)?).ok()? {
        skip_bytes(record)?.then_some(())?;
        skip_bytes(record)?;
    }
    Some(Outline { timestamp_delta, offset_delta, has_key })
}

/// A length and that many bytes; whether there are any, and not null.
fn skip_bytes(record: &mut impl BufRead) -> Option<bool> {
    match varint::read_int(record)? {
        -1 => Some(false),
        length => skip(record, usize::try_from(length).ok()?).map(|()| true),
    }
}

fn skip(bytes: &mut impl BufRead, mut size: usize) -> Option<()> {
    while size > 0 {
        let step = bytes.fill_buf().ok()?.len().min(size);
        if step == 0 {
            return None;
        }
        bytes.consume(step);
        size -= step;
    }
    Some(())
}

/// Offset and timestamp of each record, in order. Takes no more memory than a window of the body.
pub fn visit_timestamps(
    batch: &Batch<'_>,
    mut visit: impl FnMut(Offset, TimestampMs),
) -> Result<(), Refusal> {
    let header = &batch.header;
    with_body(header.codec(), batch.body(), |body| {
        visit_outlines(header, body, SizeLimits::NONE, |_, outline| {
            visit(
                header.offset_of(outline.offset_delta),
                header.timestamp_of(outline.timestamp_delta),
            );
        })
    })?
}

impl BatchHeader {
    /// Deltas are foreign bytes: they may lead anywhere.
    pub(super) fn offset_of(&self, delta: i32) -> Offset {
        self.base_offset.wrapping_add(i64::from(delta))
    }

    fn timestamp_of(&self, delta: i64) -> TimestampMs {
        if self.is_log_append_time() {
            self.max_timestamp_ms
        } else {
            self.base_timestamp_ms.wrapping_add(delta)
        }
    }
}

/// What a record begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHead<'a> {
    pub timestamp_delta: i64,
    pub offset_delta: i32,
    /// From the key length on.
    pub rest: &'a [u8],
}

/// Takes one record off the front, as far as its key.
pub(super) fn next_head<'a>(bytes: &mut &'a [u8]) -> Result<RecordHead<'a>, Refusal> {
    let mut rest = next_bytes(bytes)?.and_then(|record| record.get(1..)).ok_or(CUT_SHORT)?;
    let timestamp_delta = varint::read_long(&mut rest).ok_or(CUT_SHORT)?;
    let offset_delta = varint::read_int(&mut rest).ok_or(CUT_SHORT)?;
    Ok(RecordHead { timestamp_delta, offset_delta, rest })
}

fn next_record<'a>(header: &BatchHeader, bytes: &mut &'a [u8]) -> Result<Record<'a>, Refusal> {
    let RecordHead { timestamp_delta, offset_delta, mut rest } = next_head(bytes)?;
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
        offset: header.offset_of(offset_delta),
        timestamp_ms: header.timestamp_of(timestamp_delta),
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
