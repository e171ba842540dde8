//! A broker: the partitions of this node, what moves them, and what clients may do with them.
//!
//! [`Broker`] is the facade that the front ends (`server`, `admin`) call. Below it: the registry of partitions, the
//! reconciler that makes them match the metadata image, the replica streams that move records between brokers, the
//! sender of ISR changes, and the lifecycle that registers this node and keeps it alive in the eyes of the controller.
//!
//! ```text
//! control runtime     lifecycle (register, heartbeat, controlled shutdown), waiting for other brokers
//! partitions thread   reconciler, ISR changes, ticks: may wait for a partition's lock, so for its disk
//! data runtime        replica streams, requests of clients
//! flusher threads     what became durable (see `storage`)
//! ```
//! Invariant: nothing here decides what the metadata says. The image does, and partitions follow it in its order.

mod admin;
mod alter_partition;
#[cfg(test)]
mod cluster_test;
mod compaction_metrics;
mod config;
mod control_plane;
mod departures;
mod describe;
mod events;
mod lifecycle;
mod metrics;
mod offline;
mod outbox;
mod partition;
mod previous_life;
mod producer_ids;
mod publication;
mod purgatory;
mod reconciler;
mod registry;
mod serving;
mod start;
mod stream_follower;
mod stream_leader;
#[cfg(test)]
mod testing;
mod ticks;
mod visibility;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;

pub use config::BrokerConfig;
pub use control_plane::{ControlPlane, Unanswered};
pub use metrics::Metrics;
pub use outbox::Outbox;
pub use partition::*;
pub use purgatory::{FetchWaiter, ProduceResult, ProduceWaiter};
pub use start::Error;

use self::departures::Departures;
use self::lifecycle::{Phase, Signals};
use self::producer_ids::ProducerIds;
use self::publication::Publication;
use self::registry::Registry;
use self::start::PartitionsThread;
use self::stream_leader::LeaderStreams;
use self::visibility::Visibility;
use crate::metadata::{BrokerImage, MetadataImage};
use crate::net::{FrameReader, FrameWriter, Identity};
use crate::protocol::native::{NodeHello, QuorumStatus};
use crate::storage::LogDirs;
use crate::types::{LeaderEpoch, NodeId, Offset, TopicIdPartition};

/// This node's broker.
pub struct Broker {
    identity: Arc<Identity>,
    control: Arc<dyn ControlPlane>,
    publication: Arc<Publication>,
    registry: Arc<Registry>,
    departures: Arc<Departures>,
    signals: Arc<Signals>,
    producer_ids: ProducerIds,
    visibility: Visibility,
    logs: LogDirs,
    static_configs: BTreeMap<String, String>,
    metrics: Metrics,
    leader_streams: Arc<LeaderStreams>,
    data: Handle,
    /// Until the broker is shut down.
    partitions_thread: Mutex<Option<PartitionsThread>>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("node_id", &self.node_id()).finish_non_exhaustive()
    }
}

/// A fetch of a client: waits until `bytes_min` are there or `wait` has passed.
#[derive(Debug, Clone)]
pub struct FetchQuery {
    pub wait: Duration,
    pub bytes_min: usize,
    pub bytes_max: usize,
    pub entries: Vec<FetchPartition>,
}

#[derive(Debug, Clone, Copy)]
pub struct FetchPartition {
    pub partition: TopicIdPartition,
    /// As the client knows it; NONE where it does not.
    pub leader_epoch: LeaderEpoch,
    /// Of the last record the client has; NONE where it does not know.
    pub last_fetched_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    pub bytes_max: usize,
}

impl Broker {
    pub fn node_id(&self) -> NodeId {
        self.identity.node_id
    }

    /// As this node introduces itself.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The published image: what this broker's partitions are being brought in line with.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.publication.image()
    }

    /// The published image for a client that asks where to go. Waits a moment for the fence of a broker that seems to
    /// have died just now.
    pub async fn settled_image(&self) -> Arc<MetadataImage> {
        let has_others = |image: &MetadataImage| image.brokers.len() > 1;
        if self.publication.with_image(has_others) {
            self.departures.settled(&self.publication).await;
        }
        self.image()
    }

    /// Whether clients may be told of the broker: it is live, or was until a moment ago.
    pub fn is_listed(&self, broker: &BrokerImage) -> bool {
        !broker.fenced || self.departures.is_lingering(broker.registration.node_id)
    }

    /// The replica that this broker holds.
    pub fn partition(&self, id: TopicIdPartition) -> Option<Arc<Partition>> {
        self.registry.get(id)
    }

    pub fn quorum_status(&self) -> QuorumStatus {
        self.control.status()
    }

    /// Whether clients can be sent here; `Err` says why not.
    pub fn readiness(&self) -> Result<(), String> {
        if self.logs.is_all_offline()
            && let Some((dir, error)) = self.logs.offline().first()
        {
            return Err(format!("log directory {} is offline: {error}", dir.display()));
        }
        match self.signals.phase() {
            Phase::Registering { refused: None } => {
                Err("not registered yet: no active controller has answered".to_owned())
            }
            Phase::Registering { refused: Some(reason) } => {
                Err(format!("the controller refused the registration: {reason}"))
            }
            Phase::CatchingUp => Err("catching up with the cluster's metadata".to_owned()),
            Phase::Fenced => Err("fenced by the active controller".to_owned()),
            Phase::Running if !self.is_unfenced() => {
                Err("waiting for the metadata that unfences this broker".to_owned())
            }
            Phase::Running => Ok(()),
            Phase::Unheard => Err("no active controller answers heartbeats".to_owned()),
            Phase::Stopping | Phase::Stopped => Err("shutting down".to_owned()),
        }
    }

    fn is_unfenced(&self) -> bool {
        self.publication
            .with_image(|image| image.broker(self.node_id()).is_some_and(|broker| !broker.fenced))
    }

    /// Takes over the connection of a follower.
    pub fn on_replica_stream(&self, node: NodeHello, reader: FrameReader, writer: FrameWriter) {
        self.data.spawn(self.leader_streams.clone().serve(node, reader, writer));
    }
}
