//! How far recovery at start is: for the log, and for whoever waits for the node.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::types::time::now;

const LOG_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct RecoveryProgress {
    total: OnceLock<usize>,
    done: AtomicUsize,
    logged: Mutex<Option<Instant>>,
}

impl RecoveryProgress {
    pub(super) fn begin(&self, total: usize) {
        *self.logged.lock() = Some(now());
        // A second start under the same progress goes on with the first one's figures.
        let _ = self.total.set(total);
    }

    /// One partition is open.
    pub(super) fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let total = self.total.get().copied().unwrap_or(0);
        let mut logged = self.logged.lock();
        if logged.is_some_and(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = Some(now());
            drop(logged);
            tracing::info!(done, total, "recovering partitions");
        }
    }

    /// `None` before it begins.
    pub fn describe(&self) -> Option<String> {
        let total = self.total.get()?;
        let done = self.done.load(Ordering::Relaxed);
        Some(format!("recovering {done} of {total} partitions"))
    }
}
