//! The metadata quorum: a replicated log of [`MetadataBatch`](crate::metadata::MetadataBatch)es and who may write it.
//!
//! Every node opens it, voters and learners alike, and serves metadata from the image that it applied itself. The
//! active controller (the Raft leader) runs one single-writer loop that decides all waiting requests against the
//! applied image and proposes one batch (design D3).
//!
//! ```text
//! submit -> (peers port) -> controller loop -> decide -> propose -> log store -> replay -> images() -> broker
//! ```
//!
//! Invariant: this is the only module that names openraft or sled, and neither appears in its public interface.
//! Votes, log entries and snapshots are on disk before anybody is told of them.

pub mod check;
mod config;
mod controller_loop;
pub mod directory;
mod evidence;
mod formation;
#[doc(hidden)]
pub mod log_store;
mod log_sync;
mod members;
mod network;
mod propose;
#[doc(hidden)]
pub mod raft;
mod reserve;
mod route;
mod runtime;
#[doc(hidden)]
pub mod snapshot_store;
#[doc(hidden)]
pub mod state_machine;
#[doc(hidden)]
pub mod transport;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::{debug, error, info};

use self::controller_loop::{ControllerLoop, Event, QUEUE_MAX, Tools};
use self::log_store::LogStore;
use self::network::{NetworkFactory, RaftService};
use self::raft::{Member, Raft};
use self::snapshot_store::SnapshotStore;
use self::state_machine::{Fault, StateMachine};
use self::transport::Transport;
use crate::controller::{ControllerCall, ControllerReply, LivenessConfig, Refusal};
use crate::metadata::MetadataImage;
use crate::net::{Identity, Peers, Reply};
use crate::protocol::native::{
    FormRequest, Frame, JoinRequest, Kind, NodeHello, QuorumMember, QuorumStatus, WireError,
};
use crate::types::{HostPort, NodeId, RaftNodeId, Uuid};

pub use config::{QuorumConfig, Timing};
pub use directory::MetaDirectory;

/// Why the quorum did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be used; the sentence says what to do.
    #[error(transparent)]
    Directory(#[from] directory::Error),
    /// The request may have been applied: its outcome is unknown (replication.md 1.1 R4).
    #[error("no answer from the active controller within {0:?}; the request may have been applied")]
    Unknown(Duration),
    /// The request was certainly not applied.
    #[error("no active controller within {0:?}; the request was not applied")]
    NoController(Duration),
    /// Forming or joining a cluster needs an operator; the sentence says what to do.
    #[error("{0}")]
    Formation(String),
    #[error("this node's quorum has shut down")]
    ShutDown,
}

/// This node's part in the quorum. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Quorum {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    me: RaftNodeId,
    peer: HostPort,
    identity: Arc<Identity>,
    transport: Transport,
    raft: Raft,
    service: RaftService,
    images: watch::Receiver<Arc<MetadataImage>>,
    events: mpsc::Sender<Event>,
    /// The initial nodes, once this node was told of them.
    seeds: Mutex<BTreeMap<NodeId, HostPort>>,
    stopping: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    store: LogStore,
    /// Last, so that the lock is the last thing that goes.
    directory: MetaDirectory,
}

/// A snapshot is made after this many bytes of entries at the latest.
const SNAPSHOT_LOG_SIZE: u64 = 64 << 20;

/// How long a shutdown waits for another node to take over.
const TRANSFER_TIMEOUT: Duration = Duration::from_millis(500);

impl Quorum {
    /// Opens the log store and the last snapshot, and starts to take part. Frames are served from now on.
    pub async fn open(
        config: QuorumConfig,
        identity: Arc<Identity>,
        peers: Peers,
    ) -> Result<Self, Error> {
        Self::open_on(config, identity, Transport::Sockets(peers)).await
    }

    /// As [`Quorum::open`], on any transport.
    #[doc(hidden)]
    pub async fn open_on(
        config: QuorumConfig,
        identity: Arc<Identity>,
        transport: Transport,
    ) -> Result<Self, Error> {
        let QuorumConfig { directory, peer, fault, .. } = &config;
        let me = identity.directory_id.raft_node_id();
        let (log_path, snapshot_path) = directory.parts();
        tokio::spawn(reserve::keep(directory.path().to_owned()));
        let opening = {
            let (log_path, snapshot_path) = (log_path.clone(), snapshot_path.clone());
            move || -> Result<_, directory::Error> {
                Ok((LogStore::open(&log_path)?, SnapshotStore::open(&snapshot_path)?))
            }
        };
        let opened = tokio::task::spawn_blocking(opening).await;
        let (store, snapshots) = opened.map_err(|_| Error::ShutDown)??;
        if store.purged() > snapshots.last() {
            let reason = "the log begins after the last snapshot";
            return Err(directory::Error::damaged(&snapshot_path, reason).into());
        }
        if let Some(cluster_id) = directory.cluster_id() {
            identity.set_cluster_id(cluster_id);
        }
        let state_machine = StateMachine::new(snapshots, fault.clone());
        let images = state_machine.images();
        let factory = NetworkFactory { transport: transport.clone() };
        let raft = Raft::new(me, config.raft(), factory, store.clone(), state_machine)
            .await
            .map_err(|error| directory::Error::damaged(&log_path, error.to_string()))?;

        let (events, received) = mpsc::channel(QUEUE_MAX);
        let controller = ControllerLoop::new(Tools {
            raft: raft.clone(),
            images: images.clone(),
            transport: transport.clone(),
            identity: identity.clone(),
            events: events.downgrade(),
            liveness: LivenessConfig {
                session: config.broker_session,
                ..LivenessConfig::default()
            },
            timing: config.timing,
            partition_count: config.partition_count,
            replication_factor: config.replication_factor,
            balance: config.balance,
        });
        let stopping = watch::Sender::new(false);
        let guard = guard(raft.clone(), controller, received, stopping.subscribe(), fault.clone());
        let snapshots = snapshot_by_size(raft.clone(), store.clone(), images.clone());
        let mut stop = stopping.subscribe();
        let snapshots = async move {
            tokio::select! {
                () = snapshots => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
        };
        let tasks = Mutex::new(vec![tokio::spawn(guard), tokio::spawn(snapshots)]);
        let inner = Inner {
            me,
            peer: peer.clone(),
            identity,
            transport,
            service: RaftService::new(me, raft.clone()),
            raft,
            images,
            events,
            seeds: Mutex::default(),
            stopping,
            tasks,
            store,
            directory: config.directory,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns once this node is a member of a cluster: of the one that it forms with `seeds`, or of the one that they
    /// belong to already. Idempotent, and safe to call again after a crash at any point.
    pub async fn form_or_join(&self, seeds: &[(NodeId, HostPort)]) -> Result<(), Error> {
        self.inner.form_or_join(seeds).await
    }

    /// The applied image.
    pub fn image(&self) -> Arc<MetadataImage> {
        self.inner.images.borrow().clone()
    }

    /// Changes when an image is applied; images may be skipped.
    pub fn images(&self) -> watch::Receiver<Arc<MetadataImage>> {
        self.inner.images.clone()
    }

    /// Has the active controller decide, wherever it is. Tries again until the deadline while the request was certainly
    /// not applied; an outcome that is not known is [`Error::Unknown`] and left to the caller.
    pub async fn submit(
        &self,
        call: ControllerCall,
        deadline: Duration,
    ) -> Result<Result<ControllerReply, Refusal>, Error> {
        self.inner.submit(call, deadline).await
    }

    /// Serves the kinds `Raft*`, `Form`, `Join` and `Controller` of the peers port.
    pub async fn on_frame(
        &self,
        from: Option<NodeHello>,
        frame: Frame,
    ) -> Result<Reply, WireError> {
        let inner = &self.inner;
        let malformed = |error: crate::codec::Error| WireError::Malformed(error.to_string());
        if *inner.stopping.borrow() {
            return Err(WireError::NotReady("it is shutting down".to_owned()));
        }
        match frame.kind {
            Kind::Form => {
                let request: FormRequest = frame.body().map_err(malformed)?;
                Ok(Reply::new(&inner.on_form(&request)?))
            }
            // Only who has written down its cluster takes part in it.
            _ if inner.directory.cluster_id().is_none() => {
                Err(WireError::NotReady("it belongs to no cluster yet".to_owned()))
            }
            Kind::Join => {
                let request: JoinRequest = frame.body().map_err(malformed)?;
                Ok(Reply::new(&inner.on_join(from.as_ref(), request).await?))
            }
            Kind::Controller => {
                let call: ControllerCall = frame.body().map_err(malformed)?;
                Ok(Reply::new(&inner.on_call(call).await?))
            }
            _ => inner.service.on_frame(frame).await,
        }
    }

    /// A control connection of that node ended. Evidence, not a verdict: it starts a probe.
    pub fn on_peer_lost(&self, node: NodeHello) {
        // A queue that is full has worse news than this.
        let _ = self.inner.events.try_send(Event::PeerLost(node));
    }

    /// The quorum as this node sees it.
    pub fn status(&self) -> QuorumStatus {
        let inner = &self.inner;
        let metrics = inner.raft.metrics();
        let metrics = metrics.borrow_watched();
        let membership = &metrics.membership_config;
        let member = |(id, member): (&RaftNodeId, &Member)| {
            let replication = metrics.replication.as_ref().and_then(|all| all.get(id));
            let next = |index: Option<u64>| index.map_or(0, |index| index + 1);
            let lag = replication.map(|matched| {
                next(metrics.last_log_index).saturating_sub(next(matched.map(|id| id.index)))
            });
            QuorumMember {
                node_id: member.node_id,
                raft_node_id: *id,
                peer: member.peer.clone(),
                lag,
            }
        };
        let voters: Vec<RaftNodeId> = membership.voter_ids().collect();
        let (voters, learners): (Vec<_>, Vec<_>) =
            membership.nodes().map(member).partition(|m| voters.contains(&m.raft_node_id));
        let leader = metrics.current_leader.and_then(|id| membership.get_node(&id));
        QuorumStatus {
            cluster_id: inner.identity.cluster_id().unwrap_or(Uuid::ZERO),
            node_id: inner.identity.node_id,
            leader_id: leader.map(|member| member.node_id),
            term: metrics.current_term,
            last_log_index: metrics.last_log_index.unwrap_or(0),
            applied_index: metrics.last_applied.map_or(0, |id| id.index),
            voters,
            learners,
        }
    }

    /// Hands over the leadership if this node has it, then stops. The store is flushed when this returns.
    pub async fn shut_down(&self) {
        self.hand_over().await;
        self.halt().await;
    }

    /// As [`Quorum::shut_down`], but the others have to notice.
    #[doc(hidden)]
    pub async fn halt(&self) {
        let inner = &self.inner;
        inner.stopping.send_replace(true);
        if let Err(error) = inner.raft.shutdown().await {
            debug!(%error, "Raft had stopped");
        }
        let tasks = std::mem::take(&mut *inner.tasks.lock());
        for task in tasks {
            let _ = task.await;
        }
        if let Err(error) = inner.store.synced().await {
            error!(%error, "the last sync of the metadata log failed");
        }
    }

    async fn hand_over(&self) {
        let inner = &self.inner;
        let target = {
            let metrics = inner.raft.metrics();
            let metrics = metrics.borrow_watched();
            if metrics.current_leader != Some(inner.me) {
                return;
            }
            let voters: Vec<_> = metrics.membership_config.voter_ids().collect();
            let replication = metrics.replication.iter().flatten();
            let others = replication.filter(|(id, _)| **id != inner.me && voters.contains(id));
            others.max_by_key(|(_, matched)| matched.map(|id| id.index)).map(|(id, _)| *id)
        };
        let Some(target) = target else { return };
        info!("handing over the active controller");
        if inner.raft.trigger().transfer_leader(target).await.is_err() {
            return;
        }
        let mut server = inner.raft.server_metrics();
        let handed_over = async {
            while server.borrow_watched().current_leader == Some(inner.me) {
                if server.changed().await.is_err() {
                    return;
                }
            }
        };
        if timeout(TRANSFER_TIMEOUT, handed_over).await.is_err() {
            debug!("nobody took over in time");
        }
    }
}

/// Large entries make the log long before they are many.
async fn snapshot_by_size(
    raft: Raft,
    store: LogStore,
    mut images: watch::Receiver<Arc<MetadataImage>>,
) {
    while images.changed().await.is_ok() {
        if store.has_appended(SNAPSHOT_LOG_SIZE) && raft.trigger().snapshot().await.is_err() {
            return;
        }
    }
}

/// Runs the controller loop. When it ends for another reason than a shutdown, this node may not go on.
async fn guard(
    raft: Raft,
    controller: ControllerLoop,
    events: mpsc::Receiver<Event>,
    mut stopping: watch::Receiver<bool>,
    fault: Fault,
) {
    let mut running = tokio::spawn(controller.run(events));
    let ended = tokio::select! {
        biased; // A shutdown also ends the loop.
        _ = stopping.wait_for(|stop| *stop) => None,
        ended = &mut running => Some(ended),
    };
    let Some(ended) = ended.filter(|_| !*stopping.borrow()) else {
        running.abort();
        return;
    };
    let state = raft.metrics().borrow_watched().running_state.clone();
    match (ended, state) {
        (Err(error), _) => fault.stop(&format!("the controller loop failed: {error}")),
        (Ok(()), Err(error)) => fault.stop(&format!("the metadata quorum failed: {error}")),
        (Ok(()), Ok(())) => fault.stop("the metadata quorum stopped"),
    }
}
