//! Appending what clients send, and when it counts as written (replication.md 2.4, 3.6).

use std::time::Instant;

use bytes::BytesMut;

use super::Partition;
use super::error::refuse;
use super::state::{AfterUnlock, State};
use crate::broker::purgatory::{ProduceResult, ProduceWaiter};
use crate::protocol::ErrorCode;
use crate::protocol::native::{PartitionError, Produced};
use crate::replication::{Context, Leader};
use crate::storage::{AppendError, Appended};
use crate::types::{LeaderEpoch, Offset, time};

#[derive(Debug)]
pub enum ProduceOutcome {
    Done(ProduceResult),
    /// Appended; whether it counts is not known yet.
    Wait(ProduceWaiter),
}

impl Partition {
    /// Appends one batch, as leader. With `acks` 0 it counts at once, with 1 when this broker vouches for it, with -1
    /// when the high watermark has passed it. A duplicate counts when its first copy does.
    pub fn produce(&self, mut batch: BytesMut, acks: i16, deadline: Instant) -> ProduceOutcome {
        // Only a leader has an opinion on a batch. Opening it may take long, so nobody waits for the lock meanwhile.
        let may_append = may_append(self.state.lock().leader(self.me), acks);
        let valid = may_append
            .and_then(|()| self.log.validate(&mut batch, time::wall_ms()).map_err(refused_batch));
        match valid {
            Ok(batch) => self.append_with(acks, deadline, |leader_epoch| {
                self.log.append_as_leader(batch, leader_epoch)
            }),
            Err(error) => ProduceOutcome::Done(Err(error)),
        }
    }

    /// As `produce` with `acks` -1, of batches that have their offsets already. See
    /// [`append_imported`](crate::storage::PartitionLog::append_imported).
    pub fn import(
        &self,
        mut batches: BytesMut,
        expected_end: Offset,
        deadline: Instant,
    ) -> ProduceOutcome {
        self.append_with(-1, deadline, |leader_epoch| {
            self.log.append_imported(&mut batches, expected_end, leader_epoch)
        })
    }

    fn append_with(
        &self,
        acks: i16,
        deadline: Instant,
        append: impl FnOnce(LeaderEpoch) -> Result<Appended, AppendError>,
    ) -> ProduceOutcome {
        self.update(|state, context, after| {
            self.append(state, append, acks, deadline, context, after)
                .unwrap_or_else(|error| ProduceOutcome::Done(Err(error)))
        })
    }

    fn append(
        &self,
        state: &mut State,
        append: impl FnOnce(LeaderEpoch) -> Result<Appended, AppendError>,
        acks: i16,
        deadline: Instant,
        context: Context<'_>,
        after: &mut AfterUnlock,
    ) -> Result<ProduceOutcome, PartitionError> {
        may_append(state.leader(self.me), acks)?;
        let leader = state.leader(self.me)?;
        let appended = append(leader.epoch()).map_err(refused_batch)?;
        let ends = self.log_ends();
        if !appended.duplicate {
            let effects = leader.on_log(ends, context);
            for stream in &mut state.streams {
                stream.mark();
            }
            self.take_effects(state, effects, after);
        }
        let produced = Produced {
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time_ms,
            log_start_offset: appended.log_start_offset,
        };
        let required = appended.last_offset + 1;
        let leader = state.leader(self.me)?;
        Ok(match acks {
            -1 if leader.high_watermark() >= required => {
                ProduceOutcome::Done(judge(leader, produced))
            }
            -1 => ProduceOutcome::Wait(state.committed.park(required, deadline, produced)),
            1 if ends.durable < required => {
                ProduceOutcome::Wait(state.durable.park(required, deadline, produced))
            }
            _ => ProduceOutcome::Done(Ok(produced)),
        })
    }
}

fn may_append(
    leader: Result<&mut Leader, PartitionError>,
    acks: i16,
) -> Result<(), PartitionError> {
    let leader = leader?;
    if acks == -1 && !leader.has_enough_replicas() {
        return Err(refuse(ErrorCode::NotEnoughReplicas, shortage(leader)));
    }
    Ok(())
}

fn refused_batch(error: AppendError) -> PartitionError {
    let refusal = refuse(error.code(), error.to_string());
    let AppendError::Refused(of_records) = error else { return refusal };
    let of_records = of_records.into_record_errors();
    let record_errors = of_records.into_iter().map(|error| (error.index, error.reason)).collect();
    PartitionError { record_errors, ..refusal }
}

/// The answer once the high watermark has passed a batch.
pub(super) fn judge(leader: &Leader, produced: Produced) -> ProduceResult {
    if leader.had_enough_replicas() {
        Ok(produced)
    } else {
        Err(refuse(ErrorCode::NotEnoughReplicasAfterAppend, shortage(leader)))
    }
}

fn shortage(leader: &Leader) -> String {
    let (isr, min_isr) = (leader.isr().committed(), leader.min_isr());
    format!("{} in-sync replicas {isr:?}, {min_isr} are needed", isr.len())
}
