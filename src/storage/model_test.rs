//! The log against a model that is a list of batches: whatever is done to it, lookups equal a full scan.

use proptest::prelude::*;

use super::log::TimestampedOffset;
use super::test_support::{Disk, append, batch, idempotent_batch, read_all, small_config};
use super::{PartitionLog, ReadError};
use crate::metadata::config::Durability;
use crate::record::{
    Batch, Compression, ProduceRules, assign_offset, batches, records, validate, without_records,
};
use crate::types::{LeaderEpoch, Offset};

#[derive(Debug, Clone)]
enum Step {
    /// Timestamps and sizes of the records of one batch.
    Append {
        compression: usize,
        records: Vec<(i64, usize)>,
    },
    AppendIdempotent {
        records: i32,
    },
    AppendAsFollower {
        batches: Vec<(Kind, Vec<(i64, usize)>)>,
        gap: i64,
    },
    NextEpoch,
    Truncate {
        percent: i64,
    },
    TruncateFully {
        ahead: i64,
    },
    RaiseStart {
        percent: i64,
    },
    CloseFiles,
    Reopen {
        is_clean: bool,
    },
}

/// Of a batch in the leader's log.
#[derive(Debug, Clone)]
enum Kind {
    Plain(usize),
    /// The timestamps of the records do not count.
    LogAppendTime(i64),
    /// Its records were compacted away, and the header still has their largest timestamp.
    Empty,
}

fn stored(kind: &Kind, records: &[(i64, usize)]) -> Vec<u8> {
    match *kind {
        Kind::Plain(compression) => batch(Compression::ALL[compression], records),
        Kind::LogAppendTime(now_ms) => {
            let mut bytes = batch(Compression::None, records);
            let rules = ProduceRules {
                now_ms,
                size_max: u32::MAX,
                record_size_max: u32::MAX,
                compacted: false,
                log_append_time: true,
                timestamp_before_max_ms: 0,
                timestamp_after_max_ms: 0,
                compression: None,
            };
            validate(&mut bytes, &rules).unwrap();
            bytes
        }
        Kind::Empty => without_records(&parsed(&batch(Compression::Zstd, records)).header),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let records = || proptest::collection::vec((-1_i64..1_000, 0_usize..300), 1..5);
    let kind = || {
        prop_oneof![
            4 => (0..5_usize).prop_map(Kind::Plain),
            2 => (0_i64..1_000).prop_map(Kind::LogAppendTime),
            2 => Just(Kind::Empty),
        ]
    };
    prop_oneof![
        8 => (0..5_usize, records())
            .prop_map(|(compression, records)| Step::Append { compression, records }),
        4 => (1..4_i32).prop_map(|records| Step::AppendIdempotent { records }),
        4 => (proptest::collection::vec((kind(), records()), 1..12), 0_i64..3)
            .prop_map(|(batches, gap)| Step::AppendAsFollower { batches, gap }),
        2 => Just(Step::NextEpoch),
        2 => (0_i64..=110).prop_map(|percent| Step::Truncate { percent }),
        1 => (0_i64..10).prop_map(|ahead| Step::TruncateFully { ahead }),
        1 => (0_i64..=110).prop_map(|percent| Step::RaiseStart { percent }),
        1 => Just(Step::CloseFiles),
        2 => any::<bool>().prop_map(|is_clean| Step::Reopen { is_clean }),
    ]
}

#[derive(Default)]
pub(super) struct Model {
    /// Encoded, as they are in the log. Those below the start may be there or not.
    batches: Vec<Vec<u8>>,
    start: Offset,
    end: Offset,
    epoch: i32,
    next_sequence: i32,
    /// Base offset and bytes of the producer's last batch.
    last_idempotent: Option<(Offset, Vec<u8>)>,
}

fn parsed(bytes: &[u8]) -> Batch<'_> {
    Batch::split_first(bytes).unwrap().0
}

impl Model {
    #[cfg_attr(not(feature = "long-tests"), allow(dead_code, reason = "for the crash tests"))]
    pub(super) fn of(batches: Vec<Vec<u8>>, start: Offset, end: Offset, epoch: i32) -> Self {
        Self { batches, start, end, epoch, ..Self::default() }
    }

    fn push(&mut self, mut bytes: Vec<u8>, base: Offset) {
        assign_offset(&mut bytes, base, LeaderEpoch(self.epoch));
        self.end = parsed(&bytes).header.next_offset();
        self.batches.push(bytes);
    }

    fn cut(&mut self, offset: Offset) {
        if offset >= self.end {
            return;
        }
        self.batches.retain(|b| parsed(b).header.last_offset() < offset);
        self.end = self.batches.last().map_or(0, |last| parsed(last).header.next_offset());
        if self.last_idempotent.as_ref().is_some_and(|last| last.0 >= self.end) {
            // What is left of the producer's state is checked by the recovery tests.
            self.last_idempotent = None;
            self.next_sequence = -1;
        }
    }

    fn readable(&self, from: Offset) -> impl Iterator<Item = &Vec<u8>> {
        self.batches.iter().filter(move |b| parsed(b).header.last_offset() >= from)
    }

    fn all_records(&self) -> Vec<TimestampedOffset> {
        let mut all = Vec::new();
        for bytes in self.readable(self.start) {
            let batch = parsed(bytes);
            for record in records(&batch, 1 << 20).unwrap().iter().map(Result::unwrap) {
                all.push(TimestampedOffset {
                    timestamp_ms: record.timestamp_ms,
                    offset: record.offset,
                    leader_epoch: batch.header.leader_epoch,
                });
            }
        }
        all.retain(|record| record.offset >= self.start);
        all
    }
}

fn offsets(bytes: &[u8]) -> Vec<(Offset, usize)> {
    batches(bytes).map(|batch| batch.unwrap().header).map(|h| (h.base_offset, h.size)).collect()
}

pub(super) fn check(log: &PartitionLog, model: &Model) {
    assert_eq!((log.start_offset(), log.end_offset()), (model.start, model.end));
    let all: Vec<u8> = model.readable(model.start).flatten().copied().collect();
    assert!(
        read_all(log, model.start) == all,
        "{:?} instead of {:?}",
        offsets(&read_all(log, model.start)),
        offsets(&all)
    );

    // Reads by offset: bounded by upper and size, whole batches, the first one that ends at or after the offset.
    for (index, offset) in (model.start..=model.end).enumerate() {
        let upper = model.start + (model.end - model.start) * (index as i64 % 7) / 6;
        let size_max = [0, 100, 600, 5_000][index % 4];
        let at_least_one = index % 3 == 0;
        let slice = log.read(offset, upper, size_max, at_least_one).unwrap();
        let mut bytes = Vec::new();
        slice.read_into(&mut bytes).unwrap();
        let mut expected = Vec::new();
        let mut next = offset;
        for batch in model.readable(offset) {
            let header = parsed(batch).header;
            let fits =
                expected.len() + batch.len() <= size_max || (at_least_one && expected.is_empty());
            if header.next_offset() > upper || !fits || offset >= upper {
                break;
            }
            expected.extend_from_slice(batch);
            next = header.next_offset();
        }
        if bytes.is_empty() {
            assert!(expected.is_empty(), "{offset} {upper} {size_max} {at_least_one}");
        } else if bytes.len() < expected.len() {
            // A slice may end with its segment.
            assert!(expected.starts_with(&bytes));
            assert!(slice.next_offset > offset && slice.next_offset <= next);
        } else {
            assert!(bytes == expected);
            assert!(slice.next_offset >= next);
        }
    }
    for outside in [model.start - 1, model.end + 1] {
        let result = log.read(outside, Offset::MAX, 100, true);
        assert!(matches!(result, Err(ReadError::OutOfRange { .. })));
    }

    let all = model.all_records();
    for timestamp in (0..1_010).step_by(101) {
        for upper in [model.end, (model.start + model.end) / 2] {
            let first = all.iter().find(|record| record.timestamp_ms >= timestamp);
            let first = first.filter(|record| record.offset < upper).copied();
            assert_eq!(log.find_by_timestamp(timestamp, upper).unwrap(), first);
        }
    }
    // -1 says that there is no timestamp.
    let max = all.iter().map(|record| record.timestamp_ms).filter(|&ms| ms >= 0).max();
    let newest = all.iter().find(|record| Some(record.timestamp_ms) == max).copied();
    assert_eq!(log.max_timestamp(Offset::MAX).unwrap(), newest);

    for epoch in 0..=model.epoch {
        if let Some((_, end)) = log.end_offset_for_epoch(LeaderEpoch(epoch)) {
            for header in model.readable(model.start).map(|bytes| parsed(bytes).header) {
                if header.leader_epoch.0 <= epoch {
                    assert!(header.last_offset() < end, "epoch {epoch} ends at {end}: {header:?}");
                } else {
                    let divided = header.base_offset < model.start;
                    assert!(
                        divided || header.base_offset >= end,
                        "epoch {epoch} ends at {end}: {header:?} in {log:?} {:?}",
                        std::fs::read_to_string(log.path().join("leader-epoch-checkpoint"))
                    );
                }
            }
        }
    }
    let newest = model.readable(model.start).last().map(|bytes| parsed(bytes).header.leader_epoch);
    assert!(newest.is_none_or(|newest| log.latest_epoch() >= newest));
}

fn run(steps: Vec<Step>, durability: Durability) {
    let mut disk = Disk::new(durability);
    let config = small_config();
    let mut log = disk.create("t", &config);
    let mut model = Model { next_sequence: 0, ..Model::default() };
    for step in steps {
        match step {
            Step::Append { compression, records } => {
                let bytes = batch(Compression::ALL[compression], &records);
                let appended = append(&log, model.epoch, bytes.clone()).unwrap();
                assert_eq!(appended.base_offset, model.end);
                model.push(bytes, appended.base_offset);
            }
            Step::AppendIdempotent { records } => {
                // A producer whose state was cut off starts anew under another id.
                if model.next_sequence < 0 {
                    model.next_sequence = 0;
                    model.epoch += 1;
                }
                let producer_id = 1_000 + i64::from(model.epoch);
                let is_new = model.last_idempotent.is_none();
                let sequence = if is_new { 0 } else { model.next_sequence };
                let producer_id = model
                    .last_idempotent
                    .as_ref()
                    .map_or(producer_id, |last| parsed(&last.1).header.producer_id);
                let bytes = idempotent_batch(producer_id, sequence, records);
                let appended = append(&log, model.epoch, bytes.clone()).unwrap();
                assert!(!appended.duplicate || is_new);
                if !appended.duplicate {
                    model.push(bytes.clone(), appended.base_offset);
                }
                model.next_sequence = sequence + records;
                model.last_idempotent = Some((appended.base_offset, bytes));
            }
            Step::AppendAsFollower { batches, gap } => {
                let mut all = Vec::new();
                for (index, (kind, records)) in batches.into_iter().enumerate() {
                    // Compaction on the leader leaves gaps.
                    let base = model.end + if index == 1 { gap } else { 0 };
                    model.push(stored(&kind, &records), base);
                    all.extend_from_slice(model.batches.last().unwrap());
                }
                assert_eq!(log.append_as_follower(&all).unwrap(), model.end);
            }
            Step::NextEpoch => {
                model.epoch += 1;
                log.assign_epoch(LeaderEpoch(model.epoch), model.end);
                assert_eq!(log.latest_epoch(), LeaderEpoch(model.epoch));
            }
            Step::Truncate { percent } => {
                let offset = model.start + (model.end - model.start) * percent / 100;
                model.cut(offset);
                let end = log.truncate_to(offset).unwrap();
                // Whole batches go; where a gap begins there, the end may lie inside of the gap.
                let kept_end = model.batches.last().map_or(0, |b| parsed(b).header.next_offset());
                assert!(
                    kept_end <= end && end <= offset.max(kept_end),
                    "{kept_end} {end} {offset}"
                );
                model.end = end;
                model.start = model.start.min(end);
            }
            Step::TruncateFully { ahead } => {
                let start = model.end + ahead;
                log.truncate_fully(start).unwrap();
                model.batches.clear();
                (model.start, model.end) = (start, start);
                (model.last_idempotent, model.next_sequence) = (None, 0);
                model.epoch += 1;
            }
            Step::RaiseStart { percent } => {
                let start = model.start + (model.end - model.start) * percent / 100;
                log.raise_start_offset(start).unwrap();
                model.start = start.min(model.end);
            }
            Step::CloseFiles => while !log.cool() {},
            Step::Reopen { is_clean } => {
                if is_clean {
                    disk.shut_down()
                } else {
                    disk.crash()
                }
                drop(log);
                let mut logs = disk.open();
                if logs.is_empty() {
                    // Nothing was ever written: there is no file that knows of a start offset.
                    log = disk.create("t", &config);
                    (model.start, model.end) = (0, 0);
                } else {
                    log = logs.remove(0);
                    log.update_config(std::sync::Arc::new(config.clone()));
                    // A start reaches the disk lazily; after a crash it may be an earlier one.
                    let start = log.start_offset();
                    assert!(!is_clean || start == model.start);
                    if start == log.end_offset() && model.readable(start).next().is_none() {
                        // Nothing is left to read: the end is where the start is, or was.
                        model.batches.clear();
                        (model.start, model.end) = (start, start);
                    }
                    let first_base = model.batches.first().map(|b| parsed(b).header.base_offset);
                    if first_base.is_none_or(|first_base| first_base <= start) {
                        model.start = start;
                    } else {
                        log.raise_start_offset(model.start).unwrap();
                    }
                }
            }
        }
        check(&log, &model);
    }
    if let Some((base, bytes)) = &model.last_idempotent {
        let again = append(&log, model.epoch, bytes.clone()).unwrap();
        assert!(again.duplicate && again.base_offset == *base);
        check(&log, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn lookups_equal_a_full_scan(steps in proptest::collection::vec(step(), 1..40)) {
        run(steps, Durability::PageCache);
    }
}
