//! One pass over one log: notes the last offset of each key in the dirty part, then rewrites the log up to there.
//!
//! ```text
//! log start      clean point        until: open transactions, high watermark, lag, active segment
//!     | clean         | dirty               |
//!     |               | map: key -> offset  |      may fill up early; the clean point then moves up to there only
//!     | rewrite: group by group, each swapped in as a whole               |
//! ```
//! Whatever changes the log underneath (a cut, a deletion, another cleanup policy) ends the pass; what was swapped in
//! by then stays, because lower groups come first: a tombstone never goes before what it deletes.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::super::log::View;
use super::super::segment::Segment;
use super::super::{Error, PartitionLog, ReadError};
use super::choice::Dirt;
use super::chunks::Chunks;
use super::offset_map::OffsetMap;
use super::pace::Pace;
use super::rules::{Rules, Seen};
use super::transactions::Outcomes;
use crate::metadata::config::TopicConfig;
use crate::record::{Batch, BatchHeader, DECOMPRESSED_SIZE_MAX, Refusal, batches, select};
use crate::types::{Offset, TimestampMs};

/// Why a pass did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    #[error("the log is not what it was, or the broker stops")]
    Interrupted,
    /// Nobody but a human, or a repair, makes this log cleanable.
    #[error(transparent)]
    Unreadable(#[from] ReadError),
    /// A write or a sync; the directory is offline now.
    #[error(transparent)]
    Failed(Error),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Unreadable(refusal.into())
    }
}

/// What a pass came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Done {
    pub(super) clean_end: Offset,
    pub(super) seen: Seen,
}

pub(super) struct Pass<'a, 'q> {
    pub(super) log: &'a Arc<PartitionLog>,
    pub(super) view: &'a View,
    pub(super) config: Arc<TopicConfig>,
    pub(super) pace: &'a mut Pace<'q>,
}

/// Cleans what `dirt` says, with a map of at most `map_bytes_max`.
pub(super) fn clean(
    log: &Arc<PartitionLog>,
    dirt: &Dirt,
    now_ms: TimestampMs,
    map_bytes_max: usize,
    pace: &mut Pace<'_>,
) -> Result<Done, Stop> {
    let view = &dirt.view;
    let mut pass = Pass { log, view, config: log.config(), pace };
    let mut rules = pass.map_keys(dirt, now_ms, map_bytes_max)?;
    rules.delete_retention_ms = pass.config.delete_retention_ms;
    rules.last_batches = log.last_batches_of_producers();
    let count = view.segments.partition_point(|segment| segment.base_offset < rules.clean_end);
    for group in groups(&view.segments[..count], &pass.config) {
        pass.rewrite(group, &mut rules)?;
    }
    Ok(Done { clean_end: rules.clean_end, seen: rules.seen })
}

impl Pass<'_, '_> {
    /// After `bytes` were read.
    pub(super) fn on_read(&mut self, bytes: usize) -> Result<(), Stop> {
        let goes_on = self.pace.on_read(bytes);
        self.go_on_if(goes_on)
    }

    pub(super) fn on_written(&mut self, bytes: usize) -> Result<(), Stop> {
        let goes_on = self.pace.on_written(bytes);
        self.go_on_if(goes_on)
    }

    /// Nothing goes on when the log is not what it was.
    fn go_on_if(&self, goes_on: bool) -> Result<(), Stop> {
        let goes_on = goes_on && self.log.is_as_viewed(self.view);
        if goes_on { Ok(()) } else { Err(Stop::Interrupted) }
    }

    /// A segment that was taken out meanwhile has no file, and the log is not what it was.
    pub(super) fn on_read_error(&self, error: ReadError) -> Stop {
        if self.log.is_as_viewed(self.view) { error.into() } else { Stop::Interrupted }
    }

    fn map_keys(
        &mut self,
        dirt: &Dirt,
        now_ms: TimestampMs,
        map_bytes_max: usize,
    ) -> Result<Rules, Stop> {
        let (start, mut until) = (dirt.range.start, dirt.range.end);
        let records_max = u64::try_from(until - start).unwrap_or_default();
        let map = OffsetMap::new(start, records_max, map_bytes_max);
        let mut rules = Rules::new(map, start, now_ms);
        let mut are_outcomes_known = false;
        let walked = self.walk(start..dirt.range.end, |pass, batch| {
            batch.check_crc()?;
            let header = batch.header;
            if is_data_of_transaction(&header) && !are_outcomes_known {
                are_outcomes_known = true;
                rules.outcomes = pass.read_outcomes(header.base_offset)?;
                until = until.min(rules.outcomes.first_undecided().unwrap_or(until));
            }
            if header.last_offset() >= until {
                return Ok(ControlFlow::Break(()));
            }
            if !add_keys(batch, &mut rules)? {
                if rules.clean_end == start {
                    return Err(Refusal::Corrupt("more keys than memory").into());
                }
                return Ok(ControlFlow::Break(()));
            }
            rules.clean_end = header.next_offset();
            Ok(ControlFlow::Continue(()))
        })?;
        if walked.is_continue() {
            rules.clean_end = until;
        }
        Ok(rules)
    }

    /// Of the transactions that have batches from `start` on. A marker counts when it is below the high watermark:
    /// another one may yet take its place.
    fn read_outcomes(&mut self, start: Offset) -> Result<Outcomes, Stop> {
        let mut outcomes = Outcomes::default();
        let high_watermark = self.view.high_watermark;
        let _either_end = self.walk(start..Offset::MAX, |_, batch| {
            if batch.header.base_offset >= high_watermark {
                return Ok(ControlFlow::Break(()));
            }
            outcomes.add(batch)?;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(outcomes)
    }

    /// Shows the batches of the segments that hold `range`, from that of its start on, until `on_batch` has seen enough.
    fn walk(
        &mut self,
        range: Range<Offset>,
        mut on_batch: impl FnMut(&mut Self, &Batch<'_>) -> Result<ControlFlow<()>, Stop>,
    ) -> Result<ControlFlow<()>, Stop> {
        let segments = &self.view.segments;
        let first = segments.partition_point(|segment| segment.next_offset() <= range.start);
        for segment in segments[first..].iter().take_while(|it| it.base_offset < range.end) {
            let chunks = segment
                .position_of(range.start)
                .and_then(|position| Chunks::new(segment, position));
            let mut chunks = chunks.map_err(|error| self.on_read_error(error))?;
            while let Some(bytes) = chunks.next().map_err(|error| self.on_read_error(error))? {
                self.on_read(bytes.len())?;
                for batch in batches(bytes) {
                    if on_batch(self, &batch?)?.is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn is_data_of_transaction(header: &BatchHeader) -> bool {
    header.is_transactional() && !header.is_control()
}

/// False when the map is full. Keys that it took by then do no harm: it knows nothing that is not so.
fn add_keys(batch: &Batch<'_>, rules: &mut Rules) -> Result<bool, Refusal> {
    let header = &batch.header;
    let is_void = is_data_of_transaction(header)
        && rules.outcomes.is_aborted(header.producer_id, header.base_offset);
    if header.is_control() || is_void {
        return Ok(true);
    }
    let mut is_full = false;
    select(batch, DECOMPRESSED_SIZE_MAX, |record| {
        if let Some(key) = record.key
            && !is_full
        {
            is_full = !rules.map.put(key, record.offset);
        }
        false
    })?;
    Ok(!is_full)
}

/// Neighbours that fit into one segment.
fn groups<'s>(
    segments: &'s [Arc<Segment>],
    config: &TopicConfig,
) -> impl Iterator<Item = &'s [Arc<Segment>]> + use<'s> {
    let (size_max, index_size_max) =
        (u64::from(config.segment_bytes), config.segment_index_bytes as usize);
    let mut rest = segments;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let (mut size, mut index_size, mut count) = (0, 0, 0);
        for segment in rest {
            size += segment.size();
            index_size += segment.index_size();
            let span = segment.next_offset() - 1 - first.base_offset;
            let fits =
                size <= size_max && index_size <= index_size_max && span <= i64::from(i32::MAX);
            if count > 0 && !fits {
                break;
            }
            count += 1;
        }
        let (group, after) = rest.split_at(count);
        rest = after;
        Some(group)
    })
}
