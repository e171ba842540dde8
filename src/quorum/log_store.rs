//! The Raft log, the vote and the committed index, in sled.
//!
//! An entry is stored as chunks under `(index, chunk)`, each in a checksummed envelope that names its place. A chunk is
//! small because sled moves a tree node that outgrows a quarter of its segment into a file of its own that it never
//! syncs, and a node holds up to 16 values (`docs/decisions/0003-sled-and-openraft-as-used.md`).
//!
//! Invariant: all writes go through in order, and are reported only after `LogSync` made them durable; except the
//! committed index, which is a hint that the log itself can always restore. A read that fails a check is an error, and
//! an error of this store stops the process.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::OptionalSend;
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sled::{Batch, IVec, Tree};

use super::directory;
use super::log_sync::{LogSync, Waiter};
use super::raft::{Entry, LogId, TypeConfig, Vote};
use crate::codec::{self, Envelope};
use crate::types::time;

const CHUNK: Envelope =
    Envelope { what: "chunk of the metadata log", magic: *b"KTrl", version: 1, size_max: 1 << 16 };
const STATE: Envelope =
    Envelope { what: "state of the metadata log", magic: *b"KTrs", version: 1, size_max: 1 << 10 };

/// Bytes of an entry in one chunk. 16 of them, and their envelopes, stay below sled's limit of 128 KiB for a node.
const CHUNK_SIZE: usize = 4 << 10;

/// Largest entry that is read back. Far above what one turn of the controller may produce.
const ENTRY_SIZE_MAX: u64 = 256 << 20;

/// Bytes of entries in one message of replication, unless a single entry is larger.
const READ_SIZE_MAX: usize = 1 << 20;

/// sled's page cache. Entries are read once or twice, soon after they were written.
const CACHE_SIZE: u64 = 2 << 20;

const VOTE: &[u8] = b"vote";
const COMMITTED: &[u8] = b"committed";
const PURGED: &[u8] = b"purged";

/// One piece of an entry, and where it belongs.
#[derive(Serialize, Deserialize)]
struct Chunk {
    index: u64,
    number: u32,
    count: u32,
    bytes: Vec<u8>,
}

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Tree,
    state: Tree,
    /// Bytes of entries since somebody asked.
    appended: AtomicU64,
    /// What `state` holds, so that reading it costs nothing.
    cached: Mutex<Cached>,
    sync: LogSync,
}

#[derive(Debug, Clone, Default)]
struct Cached {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
}

impl LogStore {
    /// Opens the store, or makes an empty one.
    pub fn open(path: &Path) -> Result<Self, directory::Error> {
        let damaged = |reason: String| directory::Error::damaged(path, reason);
        let database = open_database(path.to_owned()).map_err(damaged)?;
        let open = || -> io::Result<Self> {
            let log = database.open_tree("log").map_err(failed)?;
            let state = database.open_tree("state").map_err(failed)?;
            let cached = Cached {
                vote: read_state(&state, VOTE)?,
                committed: read_state(&state, COMMITTED)?,
                purged: read_state(&state, PURGED)?,
            };
            let sync = LogSync::start(database.clone(), path)?;
            let (appended, cached) = (AtomicU64::new(0), Mutex::new(cached));
            let shared = Shared { log, state, appended, cached, sync };
            Ok(Self { shared: Arc::new(shared) })
        };
        let store = open().map_err(|error| damaged(error.to_string()))?;
        store.shared.verify().map_err(damaged)?;
        Ok(store)
    }

    /// The last entry that a snapshot must hold, because the log does not any more.
    pub fn purged(&self) -> Option<LogId> {
        self.shared.cached.lock().purged
    }

    /// Reads every entry. The index of the last one.
    pub(super) fn check(&self) -> io::Result<Option<u64>> {
        let mut last = None;
        loop {
            let next = last.map_or(0, |last| last + 1);
            match self.shared.read(next.., READ_SIZE_MAX)?.last() {
                Some(entry) => last = Some(entry.log_id.index),
                None => return Ok(last),
            }
        }
    }

    /// Everything written so far is durable when this returns.
    pub async fn synced(&self) -> io::Result<()> {
        self.shared.sync.synced().await
    }

    /// Bytes of entries that were appended since the last call that returned `true`, which is when they exceed this.
    pub(super) fn has_appended(&self, size: u64) -> bool {
        let has = self.shared.appended.load(Ordering::Relaxed) > size;
        if has {
            self.shared.appended.store(0, Ordering::Relaxed);
        }
        has
    }
}

/// sled reports some damage by an error and some by a panic. Both are a refusal to start.
fn open_database(path: PathBuf) -> Result<sled::Db, String> {
    let config = sled::Config::new().path(&path).cache_capacity(CACHE_SIZE).flush_every_ms(None);
    #[cfg(panic = "abort")]
    {
        let refusal = directory::Error::damaged(&path, "the log cannot be recovered");
        std::panic::set_hook(Box::new(move |_| {
            tracing::error!("{refusal}");
            std::process::exit(1);
        }));
    }
    let opened = catch_unwind(AssertUnwindSafe(|| open_when_free(&config)));
    #[cfg(panic = "abort")]
    drop(std::panic::take_hook());
    match opened {
        Ok(opened) => opened.map_err(|error| error.to_string()),
        Err(_) => Err("the log cannot be recovered".to_owned()),
    }
}

/// The directory's own lock is held, so whoever holds the store's is an earlier life in this process, which is about to
/// let go: the threads of sled end a moment after their last handle.
fn open_when_free(config: &sled::Config) -> sled::Result<sled::Db> {
    const PATIENCE: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_millis(5);
    let deadline = time::now() + PATIENCE;
    loop {
        match config.open() {
            // sled hides the kind of the error that it got in a text of its own.
            Err(sled::Error::Io(error))
                if error.to_string().contains("could not acquire lock")
                    && time::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            opened => return opened,
        }
    }
}

impl Shared {
    /// What a store that lost a part looks like. Called once, when it is opened.
    fn verify(&self) -> Result<(), String> {
        let cached = self.cached.lock().clone();
        let next = cached.purged.map_or(0, |purged| purged.index + 1);
        // A crash while purging leaves entries behind that the mark says are gone.
        self.remove(..next).map_err(|error| error.to_string())?;
        let first = self.first_index().map_err(|error| error.to_string())?;
        let last = self.last_entry().map_err(|error| error.to_string())?;
        let last_index = last.as_ref().map(|entry| entry.log_id.index);
        if first.is_some_and(|first| first != next) {
            return Err(format!("entry {next} is missing before {first:?}"));
        }
        // The first entry of a new cluster is written before the first vote; any other comes with one.
        if cached.vote.is_none() && last_index.is_some_and(|last| last > 0) {
            return Err("the vote is missing".to_owned());
        }
        Ok(())
    }

    fn first_index(&self) -> io::Result<Option<u64>> {
        Ok(match self.log.first().map_err(failed)? {
            Some((key, _)) => Some(parse_key(&key)?.0),
            None => None,
        })
    }

    fn last_entry(&self) -> io::Result<Option<Entry>> {
        let Some((key, _)) = self.log.last().map_err(failed)? else { return Ok(None) };
        let (index, _) = parse_key(&key)?;
        let mut entries = self.read(index..=index, usize::MAX)?;
        Ok(entries.pop())
    }

    /// Entries of the range, in order, until they are `size_max` bytes together; at least one if there is one.
    fn read(&self, range: impl RangeBounds<u64>, size_max: usize) -> io::Result<Vec<Entry>> {
        let Some((from, to)) = key_range(&range) else { return Ok(Vec::new()) };
        let mut entries = Vec::new();
        let (mut size, mut bytes, mut expected) = (0, Vec::new(), 0_u32);
        for item in self.log.range(from..to) {
            let (key, value) = item.map_err(failed)?;
            let (index, number) = parse_key(&key)?;
            let chunk: Chunk = CHUNK.open(&value).map_err(corrupt)?;
            if (chunk.index, chunk.number) != (index, number) || number != expected {
                return Err(io::Error::other(format!(
                    "chunk {number} of entry {index} is misplaced"
                )));
            }
            bytes.extend_from_slice(&chunk.bytes);
            expected += 1;
            if expected < chunk.count {
                continue;
            }
            let entry: Entry = codec::decode("entry of the metadata log", &bytes, ENTRY_SIZE_MAX)
                .map_err(corrupt)?;
            if entry.log_id.index != index {
                return Err(io::Error::other(format!("entry {index} is misplaced")));
            }
            size += bytes.len();
            entries.push(entry);
            bytes.clear();
            expected = 0;
            if size >= size_max {
                return Ok(entries);
            }
        }
        if expected != 0 {
            return Err(io::Error::other("the last entry of the metadata log is incomplete"));
        }
        Ok(entries)
    }

    /// Removes entries of the range, in one step for each thousand of keys, from the front.
    fn remove(&self, range: impl RangeBounds<u64>) -> io::Result<()> {
        let Some((from, to)) = key_range(&range) else { return Ok(()) };
        let keys =
            self.log.range(from..to).keys().collect::<Result<Vec<_>, _>>().map_err(failed)?;
        for keys in keys.chunks(1000) {
            let mut batch = Batch::default();
            keys.iter().for_each(|key| batch.remove(key));
            self.log.apply_batch(batch).map_err(failed)?;
        }
        Ok(())
    }

    fn write_state<T: Serialize>(&self, key: &[u8], value: &T) -> io::Result<()> {
        self.state.insert(key, STATE.seal(value)).map_err(failed)?;
        Ok(())
    }
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> io::Result<Vec<Entry>> {
        self.shared.read(range, usize::MAX)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.shared.read(start..end, READ_SIZE_MAX)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.shared.cached.lock().vote)
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        let last_purged_log_id = self.shared.cached.lock().purged;
        let last = self.shared.last_entry()?.map(|entry| entry.log_id());
        Ok(LogState { last_purged_log_id, last_log_id: last.or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        self.shared.write_state(VOTE, vote)?;
        self.shared.sync.synced().await?;
        self.shared.cached.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        match &committed {
            Some(committed) => self.shared.write_state(COMMITTED, committed)?,
            None => drop(self.shared.state.remove(COMMITTED).map_err(failed)?),
        }
        self.shared.cached.lock().committed = committed;
        // Not waited for: entries are durable on a quorum before they are committed, and that is what counts.
        self.shared.sync.wake(Waiter::Nobody);
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.shared.cached.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut batch = Batch::default();
        let mut size = 0;
        for entry in entries {
            for (key, value) in chunks(&entry) {
                size += value.len() as u64;
                batch.insert(&key, value);
            }
        }
        self.shared.appended.fetch_add(size, Ordering::Relaxed);
        self.shared.log.apply_batch(batch).map_err(failed)?;
        self.shared.sync.wake(Waiter::Append(callback));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        let first = last_log_id.map_or(0, |last| last.index + 1);
        self.shared.remove(first..)?;
        self.shared.sync.synced().await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        // The mark first: entries below it are removed again at the next start if a crash comes between.
        self.shared.write_state(PURGED, &log_id)?;
        self.shared.cached.lock().purged = Some(log_id);
        self.shared.remove(..=log_id.index)?;
        self.shared.sync.wake(Waiter::Nobody);
        Ok(())
    }
}

type Key = [u8; 12];

fn key(index: u64, chunk: u32) -> Key {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&index.to_be_bytes());
    key[8..].copy_from_slice(&chunk.to_be_bytes());
    key
}

fn parse_key(key: &IVec) -> io::Result<(u64, u32)> {
    let key: Key = key
        .as_ref()
        .try_into()
        .map_err(|_| io::Error::other("a key of the metadata log is malformed"))?;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = key;
    Ok((u64::from_be_bytes([a, b, c, d, e, f, g, h]), u32::from_be_bytes([i, j, k, l])))
}

/// First key of the range and first key after it; `None` when it is empty.
fn key_range(range: &impl RangeBounds<u64>) -> Option<(Key, Key)> {
    let from = match range.start_bound() {
        Bound::Included(index) => *index,
        Bound::Excluded(index) => index.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(index) => index.saturating_add(1),
        Bound::Excluded(index) => *index,
        Bound::Unbounded => u64::MAX,
    };
    (from < to).then(|| (key(from, 0), key(to, 0)))
}

fn chunks(entry: &Entry) -> Vec<(Key, Vec<u8>)> {
    let bytes = codec::encode(entry);
    let index = entry.log_id.index;
    let pieces = bytes.chunks(CHUNK_SIZE);
    let count = u32::try_from(pieces.len()).expect("an entry is far below 2^32 chunks");
    (0..count)
        .zip(pieces)
        .map(|(number, piece)| {
            let chunk = Chunk { index, number, count, bytes: piece.to_owned() };
            (key(index, number), CHUNK.seal(&chunk))
        })
        .collect()
}

fn read_state<T: DeserializeOwned>(state: &Tree, key: &[u8]) -> io::Result<Option<T>> {
    match state.get(key).map_err(failed)? {
        Some(bytes) => STATE.open(&bytes).map(Some).map_err(corrupt),
        None => Ok(None),
    }
}

fn failed(error: sled::Error) -> io::Error {
    match error {
        sled::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn corrupt(error: codec::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
