//! How fast compaction may go, and whether it has to stop.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Compaction;
use crate::types::time::now;

/// Shorter waits are saved up.
const WAIT_MIN: Duration = Duration::from_millis(20);

pub(super) struct Pace<'c> {
    shared: &'c Compaction,
    /// Until then, what was spent so far takes.
    paid_until: Instant,
}

impl<'c> Pace<'c> {
    pub(super) fn new(shared: &'c Compaction) -> Self {
        Self { shared, paid_until: now() }
    }

    /// Counts, and waits while it was too much. False when the thread has to stop.
    pub(super) fn on_read(&mut self, bytes: usize) -> bool {
        self.shared.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.spend(bytes)
    }

    /// As [`Pace::on_read`].
    pub(super) fn on_written(&mut self, bytes: usize) -> bool {
        self.shared.written_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.spend(bytes)
    }

    fn spend(&mut self, bytes: usize) -> bool {
        let cost = bytes as f64 / self.shared.config.bytes_per_second_max.max(1) as f64;
        self.paid_until = self.paid_until.max(now()) + Duration::from_secs_f64(cost);
        let mut news = self.shared.news.work.lock();
        while !news.stopping && self.paid_until > now() + WAIT_MIN {
            self.shared.news.wake.wait_until(&mut news, self.paid_until);
        }
        !news.stopping
    }
}
