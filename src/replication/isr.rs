//! The in-sync replicas as a leader knows them, with at most one change on its way to the controller.
//!
//! Invariant (11): the controller's ISR is a subset of [`IsrState::maximal`] at all times. A member that *may* have been
//! added counts from the moment of the proposal; one that is being removed counts until the removal is *known*.

use crate::controller::AlterPartition;
use crate::types::NodeId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IsrState {
    Committed(Vec<NodeId>),
    PendingExpand { base: Vec<NodeId>, sent: AlterPartition },
    PendingShrink { base: Vec<NodeId>, sent: AlterPartition },
}

impl IsrState {
    /// What the controller is known to have decided last.
    pub fn committed(&self) -> &[NodeId] {
        match self {
            Self::Committed(isr) => isr,
            Self::PendingExpand { base, .. } | Self::PendingShrink { base, .. } => base,
        }
    }

    /// The proposal that has no final answer yet.
    pub fn pending(&self) -> Option<&AlterPartition> {
        match self {
            Self::Committed(_) => None,
            Self::PendingExpand { sent, .. } | Self::PendingShrink { sent, .. } => Some(sent),
        }
    }

    /// Whether the broker is, or may be, in the controller's ISR.
    pub fn maximal_contains(&self, node: NodeId) -> bool {
        match self {
            Self::PendingExpand { sent, .. } => sent.isr.iter().any(|(member, _)| *member == node),
            _ => self.committed().contains(&node),
        }
    }

    /// Size of the maximal ISR. (An expansion's proposal holds its base.)
    pub fn maximal_len(&self) -> usize {
        match self {
            Self::PendingExpand { sent, .. } => sent.isr.len(),
            _ => self.committed().len(),
        }
    }

    /// Forgets a proposal that was certainly not applied.
    pub fn reset_to_base(&mut self) {
        *self = Self::Committed(self.committed().to_vec());
    }
}
