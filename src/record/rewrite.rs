//! Writes a batch anew: with another codec, or because the offsets of its records have gaps.
//!
//! Streams from the old body to the new one. Neither timestamps nor what the header says of sequences change.

use std::io::{self, BufRead, Read, Write};

use super::decode::with_body;
use super::encode::Encoder;
use super::{Batch, Compression, HEADER_SIZE, Refusal, varint};

/// The batch with `compression`, and with offsets 0, 1, 2 and so on if it is to be `renumbered`. Its records were
/// validated. The header is left to be written.
pub(super) fn rewrite(
    batch: &Batch<'_>,
    compression: Compression,
    level: i32,
    renumbered: bool,
) -> Result<Vec<u8>, Refusal> {
    let header = &batch.header;
    let mut out = Vec::with_capacity(batch.bytes.len());
    out.resize(HEADER_SIZE, 0);
    let written = with_body(header.codec(), batch.body(), |body| {
        let mut encoder = Encoder::new(compression, level, out)?;
        if renumbered {
            (0..header.record_count)
                .try_for_each(|index| copy_record(body, &mut encoder, index))?;
        } else {
            io::copy(body, &mut encoder)?;
        }
        encoder.finish()
    });
    written?.map_err(|_: io::Error| Refusal::Invalid("cannot be compressed"))
}

/// Copies the next record, with another offset.
fn copy_record(body: &mut dyn BufRead, out: &mut impl Write, index: i32) -> io::Result<()> {
    let cut_short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let length = varint::read_int(body).and_then(|length| u64::try_from(length).ok());
    let mut record = body.take(length.ok_or_else(cut_short)?);
    let mut head = vec![0];
    record.read_exact(&mut head)?;
    varint::write_long(&mut head, varint::read_long(&mut record).ok_or_else(cut_short)?);
    varint::read_int(&mut record).ok_or_else(cut_short)?;
    varint::write_int(&mut head, index);
    let length = i32::try_from(head.len() as u64 + record.limit()).map_err(io::Error::other)?;
    let mut front = Vec::with_capacity(varint::LONG_SIZE_MAX);
    varint::write_int(&mut front, length);
    out.write_all(&front)?;
    out.write_all(&head)?;
    io::copy(&mut record, out).map(|_| ())
}
