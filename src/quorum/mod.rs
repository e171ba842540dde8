//! The metadata quorum: a replicated log of [`MetadataBatch`](crate::metadata::MetadataBatch)es and who may write it.
//!
//! Every node opens it, voters and learners alike, and serves metadata from the image that it applied itself. The
//! active controller (the Raft leader) runs one single-writer loop that decides all waiting requests against the
//! applied image and proposes one batch (design D3).
//!
//! ```text
//! submit -> (peers port) -> controller loop -> decide -> propose -> log store -> replay -> images() -> broker
//! ```
//!
//! Invariant: this is the only module that names openraft or sled, and neither appears in its public interface.
//! Votes, log entries and snapshots are on disk before anybody is told of them.

pub mod directory;
#[doc(hidden)]
pub mod log_store;
mod log_sync;
#[doc(hidden)]
pub mod raft;
#[doc(hidden)]
pub mod snapshot_store;
#[doc(hidden)]
pub mod state_machine;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::controller::{ControllerCall, ControllerReply, Refusal};
use crate::metadata::MetadataImage;
use crate::net::{Identity, Peers, Reply};
use crate::protocol::native::{Frame, NodeHello, QuorumStatus, WireError};
use crate::types::{HostPort, NodeId};

pub use directory::MetaDirectory;

/// How the quorum of this node is opened.
#[derive(Debug)]
pub struct QuorumConfig {
    pub directory: MetaDirectory,
    /// Where other nodes reach this one.
    pub peer: HostPort,
    pub timing: Timing,
    /// A broker that has not been heard of for this long is fenced.
    pub broker_session: Duration,
    /// For topics that are created without a count.
    pub partition_count: i32,
    /// For topics that are created without a factor; `None`: min(3, active brokers).
    pub replication_factor: Option<i16>,
}

/// Raft's clocks. They must be the same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    pub heartbeat: Duration,
    pub election_min: Duration,
    pub election_max: Duration,
}

impl Timing {
    /// One data centre.
    pub const DEFAULT: Self = Self {
        heartbeat: Duration::from_millis(50),
        election_min: Duration::from_millis(150),
        election_max: Duration::from_millis(300),
    };
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be used; the sentence says what to do.
    #[error(transparent)]
    Directory(#[from] directory::Error),
    /// The request may have been applied: its outcome is unknown (replication.md 1.1 R4).
    #[error("no answer from the active controller within {0:?}; the request may have been applied")]
    Unknown(Duration),
    /// The request was certainly not applied.
    #[error("no active controller within {0:?}; the request was not applied")]
    NoController(Duration),
    /// Forming or joining a cluster needs an operator; the sentence says what to do.
    #[error("{0}")]
    Formation(String),
    #[error("this node's quorum has shut down")]
    ShutDown,
}

/// This node's part in the quorum. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Quorum {
    images: watch::Receiver<Arc<MetadataImage>>,
}

impl Quorum {
    /// Opens the log store and the last snapshot, and starts to take part. Frames are served from now on.
    pub async fn open(
        _config: QuorumConfig,
        _identity: Arc<Identity>,
        _peers: Peers,
    ) -> Result<Self, Error> {
        todo!()
    }

    /// Returns once this node is a member of a cluster: of the one that it forms with `seeds`, or of the one that they
    /// belong to already. Idempotent, and safe to call again after a crash at any point.
    pub async fn form_or_join(&self, _seeds: &[(NodeId, HostPort)]) -> Result<(), Error> {
        todo!()
    }

    /// The applied image.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.images.borrow().clone()
    }

    /// Changes when an image is applied; images may be skipped.
    pub fn images(&self) -> watch::Receiver<Arc<MetadataImage>> {
        self.images.clone()
    }

    /// Has the active controller decide, wherever it is. Tries again until the deadline while the request was certainly
    /// not applied; an outcome that is not known is [`Error::Unknown`] and left to the caller.
    pub async fn submit(
        &self,
        _call: ControllerCall,
        _deadline: Duration,
    ) -> Result<Result<ControllerReply, Refusal>, Error> {
        todo!()
    }

    /// Serves the kinds `Raft*`, `Form`, `Join` and `Controller` of the peers port.
    pub async fn on_frame(
        &self,
        _from: Option<NodeHello>,
        _frame: Frame,
    ) -> Result<Reply, WireError> {
        todo!()
    }

    /// A control connection of that node ended. Evidence, not a verdict: it starts a probe.
    pub fn on_peer_lost(&self, _node: NodeHello) {
        todo!()
    }

    pub fn status(&self) -> QuorumStatus {
        todo!()
    }

    /// Hands over the leadership if this node has it, then stops. The store is flushed when this returns.
    pub async fn shut_down(&self) {
        todo!()
    }
}
