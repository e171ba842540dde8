//! One node: what is started, in which order, and how it stops.
//!
//! ```text
//! start:  listeners bound -> directory locked -> quorum opened -> peers served -> admin served
//!         -> cluster formed or joined -> logs recovered, broker started -> clients served
//! stop:   broker (leaderships move, logs close) -> clients, peers, admin -> quorum (leadership moves)
//! ```
//! Two runtimes (design D10): *control* has one thread for Raft, heartbeats, probes and the admin port and never waits
//! for a data disk; *data* has the connections of clients and the replica streams and does file I/O inline.
//!
//! Invariant: the only place that knows every part. Parts get what they need as arguments.

mod control_thread;

use std::io;
use std::net::TcpListener;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tracing::info;

use control_thread::ControlThread;

use crate::admin::{self, AdminApi};
use crate::broker::{Broker, BrokerConfig};
use crate::config::{Config, Listener};
use crate::controller::{ControllerReply, ControllerRequest, Refusal};
use crate::metadata::MetadataImage;
use crate::net::{
    BoxFuture, FrameReader, FrameWriter, Identity, Limits, PeerService, Peers, Reply, serve_peers,
};
use crate::protocol::ErrorCode;
use crate::protocol::native::{ConfigView, Frame, Kind, NodeHello, QuorumStatus, WireError};
use crate::quorum::{self, MetaDirectory, Quorum, QuorumConfig, Timing};
use crate::server::{self, ServerConfig};
use crate::storage::RecoveryProgress;
use crate::types::{ConfigResource, Endpoints, HostPort, time};
use crate::{broker, telemetry};

/// Why a node cannot start or go on. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address} ({key}): {source}")]
    Listen { key: &'static str, address: HostPort, source: io::Error },
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
    #[error(transparent)]
    Quorum(#[from] quorum::Error),
    #[error(transparent)]
    Broker(#[from] broker::Error),
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    /// Dropped without waiting: what must be finished is finished in [`Node::shut_down`].
    control: Option<ControlThread>,
    data: Option<Runtime>,
    parts: Arc<Parts>,
    stop: watch::Sender<bool>,
    endpoints: Endpoints,
}

/// What peers and the admin port are served with. The broker comes last.
#[derive(Debug)]
struct Parts {
    quorum: Quorum,
    recovery: Arc<RecoveryProgress>,
    broker: OnceLock<Arc<Broker>>,
}

/// Runs a node until SIGTERM or SIGINT, or until it cannot go on.
pub fn run(config: Config) -> Result<(), Error> {
    let signals = Builder::new_current_thread().enable_all().build()?;
    let node = Node::start(config)?;
    signals.block_on(termination())?;
    info!("stopping");
    node.shut_down();
    Ok(())
}

async fn termination() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

impl Node {
    /// Starts everything. Returns when clients are served, which on a first start takes until all initial voters are
    /// there; whether they are *sent* here is another question, which `/readyz` answers.
    ///
    /// Blocks; call it outside of any async runtime.
    pub fn start(config: Config) -> Result<Self, Error> {
        let listeners = Listeners::bind(&config)?;
        let endpoints = listeners.endpoints(&config);
        let directory = MetaDirectory::open_or_format(config.data_dir.join("meta"), config.node_id)
            .map_err(quorum::Error::from)?;
        let identity = Arc::new(Identity::new(
            config.node_id,
            directory.directory_id(),
            directory.cluster_id(),
        ));
        info!(
            node_id = %config.node_id,
            directory_id = %identity.directory_id,
            clients = %endpoints.client,
            peers = %endpoints.peer,
            admin = %endpoints.admin,
            "starting"
        );
        let control = ControlThread::start()?;
        let data = data_runtime()?;
        let (stop, stopped) = watch::channel(false);
        let server_metrics = server::Metrics::default();
        let quorum_config = quorum_config(&config, directory, &endpoints);
        let (parts, broker) = control.handle().block_on(async {
            let peers = Peers::from_address(identity.clone(), Limits::DEFAULT, config.peer_source);
            let quorum = Quorum::open(quorum_config, identity.clone(), peers.clone()).await?;
            let recovery = Arc::<RecoveryProgress>::default();
            let parts = Arc::new(Parts {
                quorum: quorum.clone(),
                recovery: recovery.clone(),
                broker: OnceLock::new(),
            });
            tokio::spawn(serve_peers(
                tokio::net::TcpListener::from_std(listeners.peer)?,
                identity.clone(),
                parts.clone(),
                Limits::DEFAULT,
                stopped.clone(),
            ));
            let (metrics, mut registry) = (broker::Metrics::default(), telemetry::registry());
            metrics.register(&mut registry);
            server_metrics.register(&mut registry);
            tokio::spawn(admin::serve(
                tokio::net::TcpListener::from_std(listeners.admin)?,
                AdminApi { node: parts.clone(), registry: Arc::new(registry) },
                stopped.clone(),
            ));
            quorum.form_or_join(&config.voters).await?;
            let broker_config = BrokerConfig {
                endpoints: endpoints.clone(),
                rack: config.rack.clone(),
                log_dirs: config.log_dirs.clone(),
                log_dirs_min_free: config.log_dirs_min_free,
                durability: config.durability,
                recovery,
                retention_check_interval: config.retention_check_interval,
                compaction: config.compaction.clone(),
                static_configs: config.texts.clone(),
                heartbeat_interval: config.heartbeat_interval,
                controlled_shutdown_max: config.controlled_shutdown_timeout,
                replica_lag_max: config.replica_lag_time_max,
                control: control.handle().clone(),
                data: data.handle().clone(),
                metrics,
            };
            let broker = Broker::start(broker_config, identity, Arc::new(quorum), peers).await?;
            Ok::<_, Error>((parts, broker))
        })?;
        parts.broker.set(broker.clone()).expect("set once, here");
        let server_config = server_config(&config, &endpoints, server_metrics);
        let listener =
            data.block_on(async { tokio::net::TcpListener::from_std(listeners.client) })?;
        data.spawn(server::serve_clients(listener, broker, server_config, stopped));
        Ok(Self { control: Some(control), data: Some(data), parts, stop, endpoints })
    }

    /// Where this node can be reached.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Blocks until clients can be sent here; the error says why they still cannot.
    pub fn wait_until_ready(&self, within: Duration) -> Result<(), String> {
        const INTERVAL: Duration = Duration::from_millis(5);
        let deadline = time::now() + within;
        loop {
            match admin::Node::readiness(&*self.parts) {
                Err(reason) if time::now() >= deadline => return Err(reason),
                Err(_) => std::thread::sleep(INTERVAL),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Moves leaderships away, closes everything cleanly, and ends all connections. Blocks.
    pub fn shut_down(mut self) {
        let (control, data) = (self.control.take(), self.data.take());
        if let Some(control) = &control {
            control.handle().block_on(async {
                if let Some(broker) = self.parts.broker.get() {
                    broker.shut_down().await;
                }
                self.stop.send_replace(true);
                self.parts.quorum.shut_down().await;
            });
        }
        if let Some(data) = data {
            data.shutdown_timeout(RUNTIME_STOP_MAX);
        }
        if let Some(control) = control {
            control.stop(RUNTIME_STOP_MAX);
        }
    }
}

/// Tasks that have not ended by then are cut off at their next await.
const RUNTIME_STOP_MAX: Duration = Duration::from_secs(1);

impl Drop for Node {
    /// Like a crash: tests do this on purpose.
    fn drop(&mut self) {
        if let Some(broker) = self.parts.broker.get() {
            broker.abandon();
        }
        if let Some(data) = self.data.take() {
            data.shutdown_background();
        }
        drop(self.control.take());
    }
}

fn data_runtime() -> io::Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, Into::into);
    Builder::new_multi_thread().worker_threads(threads).thread_name("data").enable_all().build()
}

/// Bound before anything else, so that a port in use is reported before anything is touched.
struct Listeners {
    client: TcpListener,
    peer: TcpListener,
    admin: TcpListener,
}

impl Listeners {
    fn bind(config: &Config) -> Result<Self, Error> {
        Ok(Self {
            client: bind("listeners", &config.client)?,
            peer: bind("peer.listener", &config.peer)?,
            admin: bind("admin.listener", &config.admin)?,
        })
    }

    /// What others are told: as configured, with the real port where the configured one is 0.
    fn endpoints(&self, config: &Config) -> Endpoints {
        let with_port = |listener: &Listener, socket: &TcpListener| {
            let mut address = listener.advertised.clone();
            if address.port == 0 {
                address.port = socket.local_addr().map_or(0, |bound| bound.port());
            }
            address
        };
        Endpoints {
            client: with_port(&config.client, &self.client),
            peer: with_port(&config.peer, &self.peer),
            admin: with_port(&config.admin, &self.admin),
        }
    }
}

fn bind(key: &'static str, listener: &Listener) -> Result<TcpListener, Error> {
    let HostPort { host, port } = &listener.bind;
    let bound = TcpListener::bind((host.as_str(), *port)).and_then(|socket| {
        socket.set_nonblocking(true)?;
        Ok(socket)
    });
    bound.map_err(|source| Error::Listen { key, address: listener.bind.clone(), source })
}

fn quorum_config(config: &Config, directory: MetaDirectory, endpoints: &Endpoints) -> QuorumConfig {
    QuorumConfig {
        timing: Timing {
            heartbeat: config.raft_heartbeat,
            election_min: config.election_timeout,
            election_max: 2 * config.election_timeout,
        },
        broker_session: config.session_timeout,
        partition_count: config.partition_count,
        replication_factor: config.replication_factor,
        balance: config.balance,
        ..QuorumConfig::new(directory, endpoints.peer.clone())
    }
}

fn server_config(config: &Config, endpoints: &Endpoints, metrics: server::Metrics) -> ServerConfig {
    ServerConfig {
        admin: endpoints.admin.clone(),
        request_size_max: config.request_size_max,
        connections_max: config.connections_max,
        idle_max: config.connection_idle_max,
        fetch_size_max: config.fetch_bytes_max,
        auto_create_topics: config.auto_create_topics,
        metrics,
    }
}

impl admin::Node for Parts {
    /// Before the broker has started: what the quorum has applied.
    fn image(&self) -> Arc<MetadataImage> {
        self.broker.get().map_or_else(|| self.quorum.image(), |broker| broker.image())
    }

    fn quorum_status(&self) -> QuorumStatus {
        self.quorum.status()
    }

    fn readiness(&self) -> Result<(), String> {
        match self.broker.get() {
            Some(broker) => broker.readiness(),
            None => Err(self.recovery.describe().unwrap_or_else(|| STARTING.to_owned())),
        }
    }

    fn describe_configs(&self, resource: &ConfigResource) -> Result<Vec<ConfigView>, Refusal> {
        match self.broker.get() {
            Some(broker) => broker.describe_configs(resource),
            None => Err(Refusal::new(ErrorCode::BrokerIdNotRegistered, STARTING)),
        }
    }

    fn admin<'a>(
        &'a self,
        principal: &'a str,
        request: ControllerRequest,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<ControllerReply, Refusal>> {
        Box::pin(async move {
            match self.broker.get() {
                Some(broker) => broker.admin(principal, request, timeout).await,
                None => Err(Refusal::new(ErrorCode::BrokerIdNotRegistered, STARTING)),
            }
        })
    }
}

const STARTING: &str = "this node is starting: it waits for the other initial voters";

impl PeerService for Parts {
    fn on_call(
        self: Arc<Self>,
        from: Option<NodeHello>,
        frame: Frame,
    ) -> BoxFuture<'static, Result<Reply, WireError>> {
        Box::pin(async move {
            match frame.kind {
                Kind::RaftAppend
                | Kind::RaftVote
                | Kind::RaftSnapshot
                | Kind::RaftTransferLeader
                | Kind::Form
                | Kind::Join
                | Kind::Controller => self.quorum.on_frame(from, frame).await,
                _ => match self.broker.get() {
                    Some(broker) => broker.on_peer_call(frame).await,
                    None => Err(WireError::NotReady("the broker is starting".to_owned())),
                },
            }
        })
    }

    fn on_connected(&self, _: NodeHello) {}

    fn on_disconnected(&self, node: NodeHello) {
        self.quorum.on_peer_lost(node);
    }

    fn on_replica_stream(
        self: Arc<Self>,
        node: NodeHello,
        reader: FrameReader,
        writer: FrameWriter,
    ) {
        // A follower that came too early connects again.
        if let Some(broker) = self.broker.get() {
            broker.on_replica_stream(node, reader, writer);
        }
    }
}
