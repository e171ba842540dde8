//! The thread of the control runtime.
//!
//! A runtime of the current thread, and not one with a single worker: that one wakes itself through a file descriptor for
//! every task that a timer or a socket makes ready, which on an idle node is a third of all wake-ups.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Dropping it stops the runtime without waiting for its tasks, as a crash would.
#[derive(Debug)]
pub(super) struct ControlThread {
    handle: Handle,
    /// How long the runtime may wait for blocking work that has begun.
    stop: oneshot::Sender<Duration>,
    thread: JoinHandle<()>,
}

impl ControlThread {
    pub(super) fn start() -> io::Result<Self> {
        let runtime =
            Builder::new_current_thread().thread_name("control-blocking").enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("control".to_owned()).spawn(move || {
            let patience = runtime.block_on(stopped).unwrap_or_default();
            runtime.shutdown_timeout(patience);
        })?;
        Ok(Self { handle, stop, thread })
    }

    /// Futures given to it run on the calling thread; what they spawn runs on this one.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns when the thread has ended. Blocks.
    pub(super) fn stop(self, patience: Duration) {
        let stopped = self.stop.send(patience).is_ok() && self.thread.join().is_ok();
        if !stopped {
            tracing::error!("the control thread has panicked");
        }
    }
}
