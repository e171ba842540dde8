//! The clock. Everything that needs the time gets it from here, so that pure modules can be given it instead.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// Timers of the control plane fire together, at multiples of this: an idle node wakes once for all of them.
pub const GRAIN: Duration = Duration::from_millis(20);

/// The first multiple of [`GRAIN`] that is not before `moment`. Multiples count from the first call in this process, so
/// that they differ between nodes, whose elections should not collide.
pub fn round_up_to_grain(moment: Instant) -> Instant {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let begin = *BEGIN.get_or_init(now);
    let grain_us = GRAIN.as_micros();
    let since_begin_us = moment.saturating_duration_since(begin).as_micros();
    let rounded_us = since_begin_us.div_ceil(grain_us) * grain_us;
    begin + Duration::from_micros(u64::try_from(rounded_us).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_rounded_up_to_the_grain() {
        let begin = round_up_to_grain(now());
        for (wanted_us, given_us) in [(0, 0), (1, 20_000), (20_000, 20_000), (20_001, 40_000)] {
            let rounded = round_up_to_grain(begin + Duration::from_micros(wanted_us));
            assert_eq!(rounded - begin, Duration::from_micros(given_us));
        }
    }
}
