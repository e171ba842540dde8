//! Brokers with real logs and real sockets on loopback, under a controller in memory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::memory_controller::{CLUSTER_ID, MemoryController};
use crate::broker::{Broker, BrokerConfig, Error, FetchPartition, FetchQuery, Metrics};
use crate::controller::{ControllerReply, ControllerRequest, CreatableTopic};
use crate::metadata::PartitionImage;
use crate::metadata::config::Durability;
use crate::net::{
    BoxFuture, FrameReader, FrameWriter, Identity, Limits, PeerService, Peers, Reply, serve_peers,
};
use crate::protocol::native::{Frame, NodeHello, PartitionError, Produced, WireError};
use crate::record::{BatchBuilder, Compression, batches};
use crate::storage::{self, CompactionConfig};
use crate::types::{
    Endpoints, HostPort, LeaderEpoch, NodeId, Offset, TopicId, TopicIdPartition, random, time,
};

/// No condition in a test takes longer, even on a busy machine.
const LONG: Duration = Duration::from_secs(30);

pub(in crate::broker) struct Nodes {
    pub(in crate::broker) controller: Arc<MemoryController>,
    nodes: BTreeMap<NodeId, TestNode>,
    durability: Durability,
    /// Each has two log directories, `a` and `b`.
    directories: BTreeMap<NodeId, TempDir>,
}

pub(in crate::broker) struct TestNode {
    pub(in crate::broker) broker: Arc<Broker>,
    /// Dropped like a killed process: tasks and sockets end at once.
    runtimes: Option<[Runtime; 2]>,
    _stop_peers: watch::Sender<bool>,
}

/// What `node` does for peers, before and after it has a broker.
#[derive(Debug, Default)]
struct Service(OnceLock<Arc<Broker>>);

impl PeerService for Service {
    fn on_call(
        self: Arc<Self>,
        _: Option<NodeHello>,
        frame: Frame,
    ) -> BoxFuture<'static, Result<Reply, WireError>> {
        Box::pin(async move {
            let broker = self.0.get().ok_or(WireError::NotReady("starting".to_owned()))?;
            broker.on_peer_call(frame).await
        })
    }

    fn on_connected(&self, _: NodeHello) {}

    fn on_disconnected(&self, _: NodeHello) {}

    fn on_replica_stream(
        self: Arc<Self>,
        node: NodeHello,
        reader: FrameReader,
        writer: FrameWriter,
    ) {
        if let Some(broker) = self.0.get() {
            broker.on_replica_stream(node, reader, writer);
        }
    }
}

impl Nodes {
    /// Brokers 1 to `count`, all unfenced.
    pub(in crate::broker) async fn start(count: i32, durability: Durability) -> Self {
        let controller = MemoryController::new();
        let mut nodes =
            Self { controller, nodes: BTreeMap::new(), durability, directories: BTreeMap::new() };
        for node_id in (1..=count).map(NodeId) {
            nodes.directories.insert(node_id, tempfile::tempdir().expect("a directory"));
            nodes.restart(node_id).await;
        }
        for node in nodes.nodes.values() {
            until("every broker is ready", || node.broker.readiness().is_ok()).await;
        }
        nodes
    }

    /// One of the two log directories of a broker.
    pub(in crate::broker) fn log_dir(&self, node_id: NodeId, name: &str) -> PathBuf {
        self.directories[&node_id].path().join(name)
    }

    /// After it was killed.
    pub(in crate::broker) async fn restart(&mut self, node_id: NodeId) {
        for dir in ["a", "b"] {
            // Its threads may take a moment to end, and with them the lock goes.
            let lock = self.log_dir(node_id, dir).join(".lock");
            until("nobody uses the directory", || {
                std::fs::File::open(&lock).map_or(true, |lock| lock.try_lock().is_ok())
            })
            .await;
        }
        let node = self.start_node(node_id).await;
        self.nodes.insert(node_id, node);
    }

    async fn start_node(&self, node_id: NodeId) -> TestNode {
        let [control, data] = [runtime(), runtime()];
        let log_dirs = ["a", "b"].map(|name| self.log_dir(node_id, name)).to_vec();
        let (stop_peers, stopped) = watch::channel(false);
        let (metadata, durability) = (self.controller.clone(), self.durability);
        let data_handle = data.handle().clone();
        let starting = control.spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            let here = HostPort { host: "127.0.0.1".to_owned(), port };
            let identity = Arc::new(Identity::new(node_id, random::uuid(), Some(CLUSTER_ID)));
            let peers = Peers::new(identity.clone(), Limits::DEFAULT);
            let service = Arc::<Service>::default();
            let (limits, served) = (Limits::DEFAULT, service.clone());
            tokio::spawn(serve_peers(listener, identity.clone(), served, limits, stopped));
            let config = BrokerConfig {
                endpoints: Endpoints { client: here.clone(), peer: here.clone(), admin: here },
                rack: None,
                log_dirs,
                log_dirs_min_free: Some(0),
                durability,
                recovery: Arc::default(),
                retention_check_interval: Duration::from_secs(300),
                compaction: CompactionConfig::default(),
                static_configs: BTreeMap::new(),
                heartbeat_interval: Duration::from_millis(100),
                controlled_shutdown_max: LONG,
                replica_lag_max: Duration::from_secs(10),
                control: Handle::current(),
                data: data_handle,
                metrics: Metrics::default(),
            };
            // Threads of an earlier life hold its directories for a moment longer.
            let broker = loop {
                let (identity, metadata) = (identity.clone(), metadata.clone());
                match Broker::start(config.clone(), identity, metadata, peers.clone()).await {
                    Err(Error::Storage(storage::Error::Locked { .. })) => {
                        sleep(Duration::from_millis(5)).await;
                    }
                    started => break started.expect("a start"),
                }
            };
            service.0.set(broker.clone()).expect("set once");
            broker
        });
        TestNode {
            broker: starting.await.expect("no panic"),
            runtimes: Some([control, data]),
            _stop_peers: stop_peers,
        }
    }

    pub(in crate::broker) fn broker(&self, node_id: NodeId) -> &Arc<Broker> {
        &self.nodes[&node_id].broker
    }

    pub(in crate::broker) fn brokers(&self) -> impl Iterator<Item = &Arc<Broker>> {
        self.nodes.values().map(|node| &node.broker)
    }

    /// As `kill -9` does, and its confirmed death.
    pub(in crate::broker) fn kill(&mut self, node_id: NodeId) {
        self.silence(node_id);
        self.controller.fence(node_id);
    }

    /// As `kill -9` does, but no controller hears of it.
    pub(in crate::broker) fn silence(&mut self, node_id: NodeId) {
        drop(self.nodes.remove(&node_id).expect("it lives"));
    }

    /// Through the admin path of one broker; so all of them serve it when this returns.
    pub(in crate::broker) async fn create_topic(
        &self,
        via: NodeId,
        name: &str,
        partition_count: i32,
        replication_factor: i16,
    ) -> TopicId {
        let topic = CreatableTopic {
            name: name.to_owned(),
            topic_id: random::uuid(),
            partition_count,
            replication_factor,
            assignments: BTreeMap::new(),
            configs: Vec::new(),
        };
        let topic_id = topic.topic_id;
        let request = ControllerRequest::CreateTopics { topics: vec![topic], validate_only: false };
        match self.broker(via).admin("test", request, LONG).await.expect("decided") {
            ControllerReply::CreateTopics { results, .. } => {
                results.into_iter().for_each(|result| _ = result.expect("created"));
            }
            other => panic!("{other:?}"),
        }
        topic_id
    }

    pub(in crate::broker) fn partition(&self, id: TopicIdPartition) -> Arc<PartitionImage> {
        self.controller.image().partition(id).expect("it exists").clone()
    }

    pub(in crate::broker) fn leader(&self, id: TopicIdPartition) -> NodeId {
        self.partition(id).leader
    }

    /// One record to the leader that its present image names, once.
    pub(in crate::broker) async fn produce(
        &self,
        id: TopicIdPartition,
        value: &str,
        acks: i16,
    ) -> Result<Produced, PartitionError> {
        let broker = self.broker(self.leader(id));
        let produced = broker.produce(vec![(id, batch(value))], acks, LONG);
        produced.await.pop().expect("one result")
    }

    /// As [`Nodes::produce`], until it is acknowledged: what a client does that may write a record twice.
    pub(in crate::broker) async fn produce_surely(
        &self,
        id: TopicIdPartition,
        value: &str,
    ) -> Offset {
        let deadline = Instant::now() + LONG;
        loop {
            match self.produce(id, value, -1).await {
                Ok(produced) => return produced.base_offset,
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Everything that the leader lets a consumer read.
    pub(in crate::broker) async fn values(&self, id: TopicIdPartition) -> Vec<String> {
        let (mut values, mut fetch_offset) = (Vec::new(), 0);
        loop {
            let query = FetchQuery {
                wait: Duration::ZERO,
                bytes_min: 1,
                bytes_max: 1 << 20,
                entries: vec![FetchPartition {
                    partition: id,
                    leader_epoch: LeaderEpoch::NONE,
                    last_fetched_epoch: LeaderEpoch::NONE,
                    fetch_offset,
                    bytes_max: 1 << 20,
                }],
            };
            let mut fetched = self.broker(self.leader(id)).fetch(query).await;
            let slice = fetched.pop().expect("one result").expect("readable").slice;
            if slice.is_empty() {
                return values;
            }
            fetch_offset = slice.next_offset;
            let mut bytes = Vec::new();
            slice.read_into(&mut bytes).expect("readable");
            values.extend(values_of(&bytes));
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        drop(self.broker.partitions_thread.lock().take());
        for runtime in self.runtimes.take().into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// One batch of one record.
pub(in crate::broker) fn batch(value: &str) -> BytesMut {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.push(time::wall_ms(), None, Some(value.as_bytes()), &[]);
    builder.build().as_slice().into()
}

fn values_of(bytes: &[u8]) -> Vec<String> {
    let mut values = Vec::new();
    for batch in batches(bytes) {
        let batch = batch.expect("whole");
        let records = crate::record::records(&batch, 1 << 20).expect("not compressed");
        for record in records.iter() {
            let value = record.expect("whole").value.expect("it has one");
            values.push(String::from_utf8(value.to_vec()).expect("text"));
        }
    }
    values
}

/// Waits for a condition.
pub(in crate::broker) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {LONG:?}: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}
