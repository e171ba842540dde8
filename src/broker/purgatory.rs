//! Requests that wait for a partition: produce requests for an offset to count as written, fetches for something to read.
//!
//! Invariant: waiters of one partition complete in the order of the offsets that they wait for, and every one completes:
//! by progress, by the loss of the leadership, or by its deadline.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::sync::{Notify, oneshot};

use crate::protocol::ErrorCode;
use crate::protocol::native::{PartitionError, Produced};
use crate::types::Offset;

pub type ProduceResult = Result<Produced, PartitionError>;

/// Completes when the batch counts as written, or never will.
#[derive(Debug)]
pub struct ProduceWaiter(oneshot::Receiver<ProduceResult>);

impl Future for ProduceWaiter {
    type Output = ProduceResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ProduceResult> {
        Pin::new(&mut self.0).poll(cx).map(|received| {
            received.unwrap_or_else(|_| {
                Err(PartitionError {
                    code: ErrorCode::NotLeaderOrFollower,
                    message: "the partition was removed from this broker".to_owned(),
                    leader: None,
                    record_errors: Vec::new(),
                })
            })
        })
    }
}

/// A waiter and its answer, to be sent once no lock is held.
#[derive(Debug)]
pub(super) struct Completion {
    waiter: oneshot::Sender<ProduceResult>,
    result: ProduceResult,
}

impl Completion {
    /// Whoever does not wait any more does not need to know.
    pub(super) fn send(self) {
        let _ = self.waiter.send(self.result);
    }
}

#[derive(Debug)]
struct Parked {
    /// Exclusive end of the batch.
    required: Offset,
    deadline: Instant,
    produced: Produced,
    waiter: oneshot::Sender<ProduceResult>,
}

/// The produce requests of a partition that wait for the same kind of progress, sorted by offset.
#[derive(Debug, Default)]
pub(super) struct ProduceQueue(VecDeque<Parked>);

impl ProduceQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for everything below `required`.
    pub(super) fn park(
        &mut self,
        required: Offset,
        deadline: Instant,
        produced: Produced,
    ) -> ProduceWaiter {
        let (waiter, receiver) = oneshot::channel();
        // Nearly always at the end; a duplicate of an earlier batch is not.
        let after = self.0.iter().rev().take_while(|parked| parked.required > required).count();
        let at = self.0.len() - after;
        self.0.insert(at, Parked { required, deadline, produced, waiter });
        ProduceWaiter(receiver)
    }

    /// Everything below `reached` counts as written; `judge` has the last word on each.
    pub(super) fn complete(
        &mut self,
        reached: Offset,
        judge: impl Fn(Produced) -> ProduceResult,
        completions: &mut Vec<Completion>,
    ) {
        while self.0.front().is_some_and(|parked| parked.required <= reached) {
            let Some(Parked { produced, waiter, .. }) = self.0.pop_front() else { return };
            completions.push(Completion { waiter, result: judge(produced) });
        }
    }

    /// Answers those whose time is over, or who have gone away.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        timed_out: impl Fn() -> PartitionError,
        completions: &mut Vec<Completion>,
    ) {
        if self.0.iter().all(|parked| parked.deadline > now && !parked.waiter.is_closed()) {
            return;
        }
        for parked in std::mem::take(&mut self.0) {
            if parked.deadline <= now || parked.waiter.is_closed() {
                completions.push(Completion { waiter: parked.waiter, result: Err(timed_out()) });
            } else {
                self.0.push_back(parked);
            }
        }
    }

    /// Answers everyone with an error.
    pub(super) fn fail(
        &mut self,
        error: impl Fn() -> PartitionError,
        completions: &mut Vec<Completion>,
    ) {
        completions.extend(
            self.0
                .drain(..)
                .map(|Parked { waiter, .. }| Completion { waiter, result: Err(error()) }),
        );
    }
}

/// One long-polling fetch, registered with each partition that it reads.
#[derive(Debug, Default)]
pub struct FetchWaiter(Notify);

impl FetchWaiter {
    /// Something may be there to read: look again.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Waits for a wake-up since the last one. Cancel safe.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}

/// The fetches that wait for one partition. Those that have ended are forgotten now and then.
#[derive(Debug, Default)]
pub(super) struct FetchQueue {
    waiters: Vec<Weak<FetchWaiter>>,
    /// Length at which to look for ended ones.
    purge_at: usize,
}

/// A queue no longer than this is not worth a look.
const PURGE_AT_MIN: usize = 8;

impl FetchQueue {
    pub(super) fn register(&mut self, waiter: &Arc<FetchWaiter>) {
        if self.waiters.len() >= self.purge_at.max(PURGE_AT_MIN) {
            self.waiters.retain(|waiter| waiter.strong_count() > 0);
            self.purge_at = 2 * self.waiters.len();
        }
        self.waiters.push(Arc::downgrade(waiter));
    }

    /// Everyone, to be woken once no lock is held. They register again if they go on waiting.
    pub(super) fn take(&mut self) -> Vec<Weak<FetchWaiter>> {
        std::mem::take(&mut self.waiters)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::time;

    fn produced(base_offset: Offset) -> Produced {
        Produced { base_offset, log_append_time_ms: -1, log_start_offset: 0 }
    }

    fn refused(code: ErrorCode) -> PartitionError {
        PartitionError { code, message: String::new(), leader: None, record_errors: Vec::new() }
    }

    fn answers(completions: Vec<Completion>) -> Vec<Result<Offset, ErrorCode>> {
        completions
            .into_iter()
            .map(|it| it.result.map(|produced| produced.base_offset).map_err(|error| error.code))
            .collect()
    }

    #[test]
    fn waiters_complete_in_order_of_their_offsets() {
        let mut queue = ProduceQueue::default();
        let deadline = time::now() + Duration::from_secs(1);
        let _kept: Vec<_> = [3, 5, 4, 9]
            .map(|required| queue.park(required, deadline, produced(required)))
            .into_iter()
            .collect();
        let mut completions = Vec::new();
        queue.complete(5, Ok, &mut completions);
        assert_eq!(answers(completions), [Ok(3), Ok(4), Ok(5)]);
        assert!(!queue.is_empty());
    }

    #[test]
    fn deadlines_and_lost_leaderships_are_answered() {
        let mut queue = ProduceQueue::default();
        let now = time::now();
        let _first = queue.park(3, now + Duration::from_secs(1), produced(0));
        let _second = queue.park(5, now + Duration::from_secs(9), produced(3));
        let mut completions = Vec::new();
        queue.expire(now, || refused(ErrorCode::RequestTimedOut), &mut completions);
        assert!(completions.is_empty());
        queue.expire(
            now + Duration::from_secs(2),
            || refused(ErrorCode::RequestTimedOut),
            &mut completions,
        );
        queue.fail(|| refused(ErrorCode::NotLeaderOrFollower), &mut completions);
        assert_eq!(
            answers(completions),
            [Err(ErrorCode::RequestTimedOut), Err(ErrorCode::NotLeaderOrFollower)]
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn ended_fetches_do_not_pile_up() {
        let mut queue = FetchQueue::default();
        let lasting = Arc::new(FetchWaiter::default());
        queue.register(&lasting);
        for _ in 0..1000 {
            queue.register(&Arc::new(FetchWaiter::default()));
        }
        assert!(queue.waiters.len() <= 2 * PURGE_AT_MIN);
        assert_eq!(queue.take().iter().filter(|waiter| waiter.strong_count() > 0).count(), 1);
    }
}
