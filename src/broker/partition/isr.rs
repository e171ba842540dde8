//! ISR changes on their way to the controller and back (replication.md 2.9).

use super::Partition;
use crate::controller::{AlterPartition, AlterPartitionRefusal};
use crate::metadata::PartitionImage;

/// The controller's answer for one partition; `None` when it is lost, so that it is unknown whether it was applied.
pub type AlterReply = Option<Result<PartitionImage, AlterPartitionRefusal>>;

impl Partition {
    /// The proposal that the controller has to answer. Sent until it has, or until an image makes it moot.
    pub fn pending_alter(&self) -> Option<AlterPartition> {
        self.state.lock().replica.leader_mut()?.pending_alter().cloned()
    }

    /// The answer to `sent`: to the last request that held it, never a late one to an earlier request. If it is to be sent again, or something else is, the broker hears by `isr_change_wanted`.
    pub fn on_alter_reply(&self, sent: &AlterPartition, reply: AlterReply) {
        self.update(|state, context, after| {
            let Some(leader) = state.replica.leader_mut() else { return };
            let effects = leader.on_alter_reply(sent, reply, context);
            state.forget_ended_sessions();
            self.take_effects(state, effects, after);
        });
    }
}
