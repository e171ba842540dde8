//! What a broker is started with.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Metrics;
use crate::metadata::config::Durability;
use crate::storage::CompactionConfig;
use crate::storage::RecoveryProgress;
use crate::types::Endpoints;

/// Everything about this broker that its operator chooses, and where it runs.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// As registered: where others reach this node.
    pub endpoints: Endpoints,
    pub rack: Option<String>,
    pub log_dirs: Vec<PathBuf>,
    /// Free bytes below which clients cannot write; `None`: what suits the file system.
    pub log_dirs_min_free: Option<u64>,
    /// Of topics that do not say themselves.
    pub durability: Durability,
    /// Told by the logs while they are opened.
    pub recovery: Arc<RecoveryProgress>,
    /// How often retention may look at partitions.
    pub retention_check_interval: Duration,
    pub compaction: CompactionConfig,
    /// The configuration of the process, by key: for display.
    pub static_configs: BTreeMap<String, String>,
    /// How often the active controller hears of this broker.
    pub heartbeat_interval: Duration,
    /// A controlled shutdown that has not moved all leaderships by then goes on without them.
    pub controlled_shutdown_max: Duration,
    /// An ISR member that was not caught up for so long is proposed for removal.
    pub replica_lag_max: Duration,
    /// Lifecycle and waiting for other nodes: never waits for a data disk (design D10).
    pub control: Handle,
    /// Replica streams: reads and writes partition logs inline.
    pub data: Handle,
    /// Registered by the caller, before or after the start.
    pub metrics: Metrics,
}
