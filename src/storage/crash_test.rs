//! Crashes and failures at every boundary between two operations on the disk (reliability.md D1-D4, D12).
//!
//! A log is worked on while a tape records. Then, for moments of that history, the directory is rebuilt as a crash would
//! have left it, and opened: what counted as durable is there, nothing is there that never was, and whatever is derived
//! (indexes, epochs, producers) equals a scan of the files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rustix::io::Errno;

use super::fs::tape::{Crash, Fault, Kind, Tape};
use super::model_test::{Model, check};
use super::producers::Producers;
use super::test_support::{Disk, append, batch, idempotent_batch, small_config, wait_until};
use super::{AppendError, PartitionLog};
use crate::metadata::config::{Durability, TopicConfig};
use crate::record::{Batch, Compression, assign_offset, batches};
use crate::types::{LeaderEpoch, Offset};

#[derive(Debug, Clone)]
enum Step {
    Append { records: usize },
    AppendIdempotent { producer: i64 },
    AppendAsFollower { batches: usize, gap: i64 },
    NextEpoch,
    Truncate { percent: i64 },
    TruncateFully { ahead: i64 },
    RaiseStart { percent: i64 },
    Flush,
    Restart { is_clean: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..4_usize).prop_map(|records| Step::Append { records }),
        4 => (0..2_i64).prop_map(|producer| Step::AppendIdempotent { producer }),
        3 => (1..8_usize, 0..2_i64)
            .prop_map(|(batches, gap)| Step::AppendAsFollower { batches, gap }),
        2 => Just(Step::NextEpoch),
        3 => (0_i64..=100).prop_map(|percent| Step::Truncate { percent }),
        1 => (0_i64..5).prop_map(|ahead| Step::TruncateFully { ahead }),
        1 => (0_i64..=100).prop_map(|percent| Step::RaiseStart { percent }),
        3 => Just(Step::Flush),
        2 => any::<bool>().prop_map(|is_clean| Step::Restart { is_clean }),
    ]
}

/// The log as it should be after a step.
#[derive(Debug, Clone, Default)]
struct Version {
    batches: Vec<Vec<u8>>,
    start: Offset,
    end: Offset,
}

/// At `len` operations and later, up to the next moment, the log is `version` or becomes the next one.
struct Moment {
    len: usize,
    version: Version,
    /// Everything below counts as on disk.
    durable: Offset,
}

fn header(bytes: &[u8]) -> crate::record::BatchHeader {
    Batch::split_first(bytes).unwrap().0.header
}

struct Run {
    disk: Disk,
    tape: Tape,
    log: Arc<PartitionLog>,
    config: TopicConfig,
    version: Version,
    epoch: i32,
    sequences: BTreeMap<i64, i32>,
    moments: Vec<Moment>,
}

impl Run {
    fn new(durability: Durability) -> Self {
        let temp = memory_dir();
        let tape = Tape::record(temp.path());
        let disk = Disk::new_in(temp, durability);
        let config = small_config();
        let log = disk.create("t", &config);
        let version = Version::default();
        let moments = vec![Moment { len: 0, version: version.clone(), durable: 0 }];
        Self { disk, tape, log, config, version, epoch: 0, sequences: BTreeMap::new(), moments }
    }

    fn push(&mut self, mut bytes: Vec<u8>, base: Offset) {
        assign_offset(&mut bytes, base, LeaderEpoch(self.epoch));
        self.version.end = header(&bytes).next_offset();
        self.version.batches.push(bytes);
    }

    fn some_batch(&self, records: usize) -> Vec<u8> {
        let stamp = self.version.end * 7 % 1_000;
        batch(Compression::None, &vec![(stamp, 60 + self.moments.len() % 90); records])
    }

    fn take(&mut self, step: &Step) {
        let before = self.version.end;
        match *step {
            Step::Append { records } => {
                let bytes = self.some_batch(records);
                append(&self.log, self.epoch, bytes.clone()).unwrap();
                self.push(bytes, before);
            }
            Step::AppendIdempotent { producer } => {
                let sequence = self.sequences.entry(producer).or_default();
                let bytes = idempotent_batch(producer, *sequence, 2);
                *sequence += 2;
                assert!(!append(&self.log, self.epoch, bytes.clone()).unwrap().duplicate);
                self.push(bytes, before);
            }
            Step::AppendAsFollower { batches, gap } => {
                let first = self.version.batches.len();
                for index in 0..batches {
                    // Compaction on the leader leaves gaps.
                    let gap = if index == 1 { gap } else { 0 };
                    self.push(self.some_batch(2), self.version.end + gap);
                }
                let bytes = self.version.batches[first..].concat();
                self.log.append_as_follower(&bytes).unwrap();
            }
            Step::NextEpoch => self.epoch += 1,
            Step::Truncate { percent } => {
                let (start, end) = (self.version.start, self.version.end);
                let offset = start + (end - start) * percent / 100;
                let end = self.log.truncate_to(offset).unwrap();
                self.version.batches.retain(|bytes| header(bytes).last_offset() < end);
                self.version.end = end;
                self.version.start = start.min(end);
                if end < before {
                    // Nobody appends under an epoch that was cut.
                    self.epoch += 1;
                    self.sequences = BTreeMap::new();
                    let producers = replay(&self.version.batches);
                    for (producer, last) in producers.last_sequences() {
                        self.sequences.insert(producer, last + 1);
                    }
                }
            }
            Step::TruncateFully { ahead } => {
                let start = before + ahead;
                self.log.truncate_fully(start).unwrap();
                self.version = Version { batches: Vec::new(), start, end: start };
                self.sequences.clear();
                self.epoch += 1;
            }
            Step::RaiseStart { percent } => {
                let (start, end) = (self.version.start, self.version.end);
                let start = start + (end - start) * percent / 100;
                self.log.raise_start_offset(start).unwrap();
                self.version.start = start;
            }
            Step::Flush => {
                self.log.flush_soon();
                wait_until("all is durable", || {
                    self.log.durable_end_offset() == self.log.end_offset()
                });
                self.log.set_high_watermark_checkpoint(self.log.end_offset());
                self.log.dir().write_recovery_points().unwrap();
            }
            Step::Restart { is_clean } => self.restart(is_clean),
        }
        assert_eq!(self.log.end_offset(), self.version.end, "{step:?}");
        let durable = self.log.durable_end_offset();
        self.moments.push(Moment { len: self.tape.len(), version: self.version.clone(), durable });
    }

    fn restart(&mut self, is_clean: bool) {
        if is_clean {
            self.disk.shut_down();
        } else {
            self.disk.crash();
        }
        let mut logs = self.disk.open();
        if logs.is_empty() {
            self.log = self.disk.create("t", &self.config);
            self.version = Version::default();
        } else {
            self.log = logs.remove(0);
            self.log.update_config(Arc::new(self.config.clone()));
            // A start reaches the disk lazily, and so does one that is ahead of all records.
            let (start, end) = (self.log.start_offset(), self.log.end_offset());
            if self.version.batches.is_empty() || end < self.version.start {
                self.version = Version { batches: Vec::new(), start, end };
            } else {
                self.version.start = start;
            }
        }
    }

    /// Opens the directory as it is after a crash at `len`, and looks at everything.
    fn check_crash(&self, len: usize, crash: Crash) {
        let index = self.moments.partition_point(|moment| moment.len <= len).saturating_sub(1);
        let before = &self.moments[index];
        let after = self.moments.get(index + 1).unwrap_or(before);
        let temp = memory_dir();
        self.tape.restore(len, crash, temp.path());
        let mut disk = Disk::new_in_unopened(temp, self.disk.durability);
        let context = || format!("{crash:?} at {len} of {}", self.tape.len());
        let logs = disk.try_open().unwrap_or_else(|error| panic!("{}: {error}", context()));
        let files = scan_files(&disk.partition_path("t"));
        let in_page_cache = self.disk.durability == Durability::PageCache;
        let durable = match crash {
            Crash::Killed => before.version.end.min(after.version.end),
            // The end of the last write is what such a crash takes.
            Crash::Torn(_) if in_page_cache => 0,
            Crash::PowerLost | Crash::Reordered(_) if in_page_cache => 0,
            _ => before.durable.min(after.durable),
        };
        let is_restarted = after.version.batches.is_empty() && after.version.start > 0;
        let (start, end) = (before.version.start.max(after.version.start), files_end(&files));
        assert!(
            is_restarted || end.max(start) >= durable,
            "{}: ends at {end} instead of {durable}",
            context()
        );

        // It is one history: that of now as far as it is durable, and not a mixture.
        let versions = self.moments[..=(index + 1).min(self.moments.len() - 1)].iter().rev();
        let mut versions = versions.map(|moment| &moment.version);
        let is_one = files.is_empty()
            || versions.any(|version| {
                let first = version.batches.iter().position(|bytes| *bytes == files[0]);
                first.is_some_and(|first| version.batches[first..].starts_with(&files))
            });
        let bases = |batches: &[Vec<u8>]| -> Vec<_> {
            batches.iter().map(|b| (header(b).base_offset, header(b).leader_epoch.0)).collect()
        };
        assert!(is_one, "{}: {:?}", context(), bases(&files));
        for bytes in &files {
            let is_durable = header(bytes).last_offset() < durable && !is_restarted;
            assert!(
                !is_durable
                    || before.version.batches.contains(bytes)
                    || after.version.batches.contains(bytes)
            );
        }
        let Some(log) = logs.first() else {
            assert!(files.is_empty() && (durable <= start || is_restarted), "{}", context());
            return;
        };
        if log.is_damaged() {
            let read = log.read(log.start_offset(), Offset::MAX, 1, true);
            panic!("{}: {read:?}, {durable} are durable", context());
        }
        check_derived(log, &files, &context());
        let end = log.end_offset();
        // What was recovered goes on, and is recovered again.
        append(log, self.epoch + 1, self.some_batch(1))
            .unwrap_or_else(|error| panic!("{}: {error}", context()));
        disk.crash();
        let again = disk.open().remove(0);
        assert_eq!(again.end_offset(), end + 1, "{}", context());
    }
}

fn memory_dir() -> tempfile::TempDir {
    // Thousands of directories are made, and none has to survive anything.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// All batches of a partition, as they lie in its files.
fn scan_files(dir: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
    logs.sort();
    let mut all = Vec::new();
    for path in logs {
        let content = std::fs::read(&path).unwrap();
        for batch in batches(&content) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            all.push(batch.bytes.to_vec());
        }
    }
    all
}

fn files_end(files: &[Vec<u8>]) -> Offset {
    files.last().map_or(0, |last| header(last).next_offset())
}

fn replay(batches: &[Vec<u8>]) -> Producers {
    let mut producers = Producers::default();
    batches.iter().for_each(|bytes| producers.on_appended(&header(bytes), 1_000_000));
    producers
}

/// Lookups, epochs and producers say what a scan of the files says.
fn check_derived(log: &PartitionLog, files: &[Vec<u8>], context: &str) {
    let end = files_end(files).max(log.start_offset());
    assert_eq!(log.end_offset(), end, "{context}");
    let epoch = files.iter().map(|bytes| header(bytes).leader_epoch.0).max().unwrap_or(0);
    let model = Model::of(files.to_vec(), log.start_offset(), end, epoch);
    check(log, &model);
    let known = log.last_sequences();
    for (producer, last) in replay(files).last_sequences() {
        assert_eq!(known.get(&producer), Some(&last), "{context}: producer {producer}");
    }
    for (producer, last) in known {
        // Those that are not in the files any more are remembered from before the log start.
        let is_below = log.start_offset() > 0;
        let is_known = replay(files).last_sequences().get(&producer) == Some(&last);
        assert!(is_known || is_below, "{context}: producer {producer} is known from nowhere");
    }
}

fn run_crashes(steps: &[Step], durability: Durability, seed: u64) {
    let mut run = Run::new(durability);
    for step in steps {
        run.take(step);
    }
    let len = run.tape.len() as u64;
    for index in 0..12 {
        let at = (seed.wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % (len + 1);
        let at = usize::try_from(at).unwrap();
        let part = usize::try_from(seed.wrapping_add(index) % 1_000).unwrap();
        run.check_crash(at, Crash::Killed);
        run.check_crash(at, Crash::Torn(part));
        run.check_crash(at, Crash::PowerLost);
        run.check_crash(at, Crash::Reordered(seed.wrapping_add(index)));
    }
}

fn run_failure(steps: &[Step], fault: Fault) {
    let mut run = Run::new(Durability::Fsync);
    run.take(&Step::Append { records: 1 });
    run.tape.fail(fault);
    let mut failed: Option<Offset> = None;
    for step in steps {
        let appended = match *step {
            Step::Append { .. } | Step::AppendIdempotent { .. } => {
                append(&run.log, 0, run.some_batch(1)).map(|_| ())
            }
            Step::Truncate { percent } => {
                let end = run.log.end_offset();
                run.log.truncate_to(end - end * percent / 500).map(|_| ())
            }
            _ => {
                run.log.flush_soon();
                continue;
            }
        };
        let is_offline = !run.disk.dirs().offline().is_empty();
        match failed {
            Some(durable) => {
                assert!(matches!(appended, Err(AppendError::Storage(_))), "{appended:?}");
                assert!(run.log.durable_end_offset() <= durable, "acknowledged after a failure");
            }
            None if is_offline => failed = Some(run.log.durable_end_offset()),
            None => {}
        }
    }
    // What was acknowledged before the failure is there.
    let durable = run.log.durable_end_offset();
    for crash in [Crash::Killed, Crash::PowerLost] {
        let temp = memory_dir();
        run.tape.restore(run.tape.len(), crash, temp.path());
        let mut disk = Disk::new_in_unopened(temp, Durability::Fsync);
        let logs = disk.open();
        assert!(logs.first().map_or(0, |log| log.end_offset()) >= durable, "{crash:?}");
    }
}

fn cases() -> u32 {
    std::env::var("CRASH_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400,
        failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_durable_survives_every_crash(
        steps in proptest::collection::vec(step(), 1..40),
        seed in any::<u64>(),
    ) {
        run_crashes(&steps, Durability::Fsync, seed);
    }

    #[test]
    fn a_kill_loses_nothing_without_syncs_either(
        steps in proptest::collection::vec(step(), 1..40),
        seed in any::<u64>(),
    ) {
        run_crashes(&steps, Durability::PageCache, seed);
    }

    #[test]
    fn after_the_first_failure_nothing_is_appended_or_acknowledged(
        steps in proptest::collection::vec(step(), 10..60),
        kind in prop_oneof![
            Just(Kind::Create), Just(Kind::Write), Just(Kind::Truncate), Just(Kind::Sync),
            Just(Kind::Rename), Just(Kind::Remove),
        ],
        after in 0..6_usize,
        is_full in any::<bool>(),
    ) {
        let errno = if is_full { Errno::NOSPC } else { Errno::IO };
        run_failure(&steps, Fault { kind, after, errno, is_partial: is_full });
    }
}
