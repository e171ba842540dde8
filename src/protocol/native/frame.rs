//! Frames: `length u32 | version u16 | kind u16 | request id u64 | body length u32 | body | payload`, big endian.
//!
//! `length` counts everything after itself. The payload is whatever follows the body.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};

use super::hello::PROTOCOL_VERSION;
use crate::codec::{self, Error};

/// Bytes of the header, the length included.
pub const FRAME_HEADER_SIZE: usize = 4 + 2 + 2 + 8 + 4;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// What a frame holds. A reply has the kind of its request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])* $name = $value,)* }

        impl Kind {
            pub fn from_number(number: u16) -> Option<Self> {
                match number { $($value => Some(Self::$name),)* _ => None }
            }
        }
    };
}

kinds! {
    /// [`super::Hello`], answered by [`super::HelloReply`].
    Hello = 1,
    /// The reply to any request that could not be served at all: [`super::WireError`].
    Error = 2,
    /// [`super::WhoAmI`], answered by [`super::WhoAmIReply`]. The liveness probe.
    WhoAmI = 3,

    /// Raft RPCs, encoded by `quorum`.
    RaftAppend = 16,
    RaftVote = 17,
    RaftSnapshot = 18,
    RaftTransferLeader = 19,
    /// First formation of a cluster and joining an existing one.
    Form = 20,
    Join = 21,

    /// A `ControllerCall`, answered by `Result<ControllerReply, Refusal>`.
    Controller = 32,
    /// [`super::WaitAppliedRequest`], answered by [`super::WaitAppliedReply`]. Served by `broker`.
    WaitApplied = 33,

    /// Follower to leader.
    ReplicaSubscribe = 48,
    ReplicaAck = 49,
    /// Leader to follower.
    ReplicaPush = 50,

    /// Clients.
    ClientMetadata = 64,
    ClientProduce = 65,
    ClientFetch = 66,
    ClientListOffsets = 67,
    ClientInitProducerId = 68,
    ClientQuorumStatus = 69,
    ClientDescribeConfigs = 70,
    ClientDeleteRecords = 71,
    /// [`super::ExplainRequest`], answered by an optional `metadata::Explanation`.
    ClientExplain = 72,

    /// For tools.
    ClientImport = 80,
    ClientReadReplica = 81,
}

/// One frame, taken from the wire or made for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: Kind,
    pub request_id: u64,
    pub body: Bytes,
    pub payload: Bytes,
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: Kind,
    pub request_id: u64,
    pub body_size: usize,
    pub payload_size: usize,
}

impl FrameHeader {
    /// Reads a header and checks its sizes against `frame_size_max` (bytes, header included).
    pub fn decode(bytes: &[u8; FRAME_HEADER_SIZE], frame_size_max: usize) -> Result<Self, Error> {
        let what = "frame";
        let malformed = |reason: String| Error::Malformed { what, reason };
        let [l0, l1, l2, l3, v0, v1, k0, k1, rest @ ..] = *bytes;
        let [i0, i1, i2, i3, i4, i5, i6, i7, b0, b1, b2, b3] = rest;
        let size = u32::from_be_bytes([l0, l1, l2, l3]) as usize + 4;
        if size > frame_size_max {
            let (size, limit) = (size as u64, frame_size_max as u64);
            return Err(Error::TooLarge { what, size, limit });
        }
        let version = u16::from_be_bytes([v0, v1]);
        if version != PROTOCOL_VERSION {
            let supported = PROTOCOL_VERSION;
            return Err(Error::NewerVersion { what, found: version, supported });
        }
        let number = u16::from_be_bytes([k0, k1]);
        let kind =
            Kind::from_number(number).ok_or_else(|| malformed(format!("unknown kind {number}")))?;
        let body_size = u32::from_be_bytes([b0, b1, b2, b3]) as usize;
        let payload_size = size
            .checked_sub(FRAME_HEADER_SIZE)
            .and_then(|rest| rest.checked_sub(body_size))
            .ok_or_else(|| malformed(format!("body of {body_size} in a frame of {size} bytes")))?;
        let request_id = u64::from_be_bytes([i0, i1, i2, i3, i4, i5, i6, i7]);
        Ok(Self { kind, request_id, body_size, payload_size })
    }

    /// Writes the header of a frame with these sizes.
    ///
    /// # Panics
    /// When the frame would be 4 GiB or longer: limits are far below.
    pub fn encode(&self, out: &mut BytesMut) {
        let size = FRAME_HEADER_SIZE - 4 + self.body_size + self.payload_size;
        out.put_u32(u32::try_from(size).expect("frames are shorter than 4 GiB"));
        out.put_u16(PROTOCOL_VERSION);
        out.put_u16(self.kind as u16);
        out.put_u64(self.request_id);
        out.put_u32(u32::try_from(self.body_size).expect("bodies are shorter than 4 GiB"));
    }
}

impl Frame {
    pub fn new<T: Serialize>(kind: Kind, request_id: u64, body: &T) -> Self {
        Self::with_payload(kind, request_id, body, Bytes::new())
    }

    pub fn with_payload<T: Serialize>(
        kind: Kind,
        request_id: u64,
        body: &T,
        payload: Bytes,
    ) -> Self {
        Self { kind, request_id, body: codec::encode(body).into(), payload }
    }

    /// Decodes the body, which is already inside a checked frame.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, Error> {
        codec::decode("frame body", &self.body, self.body.len() as u64)
    }

    /// The header and body; the payload is written separately, uncopied.
    pub fn encode_head(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(FRAME_HEADER_SIZE + self.body.len());
        FrameHeader {
            kind: self.kind,
            request_id: self.request_id,
            body_size: self.body.len(),
            payload_size: self.payload.len(),
        }
        .encode(&mut out);
        out.put_slice(&self.body);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(frame: &Frame) -> [u8; FRAME_HEADER_SIZE] {
        frame.encode_head()[..FRAME_HEADER_SIZE].try_into().expect("a header")
    }

    #[test]
    fn a_header_reads_back() {
        let frame = Frame::with_payload(Kind::ReplicaPush, 7, &(1_u8, 2_u16), Bytes::from("xyz"));
        let header = FrameHeader::decode(&header_of(&frame), 1000).expect("valid");
        assert_eq!(
            header,
            FrameHeader { kind: Kind::ReplicaPush, request_id: 7, body_size: 3, payload_size: 3 }
        );
    }

    #[test]
    fn forged_sizes_and_kinds_are_refused() {
        let mut bytes = header_of(&Frame::new(Kind::WhoAmI, 1, &0_u64));
        assert!(matches!(FrameHeader::decode(&bytes, 10), Err(Error::TooLarge { .. })));
        bytes[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(matches!(FrameHeader::decode(&bytes, 1000), Err(Error::Malformed { .. })));
        bytes[6..8].copy_from_slice(&999_u16.to_be_bytes());
        assert!(matches!(FrameHeader::decode(&bytes, 1000), Err(Error::Malformed { .. })));
        assert!(FrameHeader::decode(b"GET / HTTP/1.1\r\nHost", 1 << 20).is_err());
    }
}
