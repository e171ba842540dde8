//! When to try again.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::protocol::ErrorCode;
use crate::types::random;

const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Growing pauses.
#[derive(Debug)]
pub(super) struct Backoff {
    pause: Duration,
}

impl Backoff {
    pub(super) const START: Self = Self { pause: PAUSE_FIRST };

    /// How long to wait before the next attempt.
    pub(super) fn next_pause(&mut self) -> Duration {
        // Between half of the pause and all of it, so that clients do not come back in step.
        let share = 50 + u32::try_from(random::seed() % 51).expect("at most 50");
        let pause = self.pause * share / 100;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        pause
    }
}

/// Attempts with growing pauses until a deadline.
#[derive(Debug)]
pub(super) struct Retry {
    deadline: Instant,
    backoff: Backoff,
}

impl Retry {
    pub(super) fn until(deadline: Instant) -> Self {
        Self { deadline, backoff: Backoff::START }
    }

    /// Waits before the next attempt. False, at once, when the deadline would come first.
    pub(super) async fn pause(&mut self) -> bool {
        let next = Instant::now() + self.backoff.next_pause();
        if next >= self.deadline {
            return false;
        }
        sleep_until(next).await;
        true
    }
}

/// The same request may succeed later, perhaps elsewhere.
pub(super) fn is_retriable(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownLeaderEpoch
            | ErrorCode::RequestTimedOut
            | ErrorCode::NetworkException
            | ErrorCode::NotEnoughReplicas
            | ErrorCode::NotEnoughReplicasAfterAppend
            | ErrorCode::NotController
            | ErrorCode::KafkaStorageError
            | ErrorCode::OffsetNotAvailable
            | ErrorCode::CorruptMessage
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::ThrottlingQuotaExceeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_grow_and_end_at_the_deadline() {
        let start = Instant::now();
        let mut retry = Retry::until(start + Duration::from_millis(500));
        let mut attempts = 0;
        while retry.pause().await {
            attempts += 1;
        }
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_millis(500) && elapsed > Duration::from_millis(250));
        assert!((4..=25).contains(&attempts), "{attempts}");
    }
}
