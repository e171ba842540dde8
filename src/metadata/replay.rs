//! `replay`: how a batch changes an image. The only mutator of metadata.

use super::{MetadataBatch, MetadataImage, MetadataRecord};
use crate::types::{MetadataIndex, NodeId, TopicId};

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    Applied,
    /// Its basis was not the last batch: decided against a state that is not this one. Identical on every node.
    Dropped,
}

/// A batch that contradicts the image. It is a fault: the process stops (replication.md 1.1 R5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("metadata batch version {0} is newer than this node reads; upgrade this node")]
    NewerBatch(u16),
    #[error("metadata index {index} comes after {last}")]
    OutOfOrder { index: MetadataIndex, last: MetadataIndex },
    #[error("broker {0} is not registered, or not with this epoch")]
    UnknownBroker(NodeId),
    #[error("topic {0} does not exist")]
    UnknownTopic(TopicId),
    #[error("{0}")]
    Contradiction(String),
    #[error(
        "digest of the metadata at {index} is {ours:032x} here and {theirs:032x} at the controller"
    )]
    Diverged { index: MetadataIndex, ours: u128, theirs: u128 },
}

impl MetadataImage {
    /// Replays the entry at `index`. Dropped (identically everywhere) when its basis is not `batch_index`.
    pub fn replay(
        &mut self,
        index: MetadataIndex,
        batch: &MetadataBatch,
    ) -> Result<Replayed, ReplayError> {
        let _ = (index, batch);
        todo!()
    }

    /// For entries that hold no batch: blank ones and memberships.
    pub fn advance(&mut self, index: MetadataIndex) {
        self.index = index;
    }

    /// Part of a batch, as the controller sees its own decisions before they are proposed.
    pub(crate) fn replay_records(
        &mut self,
        index: MetadataIndex,
        records: &[MetadataRecord],
    ) -> Result<(), ReplayError> {
        let _ = (index, records);
        todo!()
    }
}
