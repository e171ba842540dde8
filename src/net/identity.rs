//! Who this process is, in every handshake.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::protocol::native::{Hello, HelloReply, NodeHello, Purpose, Refused};
use crate::types::{BrokerEpoch, ClusterId, DirectoryId, IncarnationId, NodeId, random};

/// Said in every hello, for the logs of the other side.
pub(super) const SOFTWARE: &str = concat!("kontiki/", env!("CARGO_PKG_VERSION"));

/// Shared by everything that opens or accepts connections. The cluster id is set once, when the node has formed or
/// joined a cluster; the broker epoch with each registration.
#[derive(Debug)]
pub struct Identity {
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    pub incarnation: IncarnationId,
    cluster_id: OnceLock<ClusterId>,
    broker_epoch: AtomicI64,
}

impl Identity {
    /// A new incarnation of the node that lives in the directory.
    pub fn new(node_id: NodeId, directory_id: DirectoryId, cluster_id: Option<ClusterId>) -> Self {
        Self {
            node_id,
            directory_id,
            incarnation: random::uuid(),
            cluster_id: cluster_id.map(OnceLock::from).unwrap_or_default(),
            broker_epoch: AtomicI64::new(BrokerEpoch::NONE.0),
        }
    }

    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.cluster_id.get().copied()
    }

    /// # Panics
    /// When another cluster id is set already: a node never changes its cluster.
    pub fn set_cluster_id(&self, cluster_id: ClusterId) {
        let kept = *self.cluster_id.get_or_init(|| cluster_id);
        assert_eq!(kept, cluster_id, "a node never changes its cluster");
    }

    pub fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(self.broker_epoch.load(Ordering::Acquire))
    }

    pub fn set_broker_epoch(&self, broker_epoch: BrokerEpoch) {
        self.broker_epoch.store(broker_epoch.0, Ordering::Release);
    }

    pub(super) fn hello(&self, purpose: Purpose) -> Hello {
        let node = NodeHello {
            node_id: self.node_id,
            directory_id: self.directory_id,
            incarnation: self.incarnation,
            broker_epoch: self.broker_epoch(),
        };
        Hello {
            cluster_id: self.cluster_id(),
            node: Some(node),
            purpose,
            software: SOFTWARE.to_owned(),
        }
    }

    pub(super) fn hello_reply(&self, refused: Option<Refused>) -> HelloReply {
        HelloReply {
            cluster_id: self.cluster_id(),
            node_id: self.node_id,
            directory_id: self.directory_id,
            incarnation: self.incarnation,
            refused,
        }
    }

    /// Why a connection that opens with this hello cannot be served, if so.
    pub(super) fn refusal(&self, hello: &Hello, served: &[Purpose]) -> Option<Refused> {
        if !served.contains(&hello.purpose) {
            return Some(Refused::Purpose(hello.purpose));
        }
        if let (Some(ours), Some(theirs)) = (self.cluster_id(), hello.cluster_id)
            && ours != theirs
        {
            return Some(Refused::OtherCluster { theirs: ours });
        }
        let node = hello.node.as_ref()?;
        (node.node_id == self.node_id && node.directory_id != self.directory_id)
            .then_some(Refused::DuplicateNodeId(self.node_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(byte: u8) -> ClusterId {
        crate::types::Uuid([byte; 16])
    }

    #[test]
    fn strangers_are_refused_with_the_reason() {
        let ours = Identity::new(NodeId(1), uuid(1), Some(uuid(9)));
        let mut hello = Identity::new(NodeId(2), uuid(2), Some(uuid(9))).hello(Purpose::Control);
        assert_eq!(ours.refusal(&hello, &[Purpose::Control]), None);
        assert_eq!(
            ours.refusal(&hello, &[Purpose::Client]),
            Some(Refused::Purpose(Purpose::Control))
        );
        hello.cluster_id = Some(uuid(8));
        assert_eq!(
            ours.refusal(&hello, &[Purpose::Control]),
            Some(Refused::OtherCluster { theirs: uuid(9) })
        );
        let twin = Identity::new(NodeId(1), uuid(2), None).hello(Purpose::Control);
        assert_eq!(
            ours.refusal(&twin, &[Purpose::Control]),
            Some(Refused::DuplicateNodeId(NodeId(1)))
        );
    }
}
