//! Random keyed logs with tombstones, transactions and restarts: whatever is compacted when, a reader who comes later
//! makes the same of it, and tombstones are there until their horizon.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::test_support::{Disk, read_all};
use super::testing::*;
use crate::metadata::config::TopicConfig;
use crate::record::{Compression, assign_offset, batches};
use crate::storage::PartitionLog;
use crate::types::{LeaderEpoch, Offset, TimestampMs};

#[derive(Debug, Clone)]
enum Step {
    /// Keys, and values by their size; a producer, or none.
    Write {
        codec: usize,
        producer: usize,
        pairs: Vec<(usize, Option<usize>)>,
    },
    End {
        producer: usize,
        commits: bool,
    },
    Clean {
        after_ms: TimestampMs,
        is_map_small: bool,
    },
    CutTail,
    NextEpoch,
    Reopen {
        is_clean: bool,
        keeps_snapshots: bool,
    },
}

/// Those of transactions; the last one is idempotent only, and with 4 there is none.
const TRANSACTIONAL: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    let pairs = proptest::collection::vec(
        (0..12_usize, proptest::option::weighted(0.7, 0..90_usize)),
        1..6,
    );
    prop_oneof![
        12 => (0..5_usize, 0..6_usize, pairs)
            .prop_map(|(codec, producer, pairs)| Step::Write { codec, producer, pairs }),
        4 => (0..TRANSACTIONAL, any::<bool>())
            .prop_map(|(producer, commits)| Step::End { producer, commits }),
        3 => (1_i64..800, any::<bool>())
            .prop_map(|(after_ms, is_map_small)| Step::Clean { after_ms, is_map_small }),
        1 => Just(Step::CutTail),
        1 => Just(Step::NextEpoch),
        1 => (any::<bool>(), any::<bool>())
            .prop_map(|(is_clean, keeps_snapshots)| Step::Reopen { is_clean, keeps_snapshots }),
    ]
}

/// Keys are few, and some look like markers.
fn key(index: usize) -> Option<Vec<u8>> {
    match index {
        0 => None,
        1 => Some(vec![0, 0, 0, 0]),
        2 => Some(vec![0, 0, 0, 1]),
        n => Some(format!("key {n}").into_bytes()),
    }
}

struct Run {
    disk: Disk,
    log: Arc<PartitionLog>,
    config: TopicConfig,
    /// All batches as they were appended.
    originals: Vec<Vec<u8>>,
    sequences: [i32; 4],
    now_ms: TimestampMs,
    /// Tombstones, and when they may go at the earliest.
    horizons: BTreeMap<Offset, TimestampMs>,
    epoch: i32,
}

impl Run {
    fn append(&mut self, mut bytes: Vec<u8>) {
        assign_offset(&mut bytes, self.log.end_offset(), LeaderEpoch(self.epoch));
        self.log.append_as_follower(&bytes).unwrap();
        self.originals.push(bytes);
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Write { codec, producer, pairs } => {
                let keys: Vec<_> = pairs.iter().map(|(index, _)| key(*index)).collect();
                let values = pairs.iter().map(|(_, size)| size.map(|size| &[b'v'; 90][..size]));
                let borrowed: Vec<KeyValue<'_>> =
                    keys.iter().map(Option::as_deref).zip(values).collect();
                let producer = (producer <= TRANSACTIONAL).then(|| {
                    let sequence = self.sequences[producer];
                    self.sequences[producer] += i32::try_from(pairs.len()).unwrap();
                    let is_transactional = producer < TRANSACTIONAL;
                    Producer { id: producer as i64 + 100, sequence, is_transactional }
                });
                let codec = Compression::ALL[codec];
                self.append(batch_of(codec, self.now_ms, producer, &borrowed));
            }
            Step::End { producer, commits } => {
                self.append(marker(producer as i64 + 100, self.now_ms, commits));
            }
            Step::Clean { after_ms, is_map_small } => {
                self.now_ms += after_ms;
                settle(&self.log);
                let before = self.log.view().clean_end;
                // With a small map, some go on where others stopped.
                let bytes_max = if is_map_small { 0 } else { LARGE_MAP };
                let done = pass(&self.log, self.now_ms, bytes_max).unwrap();
                assert!(done.clean_end >= before);
                self.check_cleaned(done.clean_end);
            }
            Step::CutTail => {
                // Only what is above the high watermark is ever cut off.
                let offset = self.log.high_watermark_checkpoint().max(self.log.end_offset() - 3);
                let end = self.log.truncate_to(offset).unwrap();
                self.originals.retain(|bytes| header(bytes).next_offset() <= end);
            }
            Step::NextEpoch => {
                self.epoch += 1;
                self.log.assign_epoch(LeaderEpoch(self.epoch), self.log.end_offset());
            }
            Step::Reopen { is_clean, keeps_snapshots } => self.reopen(is_clean, keeps_snapshots),
        }
    }

    fn reopen(&mut self, is_clean: bool, keeps_snapshots: bool) {
        let producers = self.log.last_batches_of_producers();
        if is_clean {
            self.disk.shut_down();
        } else {
            self.disk.crash();
        }
        if !self.originals.is_empty() && !keeps_snapshots {
            let path = self.disk.partition_path("t");
            for file in self.disk.files("t").iter().filter(|file| file.ends_with(".snapshot")) {
                std::fs::remove_file(path.join(file)).unwrap();
            }
        }
        let mut logs = self.disk.open();
        self.log =
            if logs.is_empty() { self.disk.create("t", &self.config) } else { logs.remove(0) };
        self.log.update_config(Arc::new(self.config.clone()));
        assert_eq!(self.log.last_batches_of_producers(), producers);
    }

    /// What a pass has to have done below the clean point.
    fn check_cleaned(&mut self, clean_end: Offset) {
        let all = Reading::of(&self.originals.concat());
        let left = Reading::of_log(&self.log);
        let below = |offset: Offset| offset < clean_end;
        assert!(!left.aborted.iter().any(|entry| below(entry.offset)), "what was aborted is gone");
        let mut seen = BTreeMap::new();
        for entry in left.committed.iter().filter(|entry| below(entry.offset)) {
            assert!(entry.key.is_some());
            assert_eq!(seen.insert(entry.key.clone(), entry.offset), None, "one record of a key");
        }
        let mut last = BTreeMap::new();
        for entry in all.committed.iter().filter(|entry| below(entry.offset) && entry.key.is_some())
        {
            last.insert(entry.key.clone(), entry);
        }
        for (key, entry) in last {
            let is_left = seen.get(&key) == Some(&entry.offset);
            if entry.value.is_some() {
                assert!(is_left, "{entry:?} is the last of its key");
                continue;
            }
            let first_ms = self.now_ms + self.config.delete_retention_ms;
            let horizon_ms = *self.horizons.entry(entry.offset).or_insert(first_ms);
            assert_eq!(is_left, self.now_ms < horizon_ms, "{entry:?} until {horizon_ms}");
        }
    }

    fn check(&self) {
        let all = Reading::of(&self.originals.concat());
        let bytes = read_all(&self.log, 0);
        let left = Reading::of(&bytes);
        assert_eq!(left.table(), all.table());
        for (left, all) in [(&left.committed, &all.committed), (&left.aborted, &all.aborted)] {
            assert!(left.iter().all(|entry| all.contains(entry)), "nothing is made up");
        }
        let end = self.originals.last().map_or(0, |last| header(last).next_offset());
        assert_eq!(self.log.end_offset(), end);
        assert!(batches(&bytes).all(|batch| {
            let left = batch.unwrap().header;
            let original = self.originals.iter().map(|it| header(it));
            original.into_iter().any(|it| {
                let key = |it: &crate::record::BatchHeader| {
                    let producer = (it.producer_id, it.producer_epoch, it.base_sequence);
                    (it.base_offset, it.last_offset(), it.leader_epoch, producer)
                };
                key(&it) == key(&left)
            })
        }));
        // Lookups by time agree with a scan of what is left.
        let mut times: Vec<(Offset, TimestampMs)> = Vec::new();
        for batch in batches(&bytes) {
            let records = crate::record::records(&batch.unwrap(), 1 << 20).unwrap();
            times.extend(
                records.iter().map(|it| it.unwrap()).map(|it| (it.offset, it.timestamp_ms)),
            );
        }
        for wanted_ms in [0, self.now_ms / 2, self.now_ms] {
            let found = self.log.find_by_timestamp(wanted_ms, Offset::MAX).unwrap();
            let first = times.iter().find(|(_, at_ms)| *at_ms >= wanted_ms);
            assert_eq!(found.map(|it| it.offset), first.map(|it| it.0));
        }
        let newest_ms = times.iter().map(|it| it.1).max();
        let newest = times.iter().find(|it| Some(it.1) == newest_ms).map(|it| it.0);
        let found = self.log.max_timestamp(Offset::MAX).unwrap();
        assert_eq!(found.map(|it| it.offset), newest);
    }
}

fn header(bytes: &[u8]) -> crate::record::BatchHeader {
    crate::record::BatchHeader::parse(bytes).unwrap()
}

fn run(steps: Vec<Step>, segment_bytes: u32) {
    let config = TopicConfig { segment_index_bytes: 200, ..compacted(segment_bytes) };
    let disk = disk();
    let log = disk.create("t", &config);
    let mut run = Run {
        disk,
        log,
        config,
        originals: Vec::new(),
        sequences: [0; 4],
        now_ms: 1_000,
        horizons: BTreeMap::new(),
        epoch: 0,
    };
    for step in steps {
        if matches!(step, Step::Clean { .. }) && run.originals.is_empty() {
            continue;
        }
        run.apply(step);
        run.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 3_000, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn readers_see_the_same_whatever_is_compacted(
        steps in proptest::collection::vec(step(), 1..60),
        segment_bytes in prop_oneof![Just(200_u32), Just(600), Just(2_500)],
    ) {
        run(steps, segment_bytes);
    }
}
