//! Deleting records at the beginning of a partition, as leader (replication.md 2.11).
//!
//! The log start moves at once. The answer waits until it is on disk at every live replica, so that no failover brings
//! the records back.

use std::time::Instant;

use tokio::sync::oneshot;

use super::Partition;
use super::error::refuse;
use super::state::{AfterUnlock, State};
use crate::protocol::ErrorCode;
use crate::protocol::native::PartitionError;
use crate::replication::Context;
use crate::types::Offset;

/// The low watermark: the lowest log start of all live replicas.
pub type TrimResult = Result<Offset, PartitionError>;

/// Somebody who waits for the low watermark.
pub(super) struct Trim {
    target: Offset,
    deadline: Instant,
    waiter: oneshot::Sender<TrimResult>,
}

impl Partition {
    /// Deletes what is before `offset`; `None` stands for the high watermark.
    pub fn trim(
        &self,
        offset: Option<Offset>,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<TrimResult>, PartitionError> {
        self.update(|state, context, after| {
            let high_watermark = state.leader(self.me)?.high_watermark();
            let policy = self.log.config().cleanup_policy;
            if policy.compact && !policy.delete {
                let message = "records of a compacted topic are deleted by their keys";
                return Err(refuse(ErrorCode::PolicyViolation, message));
            }
            let target = offset.unwrap_or(high_watermark);
            if !(0..=high_watermark).contains(&target) {
                let message =
                    format!("{}: {target} is not between 0 and {high_watermark}", self.name());
                return Err(refuse(ErrorCode::OffsetOutOfRange, message));
            }
            self.log
                .raise_start_offset(target)
                .map_err(|error| refuse(error.code(), error.to_string()))?;
            for stream in &mut state.streams {
                stream.mark();
            }
            let (waiter, result) = oneshot::channel();
            state.trims.push(Trim { target, deadline, waiter });
            self.settle_trims(state, context, after);
            Ok(result)
        })
    }

    /// Answers those whose log start has reached every live replica, and those whose time is over.
    pub(super) fn settle_trims(
        &self,
        state: &mut State,
        context: Context<'_>,
        after: &mut AfterUnlock,
    ) {
        if state.trims.is_empty() {
            return;
        }
        let Some(leader) = state.replica.leader_mut() else { return };
        let low_watermark = leader.low_watermark(self.log.durable_start_offset(), context);
        let is_over = |trim: &mut Trim| {
            trim.target <= low_watermark || trim.deadline <= context.now || trim.waiter.is_closed()
        };
        after.trims.extend(state.trims.extract_if(.., is_over).map(|trim| {
            let result = if trim.target <= low_watermark {
                Ok(low_watermark)
            } else {
                let message = "done, but not confirmed by every live replica before the timeout";
                Err(refuse(ErrorCode::RequestTimedOut, message))
            };
            (trim.waiter, result)
        }));
    }
}

impl Trim {
    pub(super) fn fail(self, error: PartitionError) -> (oneshot::Sender<TrimResult>, TrimResult) {
        (self.waiter, Err(error))
    }
}
