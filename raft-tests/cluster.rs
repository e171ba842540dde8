//! Many nodes in this process, on a network that can be cut.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kontiki::controller::{
    ControllerCall, ControllerReply, ControllerRequest, HeartbeatRequest, Refusal,
    RegisterBrokerRequest,
};
use kontiki::metadata::{MetadataImage, RegisterBrokerRecord};
use kontiki::net::{BoxFuture, Error as NetError, Identity, ProbeOutcome, Reply};
use kontiki::protocol::native::{Frame, NodeHello, QuorumStatus, WhoAmIReply};
use kontiki::quorum::state_machine::Fault;
use kontiki::quorum::transport::{Router, Transport};
use kontiki::quorum::{Error, MetaDirectory, Quorum, QuorumConfig, directory};
use kontiki::types::{BrokerEpoch, Endpoints, HostPort, NodeId};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::invariants::{self, Witness};

/// Nothing here takes this long unless it never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The network: who is reachable, and from where.
#[derive(Default)]
struct Network {
    nodes: Mutex<HashMap<HostPort, Reachable>>,
    /// Messages from the first to the second are lost.
    cuts: Mutex<BTreeSet<(NodeId, NodeId)>>,
}

#[derive(Clone)]
struct Reachable {
    quorum: Quorum,
    identity: Arc<Identity>,
}

/// One node's way into the network.
struct Wire {
    from: Arc<Identity>,
    network: Arc<Network>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({})", self.from.node_id)
    }
}

impl Network {
    fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.lock().contains(&(from, to))
    }

    fn reachable(&self, address: &HostPort) -> Result<Reachable, NetError> {
        self.nodes.lock().get(address).cloned().ok_or_else(|| NetError::Connect {
            address: address.clone(),
            source: io::ErrorKind::ConnectionRefused.into(),
        })
    }
}

impl Router for Wire {
    fn call(&self, to: HostPort, frame: Frame) -> BoxFuture<'static, Result<Reply, NetError>> {
        let (network, from) = (self.network.clone(), self.from.clone());
        Box::pin(async move {
            let target = network.reachable(&to)?;
            let (from_id, to) = (from.node_id, target.identity.node_id);
            if network.is_cut(from_id, to) {
                // Lost: the caller's own deadline ends this.
                std::future::pending::<()>().await;
            }
            let served =
                tokio::spawn(
                    async move { target.quorum.on_frame(Some(hello(&from)), frame).await },
                );
            let reply = served.await.map_err(|error| NetError::Lost(error.to_string()))?;
            if network.is_cut(to, from_id) {
                std::future::pending::<()>().await;
            }
            reply.map_err(NetError::Remote)
        })
    }

    fn probe(&self, address: HostPort) -> BoxFuture<'static, ProbeOutcome> {
        let (network, from) = (self.network.clone(), self.from.node_id);
        Box::pin(async move {
            let Ok(target) = network.reachable(&address) else { return ProbeOutcome::Refused };
            let node_id = target.identity.node_id;
            if network.is_cut(from, node_id) || network.is_cut(node_id, from) {
                return ProbeOutcome::Unknown("no answer".to_owned());
            }
            let incarnation = target.identity.incarnation;
            ProbeOutcome::Alive(WhoAmIReply { node_id, incarnation })
        })
    }
}

pub(crate) fn hello(identity: &Identity) -> NodeHello {
    NodeHello {
        node_id: identity.node_id,
        directory_id: identity.directory_id,
        incarnation: identity.incarnation,
        broker_epoch: identity.broker_epoch(),
    }
}

pub(crate) fn address(node: i32) -> HostPort {
    let port = 9000 + u16::try_from(node).expect("a small number");
    HostPort { host: "node".to_owned(), port }
}

fn endpoints(node: i32) -> Endpoints {
    Endpoints { client: address(node), peer: address(node), admin: address(node) }
}

/// A running node.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) quorum: Quorum,
    pub(crate) identity: Arc<Identity>,
    pub(crate) faults: Arc<Mutex<Vec<String>>>,
    witness: Arc<Witness>,
}

impl Node {
    pub(crate) fn status(&self) -> QuorumStatus {
        self.quorum.status()
    }

    pub(crate) async fn submit(
        &self,
        request: ControllerRequest,
    ) -> Result<Result<ControllerReply, Refusal>, Error> {
        let call = ControllerCall { principal: "test".to_owned(), request };
        self.quorum.submit(call, PATIENCE).await
    }

    /// Registers its broker.
    pub(crate) async fn register(&self) -> BrokerEpoch {
        let epoch = match self.submit(registration(&self.identity)).await {
            Ok(Ok(ControllerReply::RegisterBroker { broker_epoch })) => broker_epoch,
            other => panic!("not registered: {other:?}"),
        };
        self.identity.set_broker_epoch(epoch);
        epoch
    }

    /// One heartbeat, as of a broker that published what this node applied.
    pub(crate) async fn heartbeat(&self) -> Result<Result<ControllerReply, Refusal>, Error> {
        self.submit(ControllerRequest::Heartbeat(HeartbeatRequest {
            node_id: self.identity.node_id,
            broker_epoch: self.identity.broker_epoch(),
            applied_index: self.quorum.image().index,
            want_fence: false,
            want_shutdown: false,
            disk_stall_ms: 0,
        }))
        .await
    }

    /// A block of producer ids: the simplest thing that changes metadata and must never be given twice.
    pub(crate) async fn allocate(
        &self,
        within: Duration,
    ) -> Result<Result<ControllerReply, Refusal>, Error> {
        let call = ControllerCall {
            principal: "test".to_owned(),
            request: ControllerRequest::AllocateProducerIds {
                node_id: self.identity.node_id,
                broker_epoch: self.identity.broker_epoch(),
            },
        };
        let asked = self.witness.asked();
        let answer = self.quorum.submit(call, within).await;
        if let Ok(Ok(ControllerReply::AllocateProducerIds { first, count })) = &answer {
            self.witness.answered(asked, *first, *count);
        }
        answer
    }

    pub(crate) async fn allocated(&self) -> i64 {
        match self.allocate(PATIENCE).await {
            Ok(Ok(ControllerReply::AllocateProducerIds { first, .. })) => first,
            other => panic!("no producer ids: {other:?}"),
        }
    }
}

pub(crate) fn registration(identity: &Identity) -> ControllerRequest {
    ControllerRequest::RegisterBroker(RegisterBrokerRequest {
        cluster_id: identity.cluster_id().expect("formed"),
        registration: RegisterBrokerRecord {
            node_id: identity.node_id,
            incarnation: identity.incarnation,
            raft_node_id: identity.directory_id.raft_node_id(),
            directory_ids: vec![identity.directory_id],
            endpoints: endpoints(identity.node_id.0),
            rack: None,
            features: BTreeMap::new(),
        },
        previous_broker_epoch: BrokerEpoch::NONE,
        supersede: false,
    })
}

/// Nodes 1, 2, ... and what they left on disk.
pub(crate) struct Cluster {
    pub(crate) directory: TempDir,
    network: Arc<Network>,
    running: BTreeMap<i32, Node>,
    seeds: Vec<(NodeId, HostPort)>,
    pub(crate) snapshot_entries: u64,
    pub(crate) witness: Arc<Witness>,
}

/// What a node said when it might not go on.
type Faults = Arc<Mutex<Vec<String>>>;

impl Cluster {
    /// Of this many initial voters, none of them started.
    pub(crate) fn of(voters: i32) -> Self {
        Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
            network: Arc::default(),
            running: BTreeMap::new(),
            seeds: (1..=voters).map(|node| (NodeId(node), address(node))).collect(),
            snapshot_entries: 20_000,
            witness: Arc::default(),
        }
    }

    /// Formed, with a leader.
    pub(crate) async fn started(voters: i32) -> Self {
        let mut cluster = Self::of(voters);
        for node in 1..=voters {
            cluster.open(node).await;
        }
        cluster.join_all().await;
        cluster.leader().await;
        cluster
    }

    pub(crate) fn node(&self, node: i32) -> &Node {
        &self.running[&node]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.running.values()
    }

    pub(crate) fn seeds(&self) -> &[(NodeId, HostPort)] {
        &self.seeds
    }

    /// Opens a node without waiting until it is a member.
    pub(crate) async fn open(&mut self, node: i32) {
        self.try_open(node).await.expect("a sound directory");
    }

    async fn open_once(&self, node: i32) -> Result<(Quorum, Arc<Identity>, Faults), Error> {
        let path = self.directory.path().join(node.to_string());
        let directory = MetaDirectory::open_or_format(&path, NodeId(node))?;
        let identity = Arc::new(Identity::new(NodeId(node), directory.directory_id(), None));
        let wire = Wire { from: identity.clone(), network: self.network.clone() };
        let faults = Faults::default();
        let mut config = QuorumConfig::new(directory, address(node));
        config.snapshot_entries = self.snapshot_entries;
        let told = faults.clone();
        config.fault = Fault::new(move |reason| told.lock().push(reason.to_owned()));
        let transport = Transport::Router(Arc::new(wire));
        let quorum = Quorum::open_on(config, identity.clone(), transport).await?;
        Ok((quorum, identity, faults))
    }

    pub(crate) async fn try_open(&mut self, node: i32) -> Result<(), Error> {
        // What an earlier life of the node left behind in this process goes away soon, with its lock.
        let (quorum, identity, faults) =
            eventually("the lock is free", async || match self.open_once(node).await {
                Err(Error::Directory(directory::Error::Locked { .. })) => None,
                other => Some(other),
            })
            .await?;
        self.witness.watch(NodeId(node), quorum.images());
        let reachable = Reachable { quorum: quorum.clone(), identity: identity.clone() };
        self.network.nodes.lock().insert(address(node), reachable);
        let witness = self.witness.clone();
        self.running.insert(node, Node { quorum, identity, faults, witness });
        Ok(())
    }

    /// Returns when all running nodes are members.
    pub(crate) async fn join_all(&self) {
        let joining = self.running.values().map(|node| {
            let (quorum, seeds) = (node.quorum.clone(), self.seeds.clone());
            tokio::spawn(async move { quorum.form_or_join(&seeds).await })
        });
        for joined in joining.collect::<Vec<_>>() {
            joined.await.expect("no panic").expect("a member");
        }
    }

    pub(crate) async fn start(&mut self, node: i32) {
        self.open(node).await;
        self.node(node).quorum.form_or_join(&self.seeds).await.expect("a member");
    }

    /// Unreachable at once, and without handing anything over; then gone. Returns who it was.
    pub(crate) async fn kill(&mut self, node: i32) -> NodeHello {
        self.network.nodes.lock().remove(&address(node));
        let killed = self.running.remove(&node).expect("running");
        killed.quorum.halt().await;
        hello(&killed.identity)
    }

    /// As SIGTERM does.
    pub(crate) async fn shut_down(&mut self, node: i32) {
        let stopped = self.running.remove(&node).expect("running");
        stopped.quorum.shut_down().await;
        self.network.nodes.lock().remove(&address(node));
    }

    pub(crate) fn cut_off(&self, node: i32) {
        let mut cuts = self.network.cuts.lock();
        for other in self.running.keys().filter(|other| **other != node) {
            cuts.insert((NodeId(node), NodeId(*other)));
            cuts.insert((NodeId(*other), NodeId(node)));
        }
    }

    pub(crate) fn heal(&self) {
        self.network.cuts.lock().clear();
    }

    /// The leader that a majority of running nodes agrees on.
    pub(crate) async fn leader(&self) -> i32 {
        let majority = self.seeds.len() / 2 + 1;
        eventually("a leader that a majority follows", async || {
            let mut votes = BTreeMap::new();
            for node in self.running.values() {
                let status = node.status();
                if let Some(leader) = status.leader_id {
                    *votes.entry((status.term, leader)).or_insert(0) += 1;
                }
            }
            votes.into_iter().find(|(_, count)| *count >= majority).map(|((_, id), _)| id.0)
        })
        .await
    }

    pub(crate) async fn follower(&self) -> i32 {
        let leader = self.leader().await;
        *self.running.keys().find(|node| **node != leader).expect("more than one node")
    }

    /// Another leader than this one.
    pub(crate) async fn leader_other_than(&self, old: i32) -> i32 {
        eventually("another leader", async || {
            let leader = self.leader().await;
            (leader != old).then_some(leader)
        })
        .await
    }

    /// All running nodes have applied the same; then the invariants hold.
    pub(crate) async fn converged(&self) -> Arc<MetadataImage> {
        let image = eventually("all nodes have the same image", async || {
            let images: Vec<_> = self.running.values().map(|node| node.quorum.image()).collect();
            let last = images.iter().max_by_key(|image| image.index)?.clone();
            images.iter().all(|image| image.index == last.index).then_some(last)
        })
        .await;
        for node in self.running.values() {
            assert_eq!(*node.faults.lock(), Vec::<String>::new(), "node {}", node.identity.node_id);
        }
        invariants::check(&self.witness, &image);
        image
    }
}
