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

    #[test]
    fn pauses_grow_to_their_bound() {
        let (mut backoff, mut whole) = (Backoff::START, PAUSE_FIRST);
        for _ in 0..20 {
            let pause = backoff.next_pause();
            assert!(whole / 2 <= pause && pause <= whole, "{pause:?} of {whole:?}");
            whole = (whole * 2).min(PAUSE_MAX);
        }
        assert_eq!(whole, PAUSE_MAX);
    }

    #[tokio::test]
    async fn no_attempt_is_made_after_the_deadline() {
        assert!(Retry::until(Instant::now() + Duration::from_secs(3600)).pause().await);
        assert!(!Retry::until(Instant::now()).pause().await);
    }
}
