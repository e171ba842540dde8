//! How long a disk has not done what it was asked to do.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::types::time::now;

/// Operations of one kind that are under way. A stall is the time since the last of them began or ended, whichever was
/// later: many at once are no stall as long as one after the other ends.
#[derive(Debug)]
pub(super) struct Progress {
    origin: Instant,
    under_way: AtomicU32,
    /// Milliseconds since `origin`.
    moved: AtomicU64,
}

/// One operation, until it is dropped.
pub(super) struct UnderWay<'a>(&'a Progress);

impl Progress {
    pub(super) fn new() -> Self {
        Self { origin: now(), under_way: AtomicU32::new(0), moved: AtomicU64::new(0) }
    }

    pub(super) fn begin(&self) -> UnderWay<'_> {
        // The time first: whoever sees that something is under way sees a time that is not too old.
        if self.under_way.load(Ordering::Acquire) == 0 {
            self.moved();
        }
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(self)
    }

    /// Zero while nothing is under way.
    pub(super) fn stall(&self) -> Duration {
        if self.under_way.load(Ordering::Acquire) == 0 {
            return Duration::ZERO;
        }
        self.elapsed().saturating_sub(Duration::from_millis(self.moved.load(Ordering::Acquire)))
    }

    fn moved(&self) {
        let elapsed = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved.fetch_max(elapsed, Ordering::AcqRel);
    }

    fn elapsed(&self) -> Duration {
        now().saturating_duration_since(self.origin)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.moved();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_time_without_progress_while_something_is_under_way() {
        let progress = Progress::new();
        let pass = |at_least: Duration| {
            let start = now();
            while start.elapsed() < at_least {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        pass(Duration::from_millis(20));
        assert_eq!(progress.stall(), Duration::ZERO, "idle");
        let first = progress.begin();
        pass(Duration::from_millis(20));
        let second = progress.begin();
        assert!(progress.stall() >= Duration::from_millis(19), "a second one does not hide it");
        let before = progress.stall();
        drop(second);
        assert!(progress.stall() < before, "one of them came to an end");
        drop(first);
        assert_eq!(progress.stall(), Duration::ZERO);
    }
}
