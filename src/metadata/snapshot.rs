//! A snapshot is an image in an envelope. `quorum` stores it and ships it; nobody else sees the bytes.

use super::MetadataImage;
use crate::codec::{self, Envelope};

/// 1 GiB is far above the image of a million partitions. Version 1 ends before `offline`.
const SNAPSHOT: Envelope =
    Envelope { what: "metadata snapshot", magic: *b"KTsn", version: 2, size_max: 1 << 30 };

impl MetadataImage {
    /// The bytes of a snapshot.
    pub fn to_snapshot(&self) -> Vec<u8> {
        SNAPSHOT.seal(self)
    }

    /// Reads what [`MetadataImage::to_snapshot`] wrote.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, codec::Error> {
        let body = SNAPSHOT.open_bytes(bytes)?;
        let decode = |body| codec::decode(SNAPSHOT.what, body, SNAPSHOT.size_max);
        match bytes[4..6] {
            [0, 1] => decode(&[body, &codec::encode(&Self::default().offline)].concat()),
            _ => decode(body),
        }
    }
}
