//! The clock. Everything that needs the time gets it from here, so that pure modules can be given it instead.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::TimestampMs;

/// The wall clock, in milliseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
pub fn wall_ms() -> TimestampMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs::try_from(since_epoch.as_millis()).unwrap_or(TimestampMs::MAX)
}

/// The monotonic clock.
#[expect(clippy::disallowed_methods, reason = "the only place that reads the monotonic clock")]
pub fn now() -> Instant {
    Instant::now()
}
