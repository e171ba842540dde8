//! Writes the history while the run goes on: what is on disk when this process dies can still be judged.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::checker::Event;
use crate::types::time;

/// Share it by cloning. Times are microseconds since it was made.
#[derive(Debug, Clone)]
pub(super) struct Recorder {
    started: Instant,
    file: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    file: BufWriter<File>,
    /// The first failure: a history with holes must not be judged.
    failed: Option<io::Error>,
}

impl Recorder {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = BufWriter::new(File::create(path)?);
        let state = State { file, failed: None };
        Ok(Self { started: time::now(), file: Arc::new(Mutex::new(state)) })
    }

    pub(super) fn now_us(&self) -> u64 {
        u64::try_from((time::now() - self.started).as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn record(&self, event: &Event) {
        let mut state = self.file.lock();
        let written = serde_json::to_writer(&mut state.file, event).map_err(io::Error::from);
        let written = written.and_then(|()| state.file.write_all(b"\n"));
        if let Err(error) = written {
            state.failed.get_or_insert(error);
        }
    }

    /// Everything is in the file, or why it is not.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.file.lock();
        match state.failed.take() {
            Some(error) => Err(error),
            None => state.file.flush(),
        }
    }
}
