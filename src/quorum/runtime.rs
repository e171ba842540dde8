//! The async runtime that openraft is given: tokio, with coarser timers.
//!
//! openraft looks at its clocks every heartbeat × 13/64, which is a hundred wake-ups a second on every idle node. Here
//! what sleeps until a point in time wakes at the next multiple of `types::time::GRAIN`, and so everything that is due wakes at once.
//! Heartbeats and elections come up to one grain later; what waits for a message does not.

use std::future::Future;
use std::time::Duration;

use openraft::OptionalSend;
use openraft::async_runtime::{AsyncRuntime, Instant};
use openraft_rt_tokio::TokioRuntime as Tokio;

use crate::types::time;

#[derive(Debug)]
pub struct CoarseRuntime(Tokio);

impl AsyncRuntime for CoarseRuntime {
    type JoinError = <Tokio as AsyncRuntime>::JoinError;
    type JoinHandle<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <Tokio as AsyncRuntime>::Sleep;
    type Instant = <Tokio as AsyncRuntime>::Instant;
    type TimeoutError = <Tokio as AsyncRuntime>::TimeoutError;
    type Timeout<R, T: Future<Output = R> + OptionalSend> = <Tokio as AsyncRuntime>::Timeout<R, T>;
    type ThreadLocalRng = <Tokio as AsyncRuntime>::ThreadLocalRng;
    type Mpsc = <Tokio as AsyncRuntime>::Mpsc;
    type Watch = <Tokio as AsyncRuntime>::Watch;
    type Oneshot = <Tokio as AsyncRuntime>::Oneshot;
    type Mutex<T: OptionalSend + 'static> = <Tokio as AsyncRuntime>::Mutex<T>;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + OptionalSend + 'static,
        T::Output: OptionalSend + 'static,
    {
        Tokio::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        Tokio::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        let wait: Duration = deadline - Self::Instant::now();
        let rounded = time::round_up_to_grain(time::now() + wait);
        tokio::time::sleep_until(rounded.into())
    }

    fn timeout<R, F: Future<Output = R> + OptionalSend>(
        duration: Duration,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout(duration, future)
    }

    fn timeout_at<R, F: Future<Output = R> + OptionalSend>(
        deadline: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Tokio::timeout_at(deadline, future)
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        Tokio::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        Tokio::thread_rng()
    }

    fn new(threads: usize) -> Self {
        Self(Tokio::new(threads))
    }

    fn block_on<F, T>(&mut self, future: F) -> T
    where
        F: Future<Output = T>,
    {
        self.0.block_on(future)
    }
}
