//! One turn of the controller loop: many requests, one batch.

use super::{ControllerReply, DecisionContext, DecisionRequest, Refusal};
use crate::metadata::{Cause, MetadataBatch, MetadataImage, MetadataRecord};
use crate::types::MetadataIndex;

/// Collects what is decided against one applied image.
#[derive(Debug)]
pub struct Turn<'a> {
    image: MetadataImage,
    context: DecisionContext<'a>,
    records: Vec<MetadataRecord>,
    causes: Vec<Cause>,
}

/// An answer that may be given once the turn's batch is applied; or, if the turn made no batch, once leadership was
/// confirmed (replication.md 1.1 R3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReply {
    reply: Result<ControllerReply, Refusal>,
}

impl PendingReply {
    /// `index` is that of the applied batch, or of the image if there was none.
    pub fn settled_at(self, index: MetadataIndex) -> Result<ControllerReply, Refusal> {
        let _ = index;
        self.reply
    }
}

impl<'a> Turn<'a> {
    pub fn begin(image: &MetadataImage, context: DecisionContext<'a>) -> Self {
        Self { image: image.clone(), context, records: Vec::new(), causes: Vec::new() }
    }

    /// Decides a request against the image and everything this turn has decided before.
    /// For requests that nobody waits for (fencing), drop the reply.
    pub fn decide(&mut self, request: &DecisionRequest) -> PendingReply {
        let _ = (request, &self.context, &self.image);
        todo!()
    }

    /// How many records wait, so that the loop can end a turn that grows too large.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// The batch to propose; `None` when nothing changed.
    pub fn finish(self, controller_epoch: u64) -> Option<MetadataBatch> {
        let _ = (controller_epoch, self.causes);
        todo!()
    }
}
