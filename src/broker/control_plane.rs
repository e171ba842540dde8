//! What a broker needs of the metadata quorum.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::controller::{ControllerCall, ControllerReply, Refusal};
use crate::metadata::MetadataImage;
use crate::net::BoxFuture;
use crate::protocol::native::QuorumStatus;
use crate::quorum::Quorum;

/// The request may have been applied or not (replication.md 1.1 R4); the sentence says what went wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unanswered(pub String);

/// Images in, requests out. [`crate::quorum::Quorum`] in a node, a controller in memory in tests.
pub trait ControlPlane: fmt::Debug + Send + Sync + 'static {
    /// The image that this node applied. Images may be skipped.
    fn images(&self) -> watch::Receiver<Arc<MetadataImage>>;

    /// Has the active controller decide, wherever it is.
    fn submit(
        &self,
        call: ControllerCall,
        within: Duration,
    ) -> BoxFuture<'static, Result<Result<ControllerReply, Refusal>, Unanswered>>;

    fn status(&self) -> QuorumStatus;
}

impl ControlPlane for Quorum {
    fn images(&self) -> watch::Receiver<Arc<MetadataImage>> {
        Quorum::images(self)
    }

    fn submit(
        &self,
        call: ControllerCall,
        within: Duration,
    ) -> BoxFuture<'static, Result<Result<ControllerReply, Refusal>, Unanswered>> {
        let quorum = self.clone();
        Box::pin(async move {
            Quorum::submit(&quorum, call, within)
                .await
                .map_err(|error| Unanswered(error.to_string()))
        })
    }

    fn status(&self) -> QuorumStatus {
        Quorum::status(self)
    }
}
