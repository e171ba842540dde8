//! The follower's side of replica streams: one connection per leader broker, carrying all partitions that follow it
//! (design D6).
//!
//! The reconciler says which partitions follow whom. The stream subscribes them, applies what is pushed, and
//! acknowledges: at once what counts as stored already, the rest when the flusher says so, all partitions of a flush
//! round in one frame. A subscription that ended is made again under a new slot.
//!
//! Connections are kept to every unfenced broker, followed or not, so that a change of leaders finds them open.
//!
//! Invariant: an acknowledgement holds what the partition said under its lock for exactly that slot, so progress made
//! under one leadership is never reported under another (18).

mod connection;
mod subscriptions;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use self::connection::Stream;
use super::metrics::Metrics;
use super::partition::Partition;
use crate::net::Peers;
use crate::types::{HostPort, IncarnationId, NodeId, TopicIdPartition};

/// All streams of this broker on which it follows.
#[derive(Debug)]
pub(super) struct FollowerStreams {
    peers: Peers,
    data: Handle,
    metrics: Metrics,
    by_leader: Mutex<HashMap<NodeId, Arc<Stream>>>,
    by_partition: Mutex<HashMap<TopicIdPartition, Arc<Stream>>>,
    /// Slots only grow, so that a leader can tell the later of two subscriptions.
    next_slot: Arc<AtomicU32>,
}

/// Where a broker listens, in one of its lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) peer: HostPort,
    pub(super) incarnation: IncarnationId,
    /// Whether to keep a connection without a partition to follow.
    pub(super) is_unfenced: bool,
}

impl FollowerStreams {
    pub(super) fn new(peers: Peers, data: Handle, metrics: Metrics) -> Self {
        Self {
            peers,
            data,
            metrics,
            by_leader: Mutex::default(),
            by_partition: Mutex::default(),
            next_slot: Arc::new(AtomicU32::new(1)),
        }
    }

    /// Where to find the broker; `None` when it is not registered any more.
    pub(super) fn set_target(&self, leader: NodeId, target: Option<Target>) {
        self.stream(leader).set_target(target);
    }

    /// Subscribes the partition at its present leader, in its present epoch.
    pub(super) fn follow(&self, leader: NodeId, partition: &Arc<Partition>) {
        let id = partition.id();
        let stream = self.stream(leader);
        let before = self.by_partition.lock().insert(id, stream.clone());
        if let Some(before) = before.filter(|before| before.leader != leader) {
            before.unfollow(id);
        }
        stream.follow(partition.clone());
    }

    /// The partition follows nobody.
    pub(super) fn unfollow(&self, id: TopicIdPartition) {
        if let Some(stream) = self.by_partition.lock().remove(&id) {
            stream.unfollow(id);
        }
    }

    /// This broker has another broker epoch: leaders must hear of it.
    pub(super) fn reconnect_all(&self) {
        for stream in self.by_leader.lock().values() {
            stream.state.lock().generation += 1;
            stream.reconnect.notify_one();
        }
    }

    fn stream(&self, leader: NodeId) -> Arc<Stream> {
        let mut streams = self.by_leader.lock();
        let stream = streams.entry(leader).or_insert_with(|| {
            let stream = Arc::new(Stream {
                leader,
                metrics: self.metrics.clone(),
                next_slot: self.next_slot.clone(),
                state: Mutex::default(),
                acks: Arc::default(),
                news: Notify::new(),
                reconnect: Notify::new(),
            });
            self.data.spawn(stream.clone().run(self.peers.clone()));
            stream
        });
        stream.clone()
    }
}
