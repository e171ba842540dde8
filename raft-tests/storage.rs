//! The sled store behind openraft's trait.

use std::path::Path;

use kontiki::quorum::log_store::LogStore;
use kontiki::quorum::raft::TypeConfig;
use kontiki::quorum::snapshot_store::SnapshotStore;
use kontiki::quorum::state_machine::{Fault, StateMachine};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
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
