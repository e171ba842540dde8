//! Zig-zag LEB128, as records use it (signed; the protocol's own varints are unsigned).

use std::io::BufRead;

pub(super) const LONG_SIZE_MAX: usize = 10;

/// Reads from the front. `None` when it is cut short or longer than ten bytes.
pub(super) fn read_long<R: BufRead + ?Sized>(bytes: &mut R) -> Option<i64> {
    let mut value = 0_u64;
    for index in 0..LONG_SIZE_MAX {
        let byte = *bytes.fill_buf().ok()?.first()?;
        bytes.consume(1);
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    None
}

/// `None` also when it does not fit 32 bits.
pub(super) fn read_int<R: BufRead + ?Sized>(bytes: &mut R) -> Option<i32> {
    read_long(bytes).and_then(|value| i32::try_from(value).ok())
}

pub(super) fn write_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

pub(super) fn write_int(out: &mut Vec<u8>, value: i32) {
    write_long(out, i64::from(value));
}

/// How many bytes `write_long` takes.
pub(super) fn size(value: i64) -> usize {
    let zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    (64 - (zigzag | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_magnitude_round_trips_in_the_size_that_was_promised() {
        let powers = (0..64).flat_map(|bit| [1_i64 << bit, (1_i64 << bit).wrapping_sub(1)]);
        for value in powers.flat_map(|v| [v, v.wrapping_neg()]).chain([0, i64::MIN, i64::MAX]) {
            let mut bytes = Vec::new();
            write_long(&mut bytes, value);
            assert_eq!(bytes.len(), size(value), "{value}");
            assert_eq!(read_long(&mut bytes.as_slice()), Some(value));
            assert_eq!(read_long(&mut &bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn known_encodings() {
        for (value, bytes) in [(0, &[0][..]), (-1, &[1]), (1, &[2]), (63, &[126]), (64, &[128, 1])]
        {
            let mut out = Vec::new();
            write_int(&mut out, value);
            assert_eq!(out, bytes);
        }
        assert_eq!(read_int(&mut &[0x80, 0x80, 0x80, 0x80, 0x20][..]), None);
        assert_eq!(read_long(&mut &[0xff; 11][..]), None);
    }
}
