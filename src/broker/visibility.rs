//! "What was answered is visible": after an admin request, every live broker serves its result (issue: Kafka does not
//! promise that, and its clients trip over it).
//!
//! The broker that answers asks each other live broker to say when it has published the index of the result. A broker
//! that dies meanwhile is waited for only until it is fenced.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::publication::Publication;
use crate::controller::ControllerReply;
use crate::metadata::MetadataImage;
use crate::net::Peers;
use crate::protocol::native::{Kind, WaitAppliedReply, WaitAppliedRequest};
use crate::types::{HostPort, MetadataIndex, NodeId};

/// An answer waits no longer than this for slow brokers.
pub(super) const VISIBLE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long one question may wait on the other side.
const ASK_WAIT: Duration = Duration::from_secs(1);
const ASK_RETRY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone)]
pub(super) struct Visibility {
    pub(super) node_id: NodeId,
    pub(super) peers: Peers,
    pub(super) publication: Arc<Publication>,
}

impl Visibility {
    /// Returns when every live broker serves the metadata up to `index`, or at the deadline; says which.
    pub(super) async fn wait_everywhere(
        &self,
        images: watch::Receiver<Arc<MetadataImage>>,
        index: MetadataIndex,
        deadline: Instant,
    ) -> bool {
        if timeout_at(deadline, self.publication.wait_applied(index)).await.is_err() {
            return false;
        }
        let image = images.borrow().clone();
        let others: Vec<_> = image
            .brokers
            .values()
            .filter(|broker| !broker.fenced && broker.registration.node_id != self.node_id)
            .map(|broker| {
                let (visibility, images) = (self.clone(), images.clone());
                let node_id = broker.registration.node_id;
                let peer = broker.registration.endpoints.peer.clone();
                tokio::spawn(timeout_at(deadline, async move {
                    visibility.wait_for(node_id, peer, images, index).await;
                }))
            })
            .collect();
        let mut everywhere = true;
        for other in others {
            everywhere &= matches!(other.await, Ok(Ok(())));
        }
        everywhere
    }

    async fn wait_for(
        &self,
        node_id: NodeId,
        peer: HostPort,
        mut images: watch::Receiver<Arc<MetadataImage>>,
        index: MetadataIndex,
    ) {
        let fenced = images.wait_for(|image| image.broker(node_id).is_none_or(|it| it.fenced));
        let ask = async {
            while !self.ask(&peer, index).await {
                tokio::time::sleep(ASK_RETRY).await;
            }
        };
        tokio::select! {
            () = ask => {}
            _ = fenced => {}
        }
    }

    async fn ask(&self, peer: &HostPort, index: MetadataIndex) -> bool {
        let wait_ms = u32::try_from(ASK_WAIT.as_millis()).unwrap_or(u32::MAX);
        let request = WaitAppliedRequest { index, wait_ms };
        let asked: Result<(WaitAppliedReply, Bytes), _> =
            self.peers.call(peer, Kind::WaitApplied, &request, Bytes::new(), ASK_WAIT * 2).await;
        match asked {
            Ok((reply, _)) => reply.applied_index >= index,
            Err(error) => {
                debug!(%peer, %error, "cannot ask a broker what it has applied");
                false
            }
        }
    }

    /// The other side of [`Visibility::ask`].
    pub(super) async fn on_wait_applied(&self, request: WaitAppliedRequest) -> WaitAppliedReply {
        let wait = Duration::from_millis(request.wait_ms.into()).min(VISIBLE_WAIT_MAX);
        // At the deadline the answer says how far it is.
        let _ = tokio::time::timeout(wait, self.publication.wait_applied(request.index)).await;
        WaitAppliedReply { applied_index: self.publication.applied_index() }
    }
}

/// Where the result of an admin request is in the metadata log.
pub(super) fn reply_index(reply: &ControllerReply) -> Option<MetadataIndex> {
    match reply {
        ControllerReply::CreateTopics { index, .. }
        | ControllerReply::DeleteTopics { index, .. }
        | ControllerReply::AlterConfigs { index, .. }
        | ControllerReply::CreatePartitions { index, .. }
        | ControllerReply::Drain { index }
        | ControllerReply::UnregisterBroker { index }
        | ControllerReply::ElectLeaders { index, .. }
        | ControllerReply::Reassign { index, .. } => Some(*index),
        ControllerReply::Done
        | ControllerReply::RegisterBroker { .. }
        | ControllerReply::Heartbeat(_)
        | ControllerReply::AlterPartition { .. }
        | ControllerReply::AllocateProducerIds { .. } => None,
    }
}
