//! Calls between nodes, other than Raft's own, which `quorum` encodes.

use serde::{Deserialize, Serialize};

use crate::types::{ClusterId, DirectoryId, HostPort, IncarnationId, MetadataIndex, NodeId};

/// Why a call failed on the other side, before its own kind of answer could be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum WireError {
    #[error("unknown or unexpected request")]
    Unexpected,
    #[error("malformed request: {0}")]
    Malformed(String),
    #[error("not ready: {0}")]
    NotReady(String),
    #[error("{0}")]
    Failed(String),
}

/// The liveness probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmIReply {
    pub node_id: NodeId,
    pub incarnation: IncarnationId,
}

/// From a node with an unformed directory to each node it was told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormRequest {
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    pub peer: HostPort,
    /// Set by the initial voter with the lowest node id once it knows the directories of all of them: take this
    /// cluster id and write it down.
    pub decided: Option<FormedCluster>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormedCluster {
    pub cluster_id: ClusterId,
    pub voters: Vec<FormedVoter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormedVoter {
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    pub peer: HostPort,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormReply {
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    /// The cluster that the answering node belongs to already, or has just accepted.
    pub cluster: Option<FormedCluster>,
}

/// From a formatted node that is no member yet to the active controller: make me a learner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    pub node_id: NodeId,
    pub directory_id: DirectoryId,
    pub peer: HostPort,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinReply {
    Joined,
    /// Ask there.
    NotLeader {
        leader: Option<HostPort>,
    },
    /// The quorum knows this node id with another directory that is still a member.
    Refused {
        reason: String,
    },
}

/// From a broker that answers an admin request to the others: say when you serve the metadata up to this index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitAppliedRequest {
    pub index: MetadataIndex,
    /// Answer after this even if you do not.
    pub wait_ms: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitAppliedReply {
    /// What the broker has published to its partitions.
    pub applied_index: MetadataIndex,
}
