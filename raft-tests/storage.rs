//! The sled store behind openraft's trait: the suite, and what is left after a crash.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kontiki::metadata::{BATCH_VERSION, MetadataBatch, MetadataRecord};
use kontiki::quorum::log_store::LogStore;
use kontiki::quorum::raft::{Entry, Proposal, TypeConfig, Vote};
use kontiki::quorum::snapshot_store::SnapshotStore;
use kontiki::quorum::state_machine::{Fault, StateMachine};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, RaftLogReader, RaftLogStorage};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use openraft::{LogId, StorageError};
use tempfile::TempDir;

struct Builder;

fn open(path: &Path) -> (LogStore, StateMachine) {
    let log = LogStore::open(&path.join("log")).expect("an empty or sound log");
    let snapshots = SnapshotStore::open(&path.join("snapshots")).expect("no or a sound snapshot");
    (log, StateMachine::new(snapshots, Fault::new(|reason| panic!("{reason}"))))
}

impl StoreBuilder<TypeConfig, LogStore, StateMachine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, StateMachine), StorageError<TypeConfig>> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (log, state_machine) = open(directory.path());
        Ok((directory, log, state_machine))
    }
}

#[tokio::test]
async fn openraft_s_suite_passes_on_our_store() {
    Suite::test_all(Builder).await.expect("every test of the suite");
}

/// An entry of about `size` bytes that nobody will replay.
fn entry(index: u64, size: usize) -> Entry {
    let value = Some("x".repeat(size));
    let record = MetadataRecord::Config {
        resource: kontiki::types::ConfigResource::Cluster,
        key: index.to_string(),
        value,
    };
    let batch = MetadataBatch {
        version: BATCH_VERSION,
        basis: index,
        controller_epoch: 1,
        time_ms: 0,
        causes: Vec::new(),
        records: vec![record],
    };
    Entry::new_normal(LogId::new(1.into(), index), Proposal(Arc::new(batch)))
}

async fn append(log: &mut LogStore, entries: impl IntoIterator<Item = Entry> + Send) {
    let (sender, receiver) = TypeConfig::oneshot();
    let entries: Vec<_> = entries.into_iter().collect();
    log.append(entries, IOFlushed::signal(sender)).await.expect("appended");
    receiver.await.expect("reported").expect("durable");
}

async fn entries(log: &mut LogStore) -> Vec<Entry> {
    log.try_get_log_entries(..).await.expect("a sound log")
}

/// The database file as a page cache would hold it now: what `kill -9` leaves behind.
fn database_file(path: &Path) -> Vec<u8> {
    fs::read(path.join("log").join("db")).expect("sled's file")
}

/// A directory like `path`, with this database file.
fn crashed(path: &Path, database: &[u8]) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    let log = copy.path().join("log");
    fs::create_dir_all(log.join("blobs")).expect("made");
    fs::copy(path.join("log").join("conf"), log.join("conf")).expect("copied");
    fs::write(log.join("db"), database).expect("written");
    copy
}

#[tokio::test]
async fn large_entries_come_back_and_nothing_goes_to_files_that_are_never_synced() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let sizes = [10, 4_000, 4_096, 70_000, 1_500_000, 10, 300_000, 5_000];
    let mut wanted = Vec::new();
    {
        let (mut log, _) = open(directory.path());
        log.save_vote(&Vote::new_committed(1, 1)).await.expect("saved");
        for round in 0..5 {
            let batch: Vec<_> = (0..sizes.len())
                .map(|i| entry((round * sizes.len() + i) as u64, sizes[i]))
                .collect();
            append(&mut log, batch.clone()).await;
            wanted.extend(batch);
        }
        assert_eq!(entries(&mut log).await, wanted);
        let blobs = fs::read_dir(directory.path().join("log/blobs")).expect("sled's directory");
        assert_eq!(blobs.count(), 0, "sled moved a node into a file of its own");
    }
    let (mut log, _) = open(directory.path());
    assert_eq!(entries(&mut log).await, wanted);
    let limited = log.limited_get_log_entries(0, 40).await.expect("read");
    assert_eq!(limited, wanted[..limited.len()]);
    assert_eq!(limited.len(), 5, "a message ends after the entry that fills it");
}

#[tokio::test]
async fn what_was_reported_durable_survives_kill_at_any_moment() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut log, _) = open(directory.path());
    log.save_vote(&Vote::new_committed(1, 1)).await.expect("saved");
    let mut wanted = Vec::new();
    for index in 0..60 {
        let next = entry(index, if index % 7 == 0 { 30_000 } else { 200 });
        append(&mut log, [next.clone()]).await;
        wanted.push(next);
        if index % 6 == 5 {
            let killed = crashed(directory.path(), &database_file(directory.path()));
            let (mut log, _) = open(killed.path());
            assert_eq!(entries(&mut log).await, wanted);
            assert_eq!(log.read_vote().await.expect("read"), Some(Vote::new_committed(1, 1)));
        }
    }
}

/// Numbers that look random and depend on the seed alone.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// At least 0 and less than `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % limit as u64).expect("less than a usize")
    }
}

/// What a power loss may leave: every page that changed since the last sync is old or new, and the file is cut
/// anywhere in what was added.
fn torn(synced: &[u8], later: &[u8], dice: &mut Dice) -> Vec<u8> {
    const PAGE: usize = 4096;
    let added = later.len() - synced.len();
    let size = synced.len() + dice.below(added + 1);
    let mut torn = later[..size].to_vec();
    for (number, page) in torn.chunks_mut(PAGE).enumerate() {
        if dice.below(2) == 0 {
            let from = number * PAGE;
            for (at, byte) in page.iter_mut().enumerate() {
                *byte = synced.get(from + at).copied().unwrap_or(0);
            }
        }
    }
    torn
}

#[tokio::test]
async fn what_was_reported_durable_survives_power_loss() {
    for seed in 1..=12_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (mut log, _) = open(directory.path());
        log.save_vote(&Vote::new_committed(1, 1)).await.expect("saved");
        let mut index = 0;
        let mut batch = |dice: &mut Dice| -> Vec<Entry> {
            let count = dice.roll() % 40 + 1;
            let batch = (index..index + count)
                .map(|index| entry(index, if dice.below(9) == 0 { 60_000 } else { 300 }))
                .collect();
            index += count;
            batch
        };
        let mut wanted = Vec::new();
        for _ in 0..=dice.below(6) {
            let durable = batch(&mut dice);
            append(&mut log, durable.clone()).await;
            wanted.extend(durable);
        }
        let synced = database_file(directory.path());
        append(&mut log, batch(&mut dice)).await;
        let later = database_file(directory.path());
        for round in 0..6 {
            let lost = crashed(directory.path(), &torn(&synced, &later, &mut dice));
            let (mut log, _) = open(lost.path());
            let found = entries(&mut log).await;
            assert!(found.len() >= wanted.len(), "seed {seed}, round {round}: an entry is lost");
            assert_eq!(found[..wanted.len()], wanted, "seed {seed}, round {round}");
            for (at, entry) in found.iter().enumerate() {
                assert_eq!(entry.log_id.index, at as u64, "seed {seed}, round {round}: a hole");
            }
        }
    }
}

#[tokio::test]
async fn truncation_and_purging_are_remembered() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    {
        let (mut log, _) = open(directory.path());
        log.save_vote(&Vote::new_committed(1, 1)).await.expect("saved");
        append(&mut log, (0..100).map(|index| entry(index, 6_000))).await;
        log.truncate_after(Some(LogId::new(1.into(), 79))).await.expect("truncated");
        log.purge(LogId::new(1.into(), 19)).await.expect("purged");
        log.save_committed(Some(LogId::new(1.into(), 50))).await.expect("saved");
        log.synced().await.expect("synced");
    }
    let (mut log, _) = open(directory.path());
    let state = log.get_log_state().await.expect("read");
    assert_eq!(state.last_purged_log_id, Some(LogId::new(1.into(), 19)));
    assert_eq!(state.last_log_id, Some(LogId::new(1.into(), 79)));
    assert_eq!(log.read_committed().await.expect("read"), Some(LogId::new(1.into(), 50)));
    let indexes: Vec<_> = entries(&mut log).await.iter().map(|e| e.log_id.index).collect();
    assert_eq!(indexes, (20..80).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_log_that_is_deleted_under_a_living_node_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (mut log, _) = open(directory.path());
    log.save_vote(&Vote::new_committed(1, 1)).await.expect("saved");
    fs::remove_dir_all(directory.path().join("log")).expect("removed");
    let refused = log.save_vote(&Vote::new_committed(2, 1)).await.expect_err("deleted");
    assert!(refused.to_string().contains("was deleted"), "{refused}");
    assert!(log.save_vote(&Vote::new_committed(3, 1)).await.is_err(), "a failure is for ever");
}

/// Every file of a directory, to be put back.
fn files(path: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for item in fs::read_dir(path)? {
        let item = item?;
        if item.file_type()?.is_file() {
            files.insert(item.path(), fs::read(item.path())?);
        }
    }
    Ok(files)
}

#[tokio::test]
async fn a_damaged_log_is_refused_with_a_sentence_or_still_whole() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let wanted: Vec<_> = (0..50).map(|index| entry(index, 3_000)).collect();
    {
        let (mut log, _) = open(directory.path());
        log.save_vote(&Vote::new_committed(1, 1)).await.expect("saved");
        append(&mut log, wanted.clone()).await;
    }
    let path = directory.path().join("log");
    let sound = files(&path).expect("read");
    let size = sound[&path.join("db")].len();
    let mut refused = 0;
    for round in 0..40 {
        // A byte of the part that holds data, in another place each time.
        let at = (round * 7919 + 100) % size.min(160_000);
        let mut damaged = sound[&path.join("db")].clone();
        damaged[at] ^= 0x5a;
        for (path, bytes) in &sound {
            fs::write(path, bytes).expect("restored");
        }
        fs::write(path.join("db"), damaged).expect("written");
        match LogStore::open(&path) {
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("restore the metadata directory"), "{error}");
            }
            Ok(mut log) => {
                // What is read is checked, so it is whole, or reading is an error that stops the node.
                if let Ok(found) = log.try_get_log_entries(..).await {
                    let kept = found.len().min(wanted.len());
                    assert_eq!(found[..kept], wanted[..kept], "byte {at} changed an entry");
                }
            }
        }
    }
    println!("{refused} of 40 damaged logs were refused when they were opened");
}
