//! What a turn of the controller loop waits for.

use std::sync::Arc;
use std::time::Duration;

use openraft::ReadPolicy;
use openraft::errors::{ClientWriteError, ForwardReason};
use openraft::impls::ProgressResponder;

use super::controller_loop::Unanswered;
use super::raft::{Proposal, Raft};
use crate::metadata::MetadataBatch;
use crate::types::MetadataIndex;

/// Between attempts at what only time can change.
pub(super) const RETRY: Duration = Duration::from_millis(10);

/// What a turn ends with.
#[derive(Debug, Clone, Copy)]
pub(super) enum TurnEnd {
    Settled(MetadataIndex),
    Unanswered(Unanswered),
}

/// Ends when the batch is applied, or when it is certain that it will not be, or when nobody can say.
pub(super) async fn propose(raft: Raft, term: u64, batch: Arc<MetadataBatch>) -> TurnEnd {
    loop {
        let (responder, applied) = ProgressResponder::complete_only();
        let proposed =
            raft.write(Proposal(batch.clone())).with_leader(term).responder(responder).await;
        if proposed.is_err() {
            return TurnEnd::Unanswered(Unanswered::Unknown);
        }
        match applied.await {
            Ok(Ok(response)) if response.data.applied => {
                return TurnEnd::Settled(response.data.index);
            }
            // Dropped by everybody, for another basis.
            Ok(Ok(_)) => return TurnEnd::Unanswered(Unanswered::NotController),
            // Rejected before it was appended. A lease comes back with the next acknowledgement of the quorum.
            Ok(Err(ClientWriteError::ForwardToLeader(forward))) => match forward.reason {
                ForwardReason::LeaseExpired => tokio::time::sleep(RETRY).await,
                ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
                    return TurnEnd::Unanswered(Unanswered::NotController);
                }
            },
            Ok(Err(_)) | Err(_) => return TurnEnd::Unanswered(Unanswered::Unknown),
        }
    }
}

/// Ends when a quorum has confirmed that this node still leads.
pub(super) async fn confirm(raft: Raft, term: u64, index: MetadataIndex) -> TurnEnd {
    loop {
        match raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(read) if read.committed_leader_id().term == term => return TurnEnd::Settled(index),
            Ok(_) => return TurnEnd::Unanswered(Unanswered::NotController),
            // Until leadership is lost, which ends the turn from outside.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}
