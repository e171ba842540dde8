//! Whether a log is worth a pass, and which part of it (replication.md 3.9). Reads a few headers at most.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::super::log::View;
use super::super::segment::Segment;
use super::super::{PartitionLog, ReadError};
use crate::metadata::config::TopicConfig;
use crate::types::{Offset, TimestampMs};

/// Until a log is looked at again that waits for its followers.
const RECHECK_MS: TimestampMs = 15_000;
const MILLION: u128 = 1_000_000;

/// What a log has for the cleaner.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Not compacted, or gone.
    Forget,
    /// Nothing before that time, unless something happens: complete segments reach the disk, or a config changes.
    Wait {
        until_ms: Option<TimestampMs>,
        dirt: Option<Dirt>,
    },
    /// Its active segment is older than `max.compaction.lag.ms`.
    Roll,
    Clean(Dirt),
}

/// A log, and what may be cleaned of it now.
#[derive(Debug)]
pub(super) struct Dirt {
    pub(super) view: View,
    /// From the clean point; may be empty.
    pub(super) range: Range<Offset>,
    pub(super) clean_bytes: u64,
    pub(super) dirty_bytes: u64,
    /// Whatever its share: records are too old, or tombstones may go.
    pub(super) is_due: bool,
    /// Of the first record that is not cleaned.
    pub(super) oldest_dirty_ms: Option<TimestampMs>,
}

impl Dirt {
    /// The dirty share, in millionths.
    pub(super) fn ratio_ppm(&self) -> u32 {
        let all = u128::from(self.clean_bytes + self.dirty_bytes).max(1);
        u32::try_from(u128::from(self.dirty_bytes) * MILLION / all).unwrap_or(u32::MAX)
    }
}

/// `horizon_ms` is the earliest delete horizon that the last pass came across.
pub(super) fn judge(
    log: &PartitionLog,
    horizon_ms: Option<TimestampMs>,
    now_ms: TimestampMs,
) -> Result<Verdict, ReadError> {
    let config = log.config();
    let view = log.view();
    let Some(active) = view.segments.last() else {
        return Ok(Verdict::Wait { until_ms: None, dirt: None });
    };
    if !config.cleanup_policy.compact || !log.is_as_viewed(&view) {
        return Ok(Verdict::Forget);
    }
    let start = view.clean_end.min(active.base_offset).max(view.start_offset);
    let mut deadlines = Deadlines::default();

    let mut end = view.flushed_end.min(view.first_unstable).min(active.base_offset);
    if view.high_watermark < end {
        end = view.high_watermark;
        deadlines.add(now_ms.saturating_add(RECHECK_MS));
    }
    if let Some((young_from, old_enough_ms)) = find_young(&view, start, &config, now_ms)?
        && young_from < end
    {
        end = young_from;
        deadlines.add(old_enough_ms);
    }
    let range = start..end.max(start);

    let oldest_dirty_ms = oldest_after(&view, start)?;
    let overdue_ms = oldest_dirty_ms
        .map(|oldest_ms| oldest_ms.saturating_add(config.max_compaction_lag_ms))
        .filter(|overdue_ms| *overdue_ms < TimestampMs::MAX);
    let is_overdue = overdue_ms.is_some_and(|overdue_ms| overdue_ms <= now_ms);
    let only_active_is_dirty = start >= active.base_offset;
    if is_overdue && only_active_is_dirty && active.size() > 0 {
        return Ok(Verdict::Roll);
    }
    overdue_ms.filter(|_| !is_overdue).into_iter().for_each(|due_ms| deadlines.add(due_ms));
    let tombstones_may_go = horizon_ms.is_some_and(|horizon_ms| horizon_ms <= now_ms);
    horizon_ms.filter(|_| !tombstones_may_go).into_iter().for_each(|due_ms| deadlines.add(due_ms));

    let dirt = Dirt {
        clean_bytes: bytes_between(&view, view.start_offset..range.start)?,
        dirty_bytes: bytes_between(&view, range.clone())?,
        is_due: (is_overdue && !range.is_empty()) || tombstones_may_go,
        range,
        oldest_dirty_ms,
        view,
    };
    let is_dirty_enough = dirt.ratio_ppm() > config.min_cleanable_dirty_ppm;
    Ok(if dirt.is_due || (is_dirty_enough && dirt.dirty_bytes > 0) {
        Verdict::Clean(dirt)
    } else {
        Verdict::Wait { until_ms: deadlines.first, dirt: Some(dirt) }
    })
}

#[derive(Default)]
struct Deadlines {
    first: Option<TimestampMs>,
}

impl Deadlines {
    fn add(&mut self, due_ms: TimestampMs) {
        self.first = Some(self.first.map_or(due_ms, |first| first.min(due_ms)));
    }
}

/// Where the first complete segment begins that has a record inside of `min.compaction.lag.ms`, and until when it has.
fn find_young(
    view: &View,
    start: Offset,
    config: &TopicConfig,
    now_ms: TimestampMs,
) -> Result<Option<(Offset, TimestampMs)>, ReadError> {
    let lag_ms = config.min_compaction_lag_ms;
    if lag_ms == 0 {
        return Ok(None);
    }
    for segment in view.segments.iter().filter(|segment| segment.next_offset() > start) {
        let old_enough_ms = segment.largest_timestamp_ms()?.saturating_add(lag_ms);
        if old_enough_ms > now_ms {
            return Ok(Some((segment.base_offset, old_enough_ms)));
        }
    }
    Ok(None)
}

/// The time of the first batch at or after `start`. The clock of the broker does where there are no timestamps.
fn oldest_after(view: &View, start: Offset) -> Result<Option<TimestampMs>, ReadError> {
    let dirty = |segment: &&Arc<Segment>| segment.next_offset() > start && segment.size() > 0;
    match view.segments.iter().find(dirty) {
        None => Ok(None),
        Some(segment) => segment.timestamp_at_ms(start).map(Some),
    }
}

fn bytes_between(view: &View, range: Range<Offset>) -> Result<u64, ReadError> {
    let mut bytes = 0;
    for segment in view.segments.iter() {
        let (first, next) = (segment.base_offset, segment.next_offset());
        if next <= range.start || first >= range.end {
            continue;
        }
        let from = if first < range.start { segment.position_of(range.start)? } else { 0 };
        let to = if next > range.end { segment.position_of(range.end)? } else { segment.size() };
        bytes += to.saturating_sub(from);
    }
    Ok(bytes)
}

/// How long to sleep until `due_ms`.
pub(super) fn time_until(due_ms: TimestampMs, now_ms: TimestampMs) -> Duration {
    Duration::from_millis(due_ms.saturating_sub(now_ms).max(0).cast_unsigned())
}
