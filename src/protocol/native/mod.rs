//! Kontiki's own protocol: frames with a fixed header, a bincode body and an optional raw payload.
//!
//! A connection opens with a [`Hello`] in each direction. On the peers port that is the first frame; on the clients
//! port the four bytes of [`CLIENT_PREFACE`] come before it, which no Kafka frame length can equal. After the hellos a
//! connection carries either calls (request and reply frames of one kind with one request id, many in flight) or one
//! replica stream (design D6).
//!
//! Invariant: lengths are checked against the frame limit before anything is allocated, and record batches travel as
//! payload, never through serde.

mod client;
mod frame;
mod hello;
mod peer;
mod replica;
mod tools;

pub use client::*;
pub use frame::{FRAME_HEADER_SIZE, Frame, FrameHeader, Kind};
pub use hello::{CLIENT_PREFACE, Hello, HelloReply, NodeHello, PROTOCOL_VERSION, Purpose, Refused};
pub use peer::*;
pub use replica::*;
pub use tools::*;
