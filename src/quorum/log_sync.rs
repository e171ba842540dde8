//! Group commit: one thread makes whatever was written durable, and then tells those who wait, in order.
//!
//! sled's own flush writes its buffer and asks the kernel to start; only `fdatasync` of its file makes it durable. While
//! one sync runs, further writes gather, and the next sync covers them all.
//!
//! Invariant: after the first failure nothing is ever reported durable again: what a failed fsync dropped cannot be
//! known, so it is not retried (design D9).

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use openraft::storage::IOFlushed;
use tokio::sync::oneshot;

use super::raft::TypeConfig;

/// Who waits for writes that are done already to become durable.
pub(super) enum Waiter {
    Append(IOFlushed<TypeConfig>),
    Caller(oneshot::Sender<io::Result<()>>),
    /// Nobody: durable soon is enough.
    Nobody,
}

/// How long a write that nobody waits for may stay in memory.
const SYNC_DELAY_MAX: Duration = Duration::from_millis(50);

/// Writes that wait for a sync. More than this blocks the writer, which is the back-pressure.
const WAITERS_MAX: usize = 4096;

/// The thread. Ends, after a last sync, when it is dropped.
#[derive(Debug)]
pub(super) struct LogSync {
    waiters: Option<SyncSender<Waiter>>,
    thread: Option<JoinHandle<()>>,
}

impl LogSync {
    pub(super) fn start(database: sled::Db, directory: &Path) -> io::Result<Self> {
        // Its own descriptor of sled's file: fdatasync works on the file, whoever wrote it.
        let file = File::options().write(true).open(directory.join("db"))?;
        // What an earlier life of this process flushed and did not sync, before anything is written after it.
        file.sync_data()?;
        let (sender, receiver) = sync_channel(WAITERS_MAX);
        let thread = thread::Builder::new()
            .name("kontiki-quorum-sync".to_owned())
            .spawn(move || run(&database, &file, &receiver))?;
        Ok(Self { waiters: Some(sender), thread: Some(thread) })
    }

    pub(super) fn wake(&self, waiter: Waiter) {
        let sender = self.waiters.as_ref().expect("present until dropped");
        // The thread lives as long as `self`; were it gone, whoever waits would see its waiter dropped.
        let _ = sender.send(waiter);
    }

    /// Returns when everything written before the call is durable.
    pub(super) async fn synced(&self) -> io::Result<()> {
        let (sender, receiver) = oneshot::channel();
        self.wake(Waiter::Caller(sender));
        receiver.await.unwrap_or_else(|_| Err(io::Error::other("the log store has stopped")))
    }
}

impl Drop for LogSync {
    fn drop(&mut self) {
        self.waiters = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was printed by the panic hook.
            let _ = thread.join();
        }
    }
}

fn run(database: &sled::Db, file: &File, waiters: &Receiver<Waiter>) {
    let mut failed: Option<io::Error> = None;
    let mut batch = Vec::new();
    while let Ok(first) = waiters.recv() {
        let mut urgent = !matches!(first, Waiter::Nobody);
        batch.push(first);
        while !urgent {
            match waiters.recv_timeout(SYNC_DELAY_MAX) {
                Ok(waiter) => {
                    urgent = !matches!(waiter, Waiter::Nobody);
                    batch.push(waiter);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        batch.extend(waiters.try_iter());
        if failed.is_none() {
            failed = sync(database, file).err();
        }
        for waiter in batch.drain(..) {
            let result = failed.as_ref().map_or(Ok(()), |error| Err(copy(error)));
            match waiter {
                Waiter::Append(callback) => callback.io_completed(result),
                Waiter::Caller(caller) => drop(caller.send(result)),
                Waiter::Nobody => {}
            }
        }
    }
}

fn sync(database: &sled::Db, file: &File) -> io::Result<()> {
    database.flush().map_err(|error| io::Error::other(error.to_string()))?;
    file.sync_data()?;
    // Writing to a file that was removed succeeds, and is worth nothing.
    if file.metadata()?.nlink() == 0 {
        return Err(io::Error::other("the metadata log was deleted while it was open"));
    }
    Ok(())
}

fn copy(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}
