//! Kafka's protocol on the clients port: one file per API, thin over [`Broker`].
//!
//! A handler takes the decoded request and returns the response; `dispatch` decodes and encodes around it. What
//! several handlers need (who leads, refusals as error codes, default answers) is in `view` and `refusal`.

mod alter_configs;
mod alter_partition_reassignments;
mod api_versions;
mod connection;
mod create_partitions;
mod create_topics;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_log_dirs;
mod describe_topic_partitions;
mod dispatch;
mod elect_leaders;
mod fetch;
mod find_coordinator;
mod frames;
mod incremental_alter_configs;
mod init_producer_id;
mod list_offsets;
mod list_partition_reassignments;
mod metadata;
mod offset_for_leader_epoch;
mod output;
mod produce;
mod refusal;
mod view;

#[cfg(test)]
mod connection_test;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tracing::{debug, info};

use self::connection::{Connection, Ended};
use self::dispatch::Dispatcher;
use self::frames::Frames;
use super::ServerConfig;
use crate::broker::Broker;
use crate::controller::{ControllerReply, ControllerRequest, Refusal};

/// Who does what Kafka clients ask, until clients authenticate.
const PRINCIPAL: &str = "User:ANONYMOUS";

/// What every connection shares.
#[derive(Debug)]
pub(super) struct Front {
    broker: Arc<Broker>,
    config: Arc<ServerConfig>,
}

impl Front {
    pub(super) fn new(broker: Arc<Broker>, config: Arc<ServerConfig>) -> Arc<Self> {
        Arc::new(Self { broker, config })
    }

    pub(super) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Has the controller decide, and waits until every live broker serves the result.
    async fn admin(
        &self,
        request: ControllerRequest,
        timeout_ms: i32,
    ) -> Result<ControllerReply, Refusal> {
        self.broker.admin(PRINCIPAL, request, timeout(timeout_ms)).await
    }
}

/// A timeout as clients write it. Negative ones mean none.
fn timeout(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Serves one connection whose first bytes were read already, until it ends or `shutdown` turns true.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    first: [u8; 4],
    front: Arc<Front>,
    shutdown: watch::Receiver<bool>,
) {
    let frames = Frames::new(front.config.request_size_max, &first);
    let idle_max = front.config.idle_max;
    let connection = Connection::new(stream, frames, Dispatcher::new(front), idle_max, shutdown);
    match connection.run().await {
        ended @ (Ended::Refused(_) | Ended::Frame(_) | Ended::Output(_)) => {
            info!(%peer, "closed a client's connection: {ended}");
        }
        ended => debug!(%peer, "a client's connection ended: {ended}"),
    }
}
