//! The one bincode configuration of the project, and the envelope of our own files.
//!
//! Every decode has a size limit and reads from a slice; trailing bytes are refused (design D5). Envelopes (magic,
//! version, length, CRC-32C, body) protect whatever we put on disk ourselves: snapshots, chunks of the Raft log,
//! identity files. Kafka's own formats live in `record` and `storage`.

use bincode::Options;
use serde::{Serialize, de::DeserializeOwned};

/// Why bytes could not be decoded. They came from a network or a disk, so this is an answer, not a bug.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    #[error("{what}: malformed: {reason}")]
    Malformed { what: &'static str, reason: String },
    #[error("{what}: not one of our files (magic {found:02x?})")]
    ForeignMagic { what: &'static str, found: [u8; 4] },
    #[error(
        "{what}: written by a newer version ({found}, this one reads up to {supported}); upgrade this node"
    )]
    NewerVersion { what: &'static str, found: u16, supported: u16 },
    #[error("{what}: checksum mismatch")]
    Corrupt { what: &'static str },
    #[error("{what}: truncated")]
    Truncated { what: &'static str },
    #[error("{what}: {size} bytes are over the limit of {limit}")]
    TooLarge { what: &'static str, size: u64, limit: u64 },
}

fn options(size_max: u64) -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_limit(size_max)
        .reject_trailing_bytes()
}

/// Encodes a value. Its types are ours, so encoding cannot fail for another reason than memory.
///
/// # Panics
/// When a `Serialize` implementation fails, which derived ones do not.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    options(u64::MAX).serialize(value).expect("derived Serialize into memory cannot fail")
}

/// Decodes a value that takes all of `bytes`, and at most `size_max` of them.
pub fn decode<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
    size_max: u64,
) -> Result<T, Error> {
    let size = bytes.len() as u64;
    if size > size_max {
        return Err(Error::TooLarge { what, size, limit: size_max });
    }
    options(size_max)
        .deserialize(bytes)
        .map_err(|error| Error::Malformed { what, reason: error.to_string() })
}

/// Identifies one kind of file or chunk of ours.
#[derive(Debug, Clone, Copy)]
pub struct Envelope {
    pub what: &'static str,
    pub magic: [u8; 4],
    pub version: u16,
    pub size_max: u64,
}

/// Bytes before the body: magic, version, body length (u64), CRC-32C of the body.
pub const ENVELOPE_SIZE: usize = 4 + 2 + 8 + 4;

impl Envelope {
    /// Wraps an encoded value.
    pub fn seal<T: Serialize + ?Sized>(&self, value: &T) -> Vec<u8> {
        self.seal_bytes(&encode(value))
    }

    /// Wraps bytes that are encoded already.
    pub fn seal_bytes(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENVELOPE_SIZE + body.len());
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        out.extend_from_slice(&crc32c::crc32c(body).to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    /// Checks the envelope and decodes what it holds.
    pub fn open<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, Error> {
        decode(self.what, self.open_bytes(bytes)?, self.size_max)
    }

    /// Checks the envelope and returns the body.
    pub fn open_bytes<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], Error> {
        let what = self.what;
        let (header, body) =
            bytes.split_at_checked(ENVELOPE_SIZE).ok_or(Error::Truncated { what })?;
        let magic: [u8; 4] = header[0..4].try_into().expect("four bytes");
        if magic != self.magic {
            return Err(Error::ForeignMagic { what, found: magic });
        }
        let found = u16::from_be_bytes(header[4..6].try_into().expect("two bytes"));
        if found > self.version {
            return Err(Error::NewerVersion { what, found, supported: self.version });
        }
        let size = u64::from_be_bytes(header[6..14].try_into().expect("eight bytes"));
        if size > self.size_max {
            return Err(Error::TooLarge { what, size, limit: self.size_max });
        }
        if size != body.len() as u64 {
            return Err(Error::Truncated { what });
        }
        let crc = u32::from_be_bytes(header[14..18].try_into().expect("four bytes"));
        if crc != crc32c::crc32c(body) {
            return Err(Error::Corrupt { what });
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope =
        Envelope { what: "test file", magic: *b"KTst", version: 2, size_max: 1000 };

    #[test]
    fn an_envelope_gives_back_what_it_sealed() {
        let sealed = ENVELOPE.seal(&(7_u32, "text".to_owned()));
        assert_eq!(ENVELOPE.open::<(u32, String)>(&sealed), Ok((7, "text".to_owned())));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let sealed = ENVELOPE.seal(&(7_u32, "text".to_owned()));
        for position in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[position] ^= 0x41;
            // A lower version is legal, and its body is intact.
            if let Ok(value) = ENVELOPE.open::<(u32, String)>(&damaged) {
                assert!((4..6).contains(&position), "byte {position} changed unnoticed: {value:?}");
            }
            assert!(ENVELOPE.open::<(u32, String)>(&sealed[..position]).is_err());
        }
    }

    #[test]
    fn a_forged_length_is_refused_before_anything_is_allocated() {
        let forged = [0xff; 64];
        assert!(matches!(decode::<Vec<u64>>("list", &forged, 1000), Err(Error::Malformed { .. })));
    }
}
