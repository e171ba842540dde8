//! A broker: the partitions of this node, what moves them, and what clients may do with them.
//!
//! [`Broker`] is the facade that the front ends (`server`, `admin`) call. Below it: the registry of partitions, the
//! reconciler that makes them match the metadata image, the replica streams that move records between brokers, the
//! sender of ISR changes, and the lifecycle that registers this node and keeps it alive in the eyes of the controller.
//!
//! Invariant: nothing here decides what the metadata says. The image does, and partitions follow it in its order.

mod config;
mod control_plane;
mod lifecycle;
mod outbox;
mod partition;
mod producer_ids;
mod publication;
mod purgatory;
#[cfg(test)]
mod testing;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;

pub use config::BrokerConfig;
pub use control_plane::{ControlPlane, Unanswered};
pub use outbox::Outbox;
pub use partition::*;
pub use purgatory::{FetchWaiter, ProduceResult, ProduceWaiter};

use crate::controller::{ControllerReply, ControllerRequest, Refusal};
use crate::metadata::MetadataImage;
use crate::protocol::native::{
    ConfigView, ListedOffset, OffsetQuery, PartitionError, Produced, QuorumStatus,
};
use crate::types::{ConfigResource, LeaderEpoch, Offset, ProducerId, TopicIdPartition};

/// This node's broker.
#[derive(Debug)]
pub struct Broker {}

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
    /// The published image: what this broker's partitions are being brought in line with.
    pub fn image(&self) -> Arc<MetadataImage> {
        todo!()
    }

    /// Appends each batch to its partition before it returns; the future completes when all of them count as written
    /// under `acks` (-1, 0 or 1), or have failed, or `timeout` has passed. Results are in the order of the entries.
    pub fn produce(
        &self,
        entries: Vec<(TopicIdPartition, BytesMut)>,
        acks: i16,
        timeout: Duration,
    ) -> impl Future<Output = Vec<Result<Produced, PartitionError>>> + Send + 'static {
        let _ = (entries, acks, timeout);
        async { todo!() }
    }

    pub fn list_offset(
        &self,
        partition: TopicIdPartition,
        query: OffsetQuery,
        leader_epoch: LeaderEpoch,
    ) -> Result<ListedOffset, PartitionError> {
        let _ = (partition, query, leader_epoch);
        todo!()
    }

    /// A producer id that nobody had before, and its first epoch.
    pub async fn init_producer_id(&self) -> Result<(ProducerId, i16), Refusal> {
        todo!()
    }

    /// Asks the active controller, wherever it is, and waits until every live broker serves the result.
    pub async fn admin(
        &self,
        principal: &str,
        request: ControllerRequest,
        timeout: Duration,
    ) -> Result<ControllerReply, Refusal> {
        let _ = (principal, request, timeout);
        todo!()
    }

    pub fn quorum_status(&self) -> QuorumStatus {
        todo!()
    }

    /// Whether clients can be sent here; `Err` says why not.
    pub fn readiness(&self) -> Result<(), String> {
        todo!()
    }

    pub fn describe_configs(&self, resource: &ConfigResource) -> Result<Vec<ConfigView>, Refusal> {
        let _ = resource;
        todo!()
    }

    pub fn register_metrics(&self, registry: &mut prometheus_client::registry::Registry) {
        let _ = registry;
        todo!()
    }

    /// Moves leaderships away, then closes the logs cleanly. Partitions are served until they have moved.
    pub async fn shut_down(&self) {
        todo!()
    }
}
