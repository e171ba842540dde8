//! Starting and stopping a broker.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tracing::{error, info};

use super::alter_partition::{AlterPartitionSender, IsrChanges};
use super::departures::Departures;
use super::events::Events;
use super::lifecycle::{Lifecycle, Phase, Signals};
use super::offline::{Offline, OfflineReporter};
use super::previous_life::Lives;
use super::producer_ids::ProducerIds;
use super::publication::Publication;
use super::reconciler::Reconciler;
use super::registry::Registry;
use super::stream_follower::FollowerStreams;
use super::stream_leader::LeaderStreams;
use super::ticks::Ticks;
use super::visibility::Visibility;
use super::{Broker, BrokerConfig, ControlPlane};
use crate::metadata::MetadataImage;
use crate::net::{Identity, Peers};
use crate::replication::Timing;
use crate::storage::{self, LogDirs, PartitionLog, RecoveredLogs, StorageConfig};

/// Why a broker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Storage(#[from] storage::Error),
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl Broker {
    /// Recovers the logs, and starts to follow the metadata and to register. Returns before the registration is
    /// accepted; [`Broker::readiness`] tells.
    pub async fn start(
        config: BrokerConfig,
        identity: Arc<Identity>,
        control: Arc<dyn ControlPlane>,
        peers: Peers,
    ) -> Result<Arc<Self>, Error> {
        let (registry, signals) = (Arc::<Registry>::default(), Arc::new(Signals::new()));
        let news = Arc::new(Notify::new());
        let (logs, recovered) = open_logs(&config, &registry, &news).await?;
        let offline = Arc::new(Offline::new(logs.clone(), news));
        let lives = Arc::new(Lives::new(logs.online(), config.durability));
        let publication = Arc::new(Publication::new());
        config.metrics.observe_compaction(&logs);
        config.metrics.observe(identity.node_id, publication.clone(), logs.clone());
        let (isr_changes, ticks) = (Arc::<IsrChanges>::default(), Arc::<Ticks>::default());
        let metrics = config.metrics.clone();
        let data = config.data.clone();
        let lifecycle = Lifecycle {
            control: control.clone(),
            identity: identity.clone(),
            publication: publication.clone(),
            endpoints: config.endpoints,
            rack: config.rack,
            previous_broker_epoch: lives.previous_broker_epoch(logs.previous_broker_epoch()),
            lives: lives.clone(),
            heartbeat_interval: config.heartbeat_interval,
            controlled_shutdown_max: config.controlled_shutdown_max,
            signals: signals.clone(),
            offline: offline.clone(),
            metrics: metrics.clone(),
        };
        let reporter = OfflineReporter {
            control: control.clone(),
            identity: identity.clone(),
            publication: publication.clone(),
            offline: offline.clone(),
        };
        let departures = Arc::<Departures>::default();
        let reconciler = Reconciler {
            departures: departures.clone(),
            identity: identity.clone(),
            publication: publication.clone(),
            registry: registry.clone(),
            streams: Arc::new(FollowerStreams::new(peers.clone(), data.clone(), metrics.clone())),
            signals: signals.clone(),
            ticks: ticks.clone(),
            events: Arc::new(Events {
                publication: publication.clone(),
                isr_changes: isr_changes.clone(),
                ticks: ticks.clone(),
            }),
            logs: logs.clone(),
            offline,
            recovered: recovered.into_iter().map(|log| (log.id(), log)).collect::<HashMap<_, _>>(),
            timing: Timing { lag_max: config.replica_lag_max, ..Timing::default() },
            metrics: metrics.clone(),
            lives,
            durability: config.durability,
            followed: Arc::default(),
        };
        let sender = AlterPartitionSender {
            control: control.clone(),
            identity: identity.clone(),
            registry: registry.clone(),
            changes: isr_changes,
            metrics: metrics.clone(),
        };
        let leader_streams = LeaderStreams::new(
            registry.clone(),
            publication.clone(),
            metrics.clone(),
            departures.clone(),
        );
        let images = control.images();
        let visibility =
            Visibility { node_id: identity.node_id, peers, publication: publication.clone() };
        let work = Work { reconciler, sender, ticks, registry: registry.clone() };
        let thread = PartitionsThread::start(work, images)?;
        let broker = Arc::new(Self {
            identity,
            control,
            publication,
            registry,
            signals,
            producer_ids: ProducerIds::default(),
            visibility,
            logs,
            static_configs: config.static_configs,
            leader_streams: Arc::new(leader_streams),
            departures,
            metrics,
            data,
            partitions_thread: Mutex::new(Some(thread)),
        });
        config.control.spawn(lifecycle.run());
        config.control.spawn(reporter.run());
        config.control.spawn(keep_producer_ids(Arc::downgrade(&broker)));
        Ok(broker)
    }

    /// Moves leaderships away, then closes the logs cleanly. Partitions are served until they have moved, or until the
    /// configured bound. Nothing is served afterwards.
    pub async fn shut_down(&self) {
        self.signals.stop();
        self.signals.wait_for(|phase| *phase == Phase::Stopped).await;
        let thread = self.partitions_thread.lock().take();
        let Some(thread) = thread else { return };
        let (registry, logs) = (self.registry.clone(), self.logs.clone());
        let broker_epoch = self.identity.broker_epoch();
        let closing = tokio::task::spawn_blocking(move || {
            // No image is followed any more, so what is closed stays closed.
            thread.stop();
            for partition in registry.all().values() {
                partition.close();
            }
            logs.shut_down(broker_epoch);
        });
        match closing.await {
            Ok(()) => info!("logs closed"),
            Err(error) => error!(%error, "logs are not closed cleanly; they will be recovered"),
        }
    }

    /// Ends like a crash, before its runtimes do: no log is closed, nobody is told. Blocks.
    pub fn abandon(&self) {
        let thread = self.partitions_thread.lock().take();
        if let Some(thread) = thread {
            thread.stop();
        }
    }
}

async fn open_logs(
    config: &BrokerConfig,
    registry: &Arc<Registry>,
    news: &Arc<Notify>,
) -> Result<(LogDirs, RecoveredLogs), Error> {
    let news = news.clone();
    let storage = StorageConfig {
        dirs: config.log_dirs.clone(),
        durability: config.durability,
        retention_check_interval: config.retention_check_interval,
        recovery_threads: std::thread::available_parallelism().map_or(2, Into::into),
        compaction: config.compaction.clone(),
        min_free: config.log_dirs_min_free,
        progress: config.recovery.clone(),
        on_trouble: Arc::new(move || news.notify_one()),
    };
    let registry = registry.clone();
    let on_durable = Arc::new(move |log: &PartitionLog| {
        if let Some(partition) = registry.get(log.id()) {
            partition.on_durable();
        }
    });
    // Recovery reads what was not flushed cleanly: seconds, after a crash with much data.
    let opened = tokio::task::spawn_blocking(move || LogDirs::open(storage, on_durable)).await;
    Ok(opened.map_err(io::Error::other)??)
}

/// Keeps one block of producer ids in reserve.
async fn keep_producer_ids(broker: std::sync::Weak<Broker>) {
    let Some(signals) = broker.upgrade().map(|broker| broker.signals.clone()) else { return };
    signals.wait_for(|phase| matches!(phase, Phase::Running | Phase::Stopped)).await;
    loop {
        let Some(broker) = broker.upgrade() else { return };
        let (node_id, broker_epoch) = (broker.node_id(), broker.identity.broker_epoch());
        let ids = &broker.producer_ids;
        if let Err(refusal) = ids.fill_reserve(&*broker.control, node_id, broker_epoch).await {
            info!(%refusal, "no producer ids in reserve");
        }
        drop(broker);
        signals.producer_ids_wanted().await;
    }
}

/// What the partitions thread does.
struct Work {
    reconciler: Reconciler,
    sender: AlterPartitionSender,
    ticks: Arc<Ticks>,
    registry: Arc<Registry>,
}

/// Runs everything that may wait for a partition's lock without serving anybody. Ends when this is dropped.
#[derive(Debug)]
pub(super) struct PartitionsThread {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl PartitionsThread {
    /// With a runtime of its own, for timers only: connections stay on the control runtime.
    fn start(mut work: Work, images: watch::Receiver<Arc<MetadataImage>>) -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let thread =
            std::thread::Builder::new().name("partitions".to_owned()).spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        _ = stopped => {}
                        () = work.reconciler.run(images) => {}
                        () = work.sender.run() => {}
                        () = work.ticks.run(&work.registry) => {}
                    }
                });
            })?;
        Ok(Self { stop, thread })
    }

    /// Returns when the thread has ended. Blocks.
    fn stop(self) {
        // It may have ended by itself, with the quorum.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            error!("the partitions thread has panicked");
        }
    }
}
