//! How the quorum of a node is opened, and what openraft is told of it.

use std::sync::Arc;
use std::time::Duration;

use super::directory::MetaDirectory;
use super::state_machine::Fault;
use crate::controller::LivenessConfig;
use crate::types::HostPort;

/// How the quorum of this node is opened.
#[derive(Debug)]
pub struct QuorumConfig {
    pub directory: MetaDirectory,
    /// Where other nodes reach this one.
    pub peer: HostPort,
    pub timing: Timing,
    /// A broker that has not been heard of for this long is fenced.
    pub broker_session: Duration,
    /// For topics that are created without a count.
    pub partition_count: i32,
    /// For topics that are created without a factor; `None`: min(3, active brokers).
    pub replication_factor: Option<i16>,
    /// How often leadership goes back to first replicas; `None`: never by itself.
    pub balance: Option<Duration>,
    /// A snapshot is made after this many entries; half of them stay in the log after it.
    pub snapshot_entries: u64,
    /// What happens when this node may not go on.
    pub fault: Fault,
}

impl QuorumConfig {
    /// With every default.
    pub fn new(directory: MetaDirectory, peer: HostPort) -> Self {
        Self {
            directory,
            peer,
            timing: Timing::DEFAULT,
            broker_session: LivenessConfig::default().session,
            partition_count: 1,
            replication_factor: None,
            balance: Some(Duration::from_secs(30)),
            snapshot_entries: 20_000,
            fault: Fault::exit(),
        }
    }
}

/// Raft's clocks. They must be the same on all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    pub heartbeat: Duration,
    pub election_min: Duration,
    pub election_max: Duration,
}

impl Timing {
    /// One data centre.
    pub const DEFAULT: Self = Self {
        heartbeat: Duration::from_millis(50),
        election_min: Duration::from_millis(150),
        election_max: Duration::from_millis(300),
    };
}

impl QuorumConfig {
    pub(super) fn raft(&self) -> Arc<openraft::Config> {
        let milliseconds =
            |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let config = openraft::Config {
            cluster_name: "kontiki".to_owned(),
            heartbeat_interval: milliseconds(self.timing.heartbeat),
            election_timeout_min: milliseconds(self.timing.election_min),
            election_timeout_max: milliseconds(self.timing.election_max),
            enable_pre_vote: Some(true),
            // The state machine is in memory: a leader that restarts has to be elected again (replication.md 1.7).
            enable_leader_restore: Some(false),
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(self.snapshot_entries),
            max_in_snapshot_log_to_keep: self.snapshot_entries / 2,
            purge_batch_size: (self.snapshot_entries / 4).clamp(1, 256),
            // Time for the last chunk to be saved; each chunk has its own, shorter one.
            install_snapshot_timeout: 60_000,
            // A node that comes back is noticed soon.
            backoff: "20ms 40ms 80ms ...200ms".to_owned(),
            ..openraft::Config::default()
        };
        Arc::new(config.validate().expect("timings are checked before"))
    }
}
