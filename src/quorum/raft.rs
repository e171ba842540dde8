//! Raft's types, filled in with ours.

use std::fmt;
use std::sync::Arc;

use openraft::impls::{Vote as RaftVote, leader_id_std};
use openraft::type_config::alias as of;
use serde::{Deserialize, Serialize};

use super::state_machine::StateMachine;
use crate::metadata::{MetadataBatch, Replayed};
use crate::types::{HostPort, MetadataIndex, NodeId, RaftNodeId};

openraft::declare_raft_types!(
    /// One leader a term, as in the Raft paper: the term is the controller epoch.
    pub TypeConfig:
        D = Proposal,
        R = Outcome,
        NodeId = RaftNodeId,
        Node = Member,
        Term = u64,
        LeaderId = leader_id_std::LeaderId<u64, RaftNodeId>,
        Vote = RaftVote<leader_id_std::LeaderId<u64, RaftNodeId>>,
        AsyncRuntime = super::runtime::CoarseRuntime,
);

pub type Raft = openraft::Raft<TypeConfig, StateMachine>;
pub type Entry = of::EntryOf<TypeConfig>;
pub type LogId = of::LogIdOf<TypeConfig>;
pub type Vote = of::VoteOf<TypeConfig>;
pub type StoredMembership = of::StoredMembershipOf<TypeConfig>;
pub type SnapshotMeta = of::SnapshotMetaOf<TypeConfig>;

/// What is proposed. Shared, because the log store, each replication and the state machine look at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal(pub Arc<MetadataBatch>);

impl fmt::Display for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records on {}", self.0.records.len(), self.0.basis)
    }
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub index: MetadataIndex,
    /// False when the batch was decided on another basis and dropped. True for entries that hold no batch.
    pub applied: bool,
}

impl Outcome {
    pub(super) fn of(index: MetadataIndex, replayed: Replayed) -> Self {
        Self { index, applied: replayed == Replayed::Applied }
    }
}

/// A disk that takes part in the quorum, and the node it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node_id: NodeId,
    pub peer: HostPort,
}

impl Default for Member {
    /// Nobody: only openraft's own tests make members without an address.
    fn default() -> Self {
        Self { node_id: NodeId::NONE, peer: HostPort { host: String::new(), port: 0 } }
    }
}
