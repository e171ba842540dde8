//! A snapshot is an image in an envelope. `quorum` stores it and ships it; nobody else sees the bytes.

use super::MetadataImage;
use crate::codec::{self, Envelope};

/// 1 GiB is far above the image of a million partitions.
const SNAPSHOT: Envelope =
    Envelope { what: "metadata snapshot", magic: *b"KTsn", version: 1, size_max: 1 << 30 };

impl MetadataImage {
    /// The bytes of a snapshot.
    pub fn to_snapshot(&self) -> Vec<u8> {
        SNAPSHOT.seal(self)
    }

    /// Reads what [`MetadataImage::to_snapshot`] wrote.
    pub fn from_snapshot(bytes: &[u8]) -> Result<Self, codec::Error> {
        SNAPSHOT.open(bytes)
    }
}
