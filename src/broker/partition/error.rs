//! Why a partition refuses.

use std::time::Duration;

use crate::protocol::ErrorCode;
use crate::protocol::native::PartitionError;
use crate::record;
use crate::replication::FollowerRefusal;
use crate::storage::{AppendError, Error as StorageError};
use crate::types::{LeaderEpoch, NodeId};

/// A refusal without a hint at another leader.
pub(super) fn refuse(code: ErrorCode, message: impl Into<String>) -> PartitionError {
    PartitionError { code, message: message.into(), leader: None, record_errors: Vec::new() }
}

pub(super) fn not_leader(me: NodeId, leader: Option<(NodeId, LeaderEpoch)>) -> PartitionError {
    let leader = leader.filter(|(node, _)| *node != me);
    let message = match leader {
        Some((node, epoch)) => format!("broker {node} leads, since leader epoch {epoch}"),
        None => "no broker is known to lead".to_owned(),
    };
    PartitionError {
        code: ErrorCode::NotLeaderOrFollower,
        message,
        leader,
        record_errors: Vec::new(),
    }
}

/// Why a follower could not do what the leader's message said.
#[derive(Debug, thiserror::Error)]
pub enum FollowerError {
    #[error(transparent)]
    Refused(#[from] FollowerRefusal),
    #[error("a batch of leader epoch {found} came under leader epoch {current}")]
    ForeignEpoch { found: LeaderEpoch, current: LeaderEpoch },
    #[error("malformed batch: {0}")]
    Malformed(#[from] record::Refusal),
    #[error(transparent)]
    Append(#[from] AppendError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What the follower's side of the stream does about a partition now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// Nothing: the message was of a subscription that is over.
    Ignore,
    /// Subscribes under a new slot.
    SubscribeAgain,
    /// The same, after a while.
    SubscribeAfter(Duration),
    /// Waits for an image with a new leader epoch.
    AwaitImage,
}

/// Followers retry this soon: mostly the leader's image is a moment behind.
pub(super) const BACKOFF: Duration = Duration::from_millis(20);
/// After trouble with the bytes: they will not be better at once.
const TROUBLE_BACKOFF: Duration = Duration::from_millis(500);

impl FollowerError {
    /// The disk is the reason.
    pub fn is_storage(&self) -> bool {
        matches!(self, Self::Append(AppendError::Storage(_)) | Self::Storage(_))
    }

    pub fn next_step(&self) -> NextStep {
        match self {
            Self::Refused(FollowerRefusal::StaleSlot) => NextStep::Ignore,
            Self::Refused(FollowerRefusal::Gap { .. }) => NextStep::SubscribeAfter(BACKOFF),
            Self::ForeignEpoch { .. } | Self::Malformed(_) => {
                NextStep::SubscribeAfter(TROUBLE_BACKOFF)
            }
            Self::Append(AppendError::Storage(error)) | Self::Storage(error) if error.is_full() => {
                NextStep::SubscribeAfter(TROUBLE_BACKOFF)
            }
            Self::Append(AppendError::Storage(_) | AppendError::Closed)
            | Self::Refused(FollowerRefusal::BelowHighWatermark { .. })
            | Self::Storage(_) => NextStep::AwaitImage,
            Self::Append(_) => NextStep::SubscribeAfter(TROUBLE_BACKOFF),
        }
    }
}
