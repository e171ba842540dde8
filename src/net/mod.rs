//! Connections that speak the native protocol: frames over TCP, calls over frames.
//!
//! `Peers` is the calling side (one connection per address, opened when first needed, many calls in flight),
//! `serve_peers` the listening side of the peers port, `FrameReader` and `FrameWriter` what both are made of.
//!
//! Invariant: a call whose reply did not arrive is *unknown*, never "failed", unless
//! [`Error::certainly_not_delivered`] says so (replication.md 1.1 R4).

mod framed;
mod identity;
mod listener;
mod peers;

pub use framed::{FrameReader, FrameWriter, rehome, split};
pub use identity::Identity;
pub use listener::{BoxFuture, PeerService, Reply, accept_hello, serve_peers};
pub use peers::{Peers, PendingReply, ProbeOutcome};

use std::io;
use std::time::Duration;

use crate::codec;
use crate::protocol::native::{Refused, WireError};
use crate::types::HostPort;

/// Bounds of native connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest frame, header included, in bytes. Above what one request of a client may hold, so that every batch
    /// that was accepted can be replicated.
    pub frame_size_max: usize,
    /// Connections that the peers port holds at a time.
    pub connections_max: usize,
    /// Calls in flight on one connection.
    pub calls_max: usize,
    /// A new connection must say hello within this.
    pub hello_timeout: Duration,
}

impl Limits {
    pub const DEFAULT: Self = Self {
        frame_size_max: 128 << 20,
        connections_max: 4096,
        calls_max: 1024,
        hello_timeout: Duration::from_secs(5),
    };
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to {address}: {source}")]
    Connect { address: HostPort, source: io::Error },
    #[error("{address} refused the connection: {refused}")]
    Refused { address: HostPort, refused: Refused },
    #[error("connection lost: {0}")]
    Lost(String),
    #[error("no reply within {0:?}")]
    Timeout(Duration),
    #[error("too many calls in flight")]
    Busy,
    #[error("{0}")]
    Remote(WireError),
    #[error(transparent)]
    Codec(#[from] codec::Error),
}

impl Error {
    /// The other side has not seen the request.
    pub fn certainly_not_delivered(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Refused { .. } | Self::Busy)
    }
}
