//! The beginning of a log: which segments go because they are old, because there is enough without them, or because the
//! log starts behind them (replication.md 3.8).
//!
//! ```text
//! retain, raise_start_offset: the log start moves, in memory --> housekeeper: log-start checkpoint --> drop_below_start
//! ```
//! Files go after the checkpoint is on disk, so that no crash makes a log with a hole, or brings back what was deleted.
//! Never above the high watermark. A log is looked at again when its oldest segment will have expired, when it has
//! grown enough, when its configs change: never just because time has passed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::segment::Segment;
use super::super::{AppendError, ReadError, Result};
use super::truncate::into_error;
use super::{PartitionLog, Writer};
use crate::metadata::config::TopicConfig;
use crate::types::time::now;
use crate::types::{Offset, TimestampMs};

impl PartitionLog {
    /// Never goes back, nor beyond the end. Files follow later.
    pub fn raise_start_offset(&self, start: Offset) -> Result<(), AppendError> {
        let writer = self.writer.lock();
        self.check_writable(&writer)?;
        self.raise_start(start.min(self.end_offset()));
        Ok(())
    }

    fn raise_start(&self, start: Offset) {
        if start > self.start_offset.fetch_max(start, Ordering::AcqRel) {
            self.epochs.lock().truncate_from_start(start);
            self.on_start_moved();
        }
    }

    /// Has the log start written, and then what is below deleted.
    pub(super) fn on_start_moved(&self) {
        if let Some(me) = self.me.upgrade() {
            self.dir.chores.add(|chores| {
                chores.log_starts = true;
                chores.moved_starts.push(me);
            });
        }
    }

    /// The first offset that may be read after a crash, too.
    pub fn durable_start_offset(&self) -> Offset {
        self.start_offset().min(self.start_offset_written.load(Ordering::Acquire))
    }

    /// The checkpoint file says `offset` now.
    pub(in super::super) fn on_start_offset_written(&self, offset: Offset) {
        self.start_offset_written.store(offset, Ordering::Release);
    }

    /// Gets rid of the segments that are wholly below the log start, as it was written.
    pub(in super::super) fn drop_below_start(&self) -> Result<(), AppendError> {
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        let start = self.durable_start_offset();
        let segments = self.segments.load_full();
        let next_bases = segments.iter().skip(1).map(|segment| segment.base_offset);
        let dropped = next_bases.take_while(|&next_base| next_base <= start).count();
        if dropped > 0 {
            self.segments.store(segments[dropped..].to_vec().into());
            self.discard(&segments[..dropped])?;
            // Nobody replays from before the first segment.
            let first_base = segments[dropped].base_offset;
            let old = writer.snapshots.partition_point(|&offset| offset < first_base);
            self.remove_oldest_snapshots(&mut writer, old)?;
        }
        Ok(())
    }

    /// Raises the log start over segments that have expired. Returns when to look again.
    pub(in super::super) fn retain(
        &self,
        now_ms: TimestampMs,
    ) -> Result<Option<Duration>, AppendError> {
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        writer.retention_slack = u64::MAX;
        let config = self.config.load_full();
        if !config.cleanup_policy.delete {
            return Ok(None);
        }
        let look = self.look(&config, now_ms)?;
        if look.expired > 0 {
            let segments = self.segments.load_full();
            let start = match segments.get(look.expired) {
                Some(oldest) => oldest.base_offset,
                None => {
                    // All of it has expired, and a log has an active segment.
                    let (active, end) = (&segments[look.expired - 1], self.end_offset());
                    self.roll(&mut writer, active, end, now_ms)
                        .map_err(|error| self.dir.fail(error))?;
                    end
                }
            };
            tracing::info!(
                log = %self.name, segments = look.expired, from = self.start_offset(), to = start,
                "retention raises the log start"
            );
            self.raise_start(start);
        }
        writer.retention_slack = look.slack;
        Ok(look.next)
    }

    /// What has expired at `now_ms`, and what would have to happen for more.
    fn look(&self, config: &TopicConfig, now_ms: TimestampMs) -> Result<Look> {
        let segments = self.segments.load_full();
        let high_watermark = self.high_watermark_checkpoint();
        let retention_bytes = u64::try_from(config.retention_bytes).unwrap_or(u64::MAX);
        let mut total = self.size();
        let mut look = Look { expired: 0, slack: u64::MAX, next: None };
        for (index, segment) in segments.iter().enumerate() {
            let next_base = segments.get(index + 1).map(|next| next.base_offset);
            let size = segment.size();
            if size == 0 && next_base.is_none() {
                break;
            }
            let is_too_much = total - size >= retention_bytes;
            let left_ms = match config.retention_ms {
                ..0 => None,
                retention_ms => {
                    Some(age_base_ms(segment)?.saturating_add(retention_ms).saturating_sub(now_ms))
                }
            };
            let is_too_old = left_ms.is_some_and(|left_ms| left_ms < 0);
            if !is_too_much && !is_too_old {
                if next_base.is_some() {
                    look.slack = retention_bytes - (total - size);
                }
                look.next = left_ms
                    .and_then(|left_ms| u64::try_from(left_ms).ok())
                    .map(|left_ms| Duration::from_millis(left_ms.saturating_add(1)));
                break;
            }
            if next_base.unwrap_or(self.end_offset()) > high_watermark {
                // Perhaps it may go at the next opportunity.
                look.next = Some(Duration::ZERO);
                break;
            }
            look.expired += 1;
            total -= size;
        }
        Ok(look)
    }

    /// Has retention look at the log, at the end of the interval in which `due` is.
    pub(super) fn retain_by(&self, due: Instant) {
        let Some(due) = self.dir.end_of_interval(due) else { return };
        self.dir.chores.add(|chores| chores.retention.bring_forward(&self.name, due));
    }

    /// After `size` bytes were appended to a segment, that was empty before if it `is_first`.
    pub(super) fn on_grown(&self, writer: &mut Writer, size: usize, is_first: bool) {
        let slack = writer.retention_slack.checked_sub(size as u64);
        writer.retention_slack = slack.unwrap_or(u64::MAX);
        if (is_first || slack.is_none()) && self.is_configured.load(Ordering::Relaxed) {
            self.retain_by(now());
        }
    }
}

/// The result of a look.
struct Look {
    /// Segments at the front that may go.
    expired: usize,
    /// Bytes that may be appended before another one may go.
    slack: u64,
    /// When another one may have expired.
    next: Option<Duration>,
}

/// The largest timestamp, or if there is none, when the file was written.
fn age_base_ms(segment: &Segment) -> Result<TimestampMs> {
    let largest = segment.largest_timestamp_ms().map_err(|error| match error {
        ReadError::Storage(error) => error,
        other => into_error(other, segment),
    })?;
    if largest >= 0 { Ok(largest) } else { segment.modified_ms() }
}
