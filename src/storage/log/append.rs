//! Writing: as leader, as follower, and the roll to the next segment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::checkpoint::{format_topic_id, parse_topic_id};
use super::super::fs;
use super::super::room;
use super::super::segment::Segment;
use super::super::{AppendError, Error, Result};
use super::{PARTITION_METADATA, PartitionLog, Writer};
use crate::metadata::config::{TimestampType, TopicConfig};
use crate::record::{self, Batch, BatchHeader, ProduceRules, Refusal, Validated, batches};
use crate::types::time::wall_ms;
use crate::types::{LeaderEpoch, Offset, TimestampMs};

/// A batch of a client that keeps to the rules of the topic.
#[derive(Debug)]
pub struct ValidBatch<'a> {
    bytes: &'a mut [u8],
    validated: Validated,
    now_ms: TimestampMs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub base_offset: Offset,
    pub last_offset: Offset,
    /// -1 with `message.timestamp.type=CreateTime`.
    pub log_append_time_ms: TimestampMs,
    pub log_start_offset: Offset,
    /// The batch was there already: the offsets are those of the first copy, and nothing was written.
    pub duplicate: bool,
}

impl PartitionLog {
    /// Validates one batch (kafka-protocol.md 3.4). Takes no lock: opening a batch, and compressing it anew where the
    /// topic wants that, is the long part of an append.
    pub fn validate<'a>(
        &self,
        batch: &'a mut [u8],
        now_ms: TimestampMs,
    ) -> Result<ValidBatch<'a>, AppendError> {
        let config = self.config.load();
        let log_append_time = config.message_timestamp_type == TimestampType::LogAppendTime;
        let rules = ProduceRules {
            now_ms,
            size_max: config.max_message_bytes,
            record_size_max: config.max_decompressed_message_bytes,
            compacted: config.cleanup_policy.compact,
            log_append_time,
            timestamp_before_max_ms: config.message_timestamp_before_max_ms,
            timestamp_after_max_ms: config.message_timestamp_after_max_ms,
            compression: config.compression(),
        };
        let validated = record::validate(batch, &rules)?;
        let (size, limit) = (validated.header.size as u64, u64::from(config.segment_bytes));
        if size > limit {
            return Err(AppendError::LargerThanSegment { size, limit });
        }
        Ok(ValidBatch { bytes: batch, validated, now_ms })
    }

    /// Assigns offsets and writes, unless the batch was written before.
    pub fn append_as_leader(
        &self,
        batch: ValidBatch<'_>,
        leader_epoch: LeaderEpoch,
    ) -> Result<Appended, AppendError> {
        let ValidBatch { bytes, validated: Validated { header, mut rewritten }, now_ms } = batch;
        let bytes = rewritten.as_deref_mut().unwrap_or(bytes);
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        self.check_whole()?;
        let copy = writer.producers.check(&header)?;
        let (base_offset, last_offset, timestamp_ms) = match copy {
            Some(copy) => (copy.base_offset(), copy.last_offset, copy.timestamp_ms),
            None => {
                self.dir.room.take(&self.dir.path, bytes.len() as u64, room::Writer::Client)?;
                let base_offset = self.end_offset();
                record::assign_offset(bytes, base_offset, leader_epoch);
                self.write(&mut writer, bytes, &self.config.load(), now_ms)?;
                let last_offset = base_offset + i64::from(header.last_offset_delta);
                (base_offset, last_offset, header.max_timestamp_ms)
            }
        };
        drop(writer);
        Ok(Appended {
            base_offset,
            last_offset,
            log_append_time_ms: if header.is_log_append_time() { timestamp_ms } else { -1 },
            log_start_offset: self.start_offset(),
            duplicate: copy.is_some(),
        })
    }

    /// Appends batches that another log assigned offsets to, with these offsets, gaps and all: only the leader epoch
    /// becomes ours. `expected_end` is where the caller believes that this log ends. All or none are appended; none
    /// when the log ends behind them already, because an earlier attempt was not answered.
    pub fn append_imported(
        &self,
        bytes: &mut [u8],
        expected_end: Offset,
        leader_epoch: LeaderEpoch,
    ) -> Result<Appended, AppendError> {
        let mut next = expected_end;
        let mut first = None;
        let mut rest = &mut *bytes;
        while !rest.is_empty() {
            let batch = Batch::split_first(rest)?.0;
            batch.check_crc()?;
            record::visit_timestamps(&batch, |_, _| ())?;
            let BatchHeader { base_offset, size, .. } = batch.header;
            if base_offset < next {
                return Err(AppendError::NotNext { expected: next, found: base_offset });
            }
            first.get_or_insert(base_offset);
            next = batch.header.next_offset();
            record::assign_offset(rest, base_offset, leader_epoch);
            rest = &mut std::mem::take(&mut rest)[size..];
        }
        let base_offset = first.ok_or(Refusal::Corrupt("no batch"))?;
        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        let end = self.end_offset();
        let duplicate = end == next;
        if !duplicate {
            if end != expected_end {
                return Err(AppendError::OtherEnd { end, expected: expected_end });
            }
            self.dir.room.take(&self.dir.path, bytes.len() as u64, room::Writer::Client)?;
            self.write(&mut writer, bytes, &self.config.load(), wall_ms())?;
        }
        drop(writer);
        Ok(Appended {
            base_offset,
            last_offset: next - 1,
            log_append_time_ms: -1,
            log_start_offset: self.start_offset(),
            duplicate,
        })
    }

    /// Appends batches as they are in the leader's log, all or (if one is refused) none. Returns the new end offset.
    pub fn append_as_follower(&self, bytes: &[u8]) -> Result<Offset, AppendError> {
        let mut expected = None;
        for batch in batches(bytes) {
            let batch = batch?;
            batch.check_crc()?;
            let found = batch.header.base_offset;
            if let Some(expected) = expected.filter(|&expected| found < expected) {
                return Err(AppendError::NotNext { expected, found });
            }
            expected = Some(batch.header.next_offset());
        }
        let Some(end_offset) = expected else {
            return Ok(self.end_offset());
        };

        let mut writer = self.writer.lock();
        self.check_writable(&writer)?;
        self.dir.room.take(&self.dir.path, bytes.len() as u64, room::Writer::Follower)?;
        let first = Batch::split_first(bytes)?.0.header;
        let (found, expected) = (first.base_offset, self.end_offset());
        if found < expected {
            // The leader's first batch may begin below the log start that an empty follower was told to go on at.
            if self.start_offset() != expected || first.next_offset() <= expected {
                return Err(AppendError::NotNext { expected, found });
            }
            self.restart_at(&mut writer, found, expected)?;
        }
        self.write(&mut writer, bytes, &self.config.load(), wall_ms())?;
        Ok(end_offset)
    }

    /// Writes batches that are valid and in order, as few writes as segments allow: one, but for a roll.
    fn write(
        &self,
        writer: &mut Writer,
        bytes: &[u8],
        config: &TopicConfig,
        now_ms: TimestampMs,
    ) -> Result<(), AppendError> {
        let _under_way = self.dir.writes.begin();
        let written = self.write_runs(writer, bytes, config, now_ms);
        self.keep_warm();
        if self.is_page_cache() {
            self.flush_as_configured(config);
        } else {
            self.flush_soon();
        }
        written
    }

    fn write_runs(
        &self,
        writer: &mut Writer,
        bytes: &[u8],
        config: &TopicConfig,
        now_ms: TimestampMs,
    ) -> Result<(), AppendError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let first = BatchHeader::parse(rest)?;
            let segment = self.segment_for(writer, &first, config, now_ms)?;
            let run_size = longest_run(&segment, rest, config, now_ms);
            let (run, after) = rest.split_at(run_size);
            let is_first = segment.size() == 0;
            segment.append(run, config).map_err(|error| self.dir.fail_unless_full(error))?;
            self.on_written(writer, run, now_ms);
            self.on_grown(writer, run_size, is_first);
            rest = after;
        }
        Ok(())
    }

    /// Publishes what is in the file now.
    fn on_written(&self, writer: &mut Writer, run: &[u8], now_ms: TimestampMs) {
        writer.changed = true;
        let mut epochs = self.epochs.lock();
        for batch in batches(run).map_while(std::result::Result::ok) {
            epochs.assign(batch.header.leader_epoch, batch.header.base_offset);
            writer.producers.on_appended(&batch.header, now_ms);
            self.end_offset.store(batch.header.next_offset(), Ordering::Release);
        }
    }

    /// The segment that takes the batch: the active one, the next one, or the first one with its directory.
    fn segment_for(
        &self,
        writer: &mut Writer,
        header: &BatchHeader,
        config: &TopicConfig,
        now_ms: TimestampMs,
    ) -> Result<Arc<Segment>> {
        let segments = self.segments.load_full();
        match segments.last() {
            None => self.make_directory(header.base_offset, now_ms),
            Some(active) if active.must_roll(header, 0, config, now_ms) => {
                // The next segment begins where this one ends, so that a gap between them is a loss. The first batch
                // may begin later, where compaction has left a gap.
                let end = self.end_offset();
                let is_near = header.last_offset() - end <= i64::from(i32::MAX);
                let base_offset = if is_near { end } else { header.base_offset };
                self.roll(writer, active, base_offset, now_ms)
                    .map_err(|error| self.dir.fail_unless_full(error))
            }
            Some(active) => Ok(Arc::clone(active)),
        }
    }

    /// The first write makes the directory.
    fn make_directory(&self, base_offset: Offset, now_ms: TimestampMs) -> Result<Arc<Segment>> {
        let metadata = self.path.join(PARTITION_METADATA);
        self.dir.forget_outdated(&self.name)?;
        match fs::create_dir(&self.path) {
            Ok(()) => {}
            Err(error) if error.is_already_exists() => {
                // An attempt that found no free descriptor may have left it. Nobody else's is written into.
                let content = fs::read_if_exists(&metadata)?.unwrap_or_default();
                if parse_topic_id(&content).is_some_and(|found| found != self.topic_id) {
                    return Err(Error::malformed(&self.path, "belongs to another topic"));
                }
            }
            Err(error) => return Err(self.dir.fail_unless_full(error)),
        }
        let make = || -> Result<Arc<Segment>> {
            // As few new names as can be: a thousand partitions may get their first records at once.
            let file = fs::create(&metadata)?;
            fs::write(&file, &metadata, format_topic_id(self.topic_id).as_bytes(), 0)?;
            Ok(Arc::new(Segment::create(&self.path, base_offset, now_ms)?))
        };
        let segment = make().map_err(|error| self.dir.fail_unless_full(error))?;
        self.flush.lock().on_directory_made();
        self.segments.store(Arc::new(vec![Arc::clone(&segment)]));
        Ok(segment)
    }

    /// Ends the active segment and starts the next one at `base_offset`.
    pub(super) fn roll(
        &self,
        writer: &mut Writer,
        active: &Arc<Segment>,
        base_offset: Offset,
        now_ms: TimestampMs,
    ) -> Result<Arc<Segment>> {
        active.seal()?;
        self.write_epochs_if_changed()?;
        self.write_snapshot(writer, self.end_offset())?;
        let segment = Arc::new(Segment::create(&self.path, base_offset, now_ms)?);
        self.flush.lock().on_rolled(active);
        let mut segments = self.segments.load_full().as_ref().clone();
        segments.push(Arc::clone(&segment));
        self.segments.store(Arc::new(segments));
        if let Some(me) = self.me.upgrade() {
            self.dir.chores.add(|chores| chores.sealed.push(me));
        }
        Ok(segment)
    }
}

/// Bytes of the batches at the front that `segment` takes; the first one was let in already.
fn longest_run(
    segment: &Segment,
    bytes: &[u8],
    config: &TopicConfig,
    now_ms: TimestampMs,
) -> usize {
    let mut size = 0;
    for batch in batches(bytes).map_while(std::result::Result::ok) {
        if size > 0 && segment.must_roll(&batch.header, size, config, now_ms) {
            break;
        }
        size += batch.header.size;
    }
    size
}
