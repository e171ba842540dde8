//! Records of one partition that wait to be sent, in batches.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::{Delivered, Record};
use crate::client::Error;

/// Bytes that a record adds to a batch beside its key, value and headers, at most.
const RECORD_OVERHEAD: usize = 32;

/// Filled by [`super::Producer::send`], emptied by the partition's sender.
#[derive(Debug)]
pub(super) struct Queue {
    batch_bytes: usize,
    linger: Duration,
    state: Mutex<State>,
    /// For the sender: there is more to look at.
    wake: Notify,
    /// For flushes: nothing is outstanding.
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Batch>,
    full: VecDeque<Batch>,
    /// Records that have no outcome yet.
    outstanding: usize,
    flushes: usize,
    closed: bool,
}

/// Records that travel together.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) records: Vec<Record>,
    pub(super) bytes: usize,
    /// When its first record came.
    pub(super) opened_at: Instant,
    waiters: Vec<oneshot::Sender<Result<Delivered, Error>>>,
}

impl Queue {
    pub(super) fn new(batch_bytes: usize, linger: Duration) -> Self {
        let (state, wake, idle) = (Mutex::default(), Notify::new(), Notify::new());
        Self { batch_bytes, linger, state, wake, idle }
    }

    /// Adds a record. The flag tells that a batch was closed.
    pub(super) fn push(
        &self,
        record: Record,
        size: usize,
    ) -> (oneshot::Receiver<Result<Delivered, Error>>, bool) {
        let (waiter, delivery) = oneshot::channel();
        let mut state = self.state.lock();
        state.outstanding += 1;
        let mut closed = false;
        if state.open.as_ref().is_some_and(|open| open.bytes + size > self.batch_bytes) {
            closed = true;
            let full = state.open.take();
            state.full.extend(full);
        }
        let is_first = state.open.is_none();
        let open = state.open.get_or_insert_with(Batch::new);
        open.records.push(record);
        open.waiters.push(waiter);
        open.bytes += size;
        drop(state);
        if is_first || closed {
            self.wake.notify_one();
        }
        (delivery, closed)
    }

    /// The next batch to send: a full one, or one that has waited long enough. `None` once closed and empty.
    ///
    /// Cancel safe. For one caller at a time.
    pub(super) async fn take(&self) -> Option<Batch> {
        loop {
            let linger_end = {
                let mut state = self.state.lock();
                if let Some(full) = state.full.pop_front() {
                    return Some(full);
                }
                let linger_end = state.open.as_ref().map(|open| open.opened_at + self.linger);
                let at_once = state.flushes > 0 || state.closed;
                match linger_end {
                    Some(end) if at_once || end <= Instant::now() => return state.open.take(),
                    None if state.closed => return None,
                    _ => linger_end,
                }
            };
            match linger_end {
                Some(end) => tokio::select! {
                    () = self.wake.notified() => {}
                    () = sleep_until(end) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Waits until every record that was pushed has its outcome.
    pub(super) async fn flush(&self) {
        let _flush = Flush::start(self);
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.state.lock().outstanding == 0 {
                return;
            }
            idle.await;
        }
    }

    /// What was pushed is still sent; then [`Queue::take`] ends.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Tells the waiters of a batch how it ended.
    pub(super) fn complete(
        &self,
        batch: Batch,
        outcome_of: impl Fn(usize) -> Result<Delivered, Error>,
    ) {
        let count = batch.waiters.len();
        for (index, waiter) in batch.waiters.into_iter().enumerate() {
            // Who sent it may not want to know.
            let _ = waiter.send(outcome_of(index));
        }
        let mut state = self.state.lock();
        state.outstanding = state.outstanding.saturating_sub(count);
        if state.outstanding == 0 {
            self.idle.notify_waiters();
        }
    }
}

/// While one of these lives, batches do not linger.
struct Flush<'a>(&'a Queue);

impl<'a> Flush<'a> {
    fn start(queue: &'a Queue) -> Self {
        queue.state.lock().flushes += 1;
        queue.wake.notify_one();
        Self(queue)
    }
}

impl Drop for Flush<'_> {
    fn drop(&mut self) {
        self.0.state.lock().flushes -= 1;
    }
}

impl Batch {
    fn new() -> Self {
        let (records, waiters) = (Vec::new(), Vec::new());
        Self { records, bytes: 0, opened_at: Instant::now(), waiters }
    }
}

/// Bytes that a record takes in a batch, at most.
pub(super) fn size_of(record: &Record) -> usize {
    let optional = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
    let headers = record.headers.iter().map(|(name, value)| 10 + name.len() + optional(value));
    RECORD_OVERHEAD + optional(&record.key) + optional(&record.value) + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: &'static str) -> Record {
        Record::to("t").value(value)
    }

    #[tokio::test]
    async fn full_batches_leave_at_once_and_the_rest_when_flushed() {
        let queue = Queue::new(100, Duration::from_secs(3600));
        assert!(!queue.push(record("a"), 60).1);
        assert!(queue.push(record("b"), 60).1);
        let full = queue.take().await.expect("a full batch");
        assert_eq!(full.records, [record("a")]);
        let flush = queue.flush();
        tokio::pin!(flush);
        let rest = tokio::select! {
            biased;
            () = &mut flush => unreachable!("nothing has an outcome"),
            rest = queue.take() => rest.expect("what is left"),
        };
        assert_eq!(rest.records, [record("b")]);
        for batch in [full, rest] {
            queue.complete(batch, |_| Err(Error::Closed));
        }
        flush.await;
    }

    #[tokio::test]
    async fn a_closed_queue_gives_out_what_it_has() {
        let queue = Queue::new(100, Duration::from_secs(3600));
        let (delivery, _) = queue.push(record("a"), 10);
        queue.close();
        let batch = queue.take().await.expect("the record");
        assert!(queue.take().await.is_none());
        queue.complete(batch, |_| Ok(Delivered { partition: 1, offset: 2, timestamp_ms: 3 }));
        let delivered = delivery.await.expect("completed").expect("delivered");
        assert_eq!(delivered.offset, 2);
    }

    #[tokio::test]
    async fn a_lingering_batch_leaves_by_itself() {
        let queue = Queue::new(100, Duration::from_millis(1));
        let (_delivery, _) = queue.push(record("a"), 10);
        assert_eq!(queue.take().await.expect("lingered").records, [record("a")]);
    }
}
