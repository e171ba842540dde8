//! Reading: a cursor over one frame that checks every length before it acts on it.

use bytes::{Buf, BytesMut};

use super::text::Text;

/// Most array elements in one message. An element may take one byte on the wire and much more in memory.
pub const ELEMENTS_MAX: usize = 500_000;

/// Why a frame is not the message it claims to be. It came from a network, so this is an answer, not a bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{wanted} bytes wanted where {left} are left")]
    Truncated { wanted: usize, left: usize },
    #[error("length {0} is not a length")]
    Length(i64),
    #[error("null where a value must be")]
    Null,
    #[error("a string is not UTF-8")]
    Utf8,
    #[error("a variable-length integer is longer than five bytes")]
    Varint,
    #[error("more than {ELEMENTS_MAX} array elements")]
    TooManyElements,
    #[error("{0} bytes after the end")]
    Trailing(usize),
    #[error("a string of {0} bytes does not fit this version")]
    StringTooLong(usize),
}

/// The bytes of a frame that were not read yet, and the version to read them in.
///
/// Strings and record sets are split off the frame, not copied; record sets stay mutable, because the log patches
/// their offsets in place.
#[derive(Debug)]
pub struct Reader {
    bytes: BytesMut,
    pub(super) version: i16,
    pub(super) flexible: bool,
    elements_left: usize,
}

impl Reader {
    pub fn new(bytes: BytesMut) -> Self {
        Self { bytes, version: 0, flexible: false, elements_left: ELEMENTS_MAX }
    }

    /// From here on, reads as this version does.
    pub fn set_version(&mut self, version: i16, flexible: bool) {
        self.version = version;
        self.flexible = flexible;
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// Whatever was not read must be nothing.
    pub fn finish(self) -> Result<(), Error> {
        if self.bytes.is_empty() { Ok(()) } else { Err(Error::Trailing(self.bytes.len())) }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let left = self.bytes.len();
        let array = *self.bytes.first_chunk::<N>().ok_or(Error::Truncated { wanted: N, left })?;
        self.bytes.advance(N);
        Ok(array)
    }

    pub(super) fn take(&mut self, size: usize) -> Result<BytesMut, Error> {
        let left = self.bytes.len();
        if size > left {
            return Err(Error::Truncated { wanted: size, left });
        }
        Ok(self.bytes.split_to(size))
    }

    pub(super) fn varint(&mut self) -> Result<u32, Error> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                return Err(Error::Varint);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Varint)
    }

    /// A length of bytes or of elements; `None` is null.
    pub(super) fn length(&mut self) -> Result<Option<usize>, Error> {
        if self.flexible {
            return Ok(self.varint()?.checked_sub(1).map(|length| length as usize));
        }
        Self::classic(i64::from(i32::from_be_bytes(self.array()?)))
    }

    /// A length of a string: two bytes in classic versions.
    pub(super) fn string_length(&mut self) -> Result<Option<usize>, Error> {
        if self.flexible {
            return self.length();
        }
        self.classic_string_length()
    }

    /// Headers keep this one in every version.
    pub(super) fn classic_string_length(&mut self) -> Result<Option<usize>, Error> {
        Self::classic(i64::from(i16::from_be_bytes(self.array()?)))
    }

    fn classic(length: i64) -> Result<Option<usize>, Error> {
        match length {
            -1 => Ok(None),
            0.. => usize::try_from(length).map(Some).map_err(|_| Error::Length(length)),
            _ => Err(Error::Length(length)),
        }
    }

    pub(super) fn text(&mut self, length: usize) -> Result<Text, Error> {
        Text::from_utf8(self.take(length)?.freeze()).ok_or(Error::Utf8)
    }

    /// Admits an array of this many elements, each of which takes a byte at least.
    pub(super) fn admit_elements(&mut self, count: usize) -> Result<(), Error> {
        let left = self.bytes.len();
        if count > left {
            return Err(Error::Truncated { wanted: count, left });
        }
        self.elements_left = self.elements_left.checked_sub(count).ok_or(Error::TooManyElements)?;
        Ok(())
    }

    /// Hands each tagged field to `read`, which says whether it knew the tag; unknown ones are skipped.
    pub(super) fn tagged_fields(
        &mut self,
        mut read: impl FnMut(u32, &mut Self) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        for _ in 0..self.varint()? {
            let tag = self.varint()?;
            let size = self.varint()? as usize;
            let rest = self.take(size).map(|field| std::mem::replace(&mut self.bytes, field))?;
            let known = read(tag, self);
            let unread = std::mem::replace(&mut self.bytes, rest);
            if known? && !unread.is_empty() {
                return Err(Error::Trailing(unread.len()));
            }
        }
        Ok(())
    }

    pub(super) fn skip_tagged_fields(&mut self) -> Result<(), Error> {
        self.tagged_fields(|_, _| Ok(false))
    }
}
