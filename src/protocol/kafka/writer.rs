//! Writing: one frame, with gaps where record sets will go straight from their files.

use bytes::BufMut;

use super::reader::Error;

/// A place in an encoded frame where bytes are still missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// How many bytes of [`Encoded::bytes`] come before it.
    pub position: usize,
    pub size: usize,
}

/// A frame: its bytes, and where record sets must be inserted before it is sent.
#[derive(Debug, Default)]
pub struct Encoded {
    pub bytes: Vec<u8>,
    pub gaps: Vec<Gap>,
}

/// A frame that is being written in one version.
#[derive(Debug)]
pub struct Writer {
    out: Vec<u8>,
    gaps: Vec<Gap>,
    pub(super) version: i16,
    pub(super) flexible: bool,
    error: Option<Error>,
}

impl Writer {
    pub fn new(version: i16, flexible: bool) -> Self {
        Self { out: Vec::new(), gaps: Vec::new(), version, flexible, error: None }
    }

    /// The bytes without a frame length in front.
    pub fn finish(self) -> Result<Encoded, Error> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(Encoded { bytes: self.out, gaps: self.gaps }),
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.out.put_slice(bytes);
    }

    pub(super) fn varint(&mut self, mut value: u32) {
        loop {
            let [.., low] = value.to_be_bytes();
            value >>= 7;
            if value == 0 {
                return self.out.put_u8(low);
            }
            self.out.put_u8(low | 0x80);
        }
    }

    /// A length of bytes or of elements; `None` is null.
    pub(super) fn length(&mut self, length: Option<usize>) {
        if self.flexible {
            let length = length.map_or(0, |length| length + 1);
            self.varint(u32::try_from(length).expect("frames are shorter than 4 GiB"));
        } else {
            let length = length.map_or(-1, |l| i32::try_from(l).expect("frames are below 2 GiB"));
            self.out.put_i32(length);
        }
    }

    pub(super) fn text(&mut self, text: Option<&str>) {
        if self.flexible {
            self.length(text.map(str::len));
        } else {
            self.classic_text_length(text);
        }
        self.put(text.unwrap_or_default().as_bytes());
    }

    /// As headers write it in every version.
    pub(super) fn classic_text(&mut self, text: Option<&str>) {
        self.classic_text_length(text);
        self.put(text.unwrap_or_default().as_bytes());
    }

    fn classic_text_length(&mut self, text: Option<&str>) {
        match text.map(|text| i16::try_from(text.len())) {
            None => self.out.put_i16(-1),
            Some(Ok(length)) => self.out.put_i16(length),
            Some(Err(_)) => {
                self.error = Some(Error::StringTooLong(text.map_or(0, str::len)));
            }
        }
    }

    /// Leaves out bytes that the owner of the frame inserts when it sends it.
    pub(super) fn gap(&mut self, size: usize) {
        if size == 0 {
            return;
        }
        self.gaps.push(Gap { position: self.out.len(), size });
    }

    /// Writes a tagged field. Its size comes first, so it is written aside.
    pub(super) fn tagged_field(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.out);
        write(self);
        let field = std::mem::replace(&mut self.out, outer);
        self.varint(tag);
        self.varint(u32::try_from(field.len()).expect("frames are shorter than 4 GiB"));
        self.put(&field);
    }
}
