//! The handshake: who speaks to whom, about which cluster, and what for.

use serde::{Deserialize, Serialize};

use crate::types::{BrokerEpoch, ClusterId, DirectoryId, IncarnationId, NodeId};

/// Version of frames and messages. Peers must agree on it.
pub const PROTOCOL_VERSION: u16 = 1;

/// The first four bytes of a native connection to the clients port. As a Kafka frame length they would be negative.
pub const CLIENT_PREFACE: [u8; 4] = [0xff, b'K', b'T', b'1'];

/// What the opener of a connection says first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// `None` while the opener has not formed or joined a cluster, and for clients.
    pub cluster_id: Option<ClusterId>,
    /// `None` for clients.
    pub node: Option<NodeHello>,
    pub purpose: Purpose,
    /// `kontiki/0.1.0`, for logs.
    pub software: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHello {
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    pub incarnation: IncarnationId,
    /// NONE before registration.
    pub broker_epoch: BrokerEpoch,
}

/// What a connection will carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Raft, controller calls, heartbeats. Its end is evidence about the node behind it (replication.md 2.12).
    Control,
    /// One WhoAmI.
    Probe,
    /// One replica stream.
    Replica,
    /// Calls of a client.
    Client,
}

/// The answer. After a refusal the connection ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HelloReply {
    pub cluster_id: Option<ClusterId>,
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    pub incarnation: IncarnationId,
    pub refused: Option<Refused>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refused {
    #[error("it belongs to cluster {theirs}")]
    OtherCluster { theirs: ClusterId },
    #[error("it does not serve {0:?} connections on this port")]
    Purpose(Purpose),
    #[error("node id {0} is its own: two nodes have the same id")]
    DuplicateNodeId(NodeId),
    #[error("it is shutting down")]
    ShuttingDown,
    #[error("it has {0} connections, its limit")]
    TooManyConnections(u32),
}
