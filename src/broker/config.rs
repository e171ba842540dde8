//! What a broker is started with.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::types::Endpoints;

/// Everything about this broker that its operator chooses.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// As registered: where others reach this node.
    pub endpoints: Endpoints,
    pub rack: Option<String>,
    /// Lifecycle and waiting for other nodes: never waits for a data disk (design D10).
    pub control: Handle,
    /// Replica streams: reads and writes partition logs inline.
    pub data: Handle,
    /// How often the active controller hears of this broker.
    pub heartbeat_interval: Duration,
    /// A controlled shutdown that has not moved all leaderships by then goes on without them.
    pub controlled_shutdown_max: Duration,
    /// An ISR member that was not caught up for so long is proposed for removal.
    pub replica_lag_max: Duration,
}

impl BrokerConfig {
    /// Defaults of [`BrokerConfig::heartbeat_interval`], `controlled_shutdown_max` and `replica_lag_max`.
    pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(100);
    pub const CONTROLLED_SHUTDOWN_MAX: Duration = Duration::from_secs(10);
    pub const REPLICA_LAG_MAX: Duration = Duration::from_secs(10);
}
