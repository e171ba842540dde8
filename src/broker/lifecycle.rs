//! The life of this broker in the eyes of the active controller (replication.md 1.5).
//!
//! ```text
//! register -> catch up to the own broker epoch -> fenced -> running -> stopping -> stopped
//!     ^                                             |          |
//!     +----------- STALE_BROKER_EPOCH --------------+----------+
//! ```
//! Heartbeats start with the registration and go out every 100 ms, and at once when there is something to say.
//!
//! Invariant: nothing here waits for a data disk (design D10): it reads atomics and watches, and talks to the
//! controller. It never touches a partition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::control_plane::{ControlPlane, Unanswered};
use super::metrics::Metrics;
use super::offline::Offline;
use super::previous_life::Lives;
use super::publication::Publication;
use crate::controller::{
    ControllerCall, ControllerReply, ControllerRequest, HeartbeatReply, HeartbeatRequest, Refusal,
    RegisterBrokerRequest,
};
use crate::metadata::RegisterBrokerRecord;
use crate::net::Identity;
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, Endpoints, time};

/// How long one registration may take before it is sent again.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(2);
const REGISTER_RETRY: Duration = Duration::from_millis(50);
/// After a refusal, which is not likely to change soon.
const REFUSED_RETRY: Duration = Duration::from_millis(200);
/// A problem that lasts is logged again after this.
const COMPLAIN_EVERY: Duration = Duration::from_secs(5);
/// Heartbeats of a stopping broker: it waits for each of them.
const STOPPING_INTERVAL: Duration = Duration::from_millis(20);
/// A stopping broker that does not hear from any controller for this long stops without one.
const STOPPING_SILENCE_MAX: Duration = Duration::from_secs(1);
/// A running broker that does not hear from any controller for this long is not ready any more.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// Where the broker is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not registered; says why if a controller refused it.
    Registering {
        refused: Option<String>,
    },
    /// Registered, and following the metadata up to its registration.
    CatchingUp,
    /// The controller sends no clients here.
    Fenced,
    Running,
    /// It was running, but no controller has answered for a while: it may be fenced by now, and not know.
    Unheard,
    /// Asked for a controlled shutdown.
    Stopping,
    /// The controller expects no more heartbeats, or they are of no use.
    Stopped,
}

/// What the broker tells about itself.
#[derive(Debug)]
pub(super) struct Lifecycle {
    pub(super) control: Arc<dyn ControlPlane>,
    pub(super) identity: Arc<Identity>,
    pub(super) publication: Arc<Publication>,
    pub(super) endpoints: Endpoints,
    pub(super) rack: Option<String>,
    /// The registration before, if nothing that counted under it can be lost.
    pub(super) previous_broker_epoch: BrokerEpoch,
    pub(super) lives: Arc<Lives>,
    pub(super) heartbeat_interval: Duration,
    pub(super) controlled_shutdown_max: Duration,
    pub(super) signals: Arc<Signals>,
    pub(super) offline: Arc<Offline>,
    pub(super) metrics: Metrics,
}

/// How the rest of the broker and its lifecycle talk.
#[derive(Debug)]
pub(super) struct Signals {
    phase: watch::Sender<Phase>,
    stop: watch::Sender<bool>,
    heartbeat: Notify,
    producer_ids: Notify,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self {
            phase: watch::channel(Phase::Registering { refused: None }).0,
            stop: watch::channel(false).0,
            heartbeat: Notify::new(),
            producer_ids: Notify::new(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    pub(super) async fn wait_for(&self, mut reached: impl FnMut(&Phase) -> bool) {
        // The sender lives in `self`, so the channel cannot close meanwhile.
        let _ = self.phase.subscribe().wait_for(|phase| reached(phase)).await;
    }

    /// There is news for the controller: do not wait for the next interval.
    pub(super) fn heartbeat_soon(&self) {
        self.heartbeat.notify_one();
    }

    /// The reserve of producer ids is in use.
    pub(super) fn want_producer_ids(&self) {
        self.producer_ids.notify_one();
    }

    pub(super) async fn producer_ids_wanted(&self) {
        self.producer_ids.notified().await;
    }

    /// Asks for a controlled shutdown.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
        self.heartbeat.notify_one();
    }

    fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    fn set_phase(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let changed = *current != phase;
            if changed {
                *current = phase;
            }
            changed
        });
    }
}

/// Why heartbeats under one broker epoch ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    /// The controller does not know this registration any more.
    Unregistered,
    Stopped,
}

impl Lifecycle {
    /// Returns when the broker is stopped.
    pub(super) async fn run(self) {
        loop {
            let Some(broker_epoch) = self.register().await else {
                break;
            };
            match self.live(broker_epoch).await {
                Ended::Stopped => break,
                Ended::Unregistered => warn!(
                    %broker_epoch,
                    "the controller does not know this registration any more; registering again"
                ),
            }
        }
        self.signals.set_phase(Phase::Stopped);
    }

    /// Asks until a controller accepts. `None` when the broker stops first.
    async fn register(&self) -> Option<BrokerEpoch> {
        self.signals.set_phase(Phase::Registering { refused: None });
        let mut complaint = Complaint::default();
        let mut stop = self.signals.stop.subscribe();
        loop {
            let answer = tokio::select! {
                biased; // A broker that stops needs no registration.
                _ = stop.wait_for(|stop| *stop) => return None,
                answer = self.control.submit(self.registration(), REGISTER_TIMEOUT) => answer,
            };
            let pause = match answer {
                Ok(Ok(ControllerReply::RegisterBroker { broker_epoch })) => {
                    self.identity.set_broker_epoch(broker_epoch);
                    info!(%broker_epoch, "registered");
                    let lives = self.lives.clone();
                    tokio::task::spawn_blocking(move || lives.begin(broker_epoch));
                    return Some(broker_epoch);
                }
                Ok(Ok(other)) => {
                    complaint.log(&format!("unexpected reply to a registration: {other:?}"));
                    REFUSED_RETRY
                }
                Ok(Err(refusal)) => {
                    let refused = Some(refusal.to_string());
                    self.signals.set_phase(Phase::Registering { refused });
                    complaint.log(&explain(&refusal));
                    REFUSED_RETRY
                }
                Err(Unanswered(reason)) => {
                    complaint.log_later(&format!("cannot register yet: {reason}"));
                    REGISTER_RETRY
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    fn registration(&self) -> ControllerCall {
        let identity = &self.identity;
        let registration = RegisterBrokerRecord {
            node_id: identity.node_id,
            incarnation: identity.incarnation,
            raft_node_id: identity.directory_id.raft_node_id(),
            directory_ids: vec![identity.directory_id],
            endpoints: self.endpoints.clone(),
            rack: self.rack.clone(),
            features: BTreeMap::from([("metadata.version".to_owned(), (1, 1))]),
        };
        self.call(ControllerRequest::RegisterBroker(RegisterBrokerRequest {
            cluster_id: identity.cluster_id().unwrap_or(crate::types::Uuid::ZERO),
            registration,
            previous_broker_epoch: self.previous_broker_epoch,
            supersede: false,
        }))
    }

    fn call(&self, request: ControllerRequest) -> ControllerCall {
        ControllerCall { principal: format!("broker-{}", self.identity.node_id), request }
    }

    /// Heartbeats under one broker epoch.
    async fn live(&self, broker_epoch: BrokerEpoch) -> Ended {
        self.signals.set_phase(Phase::CatchingUp);
        let caught_up = self.publication.wait_applied(own_index(broker_epoch));
        tokio::pin!(caught_up);
        let mut is_caught_up = false;
        let mut stopping = Stopping::default();
        let mut last_answer = time::now();
        loop {
            let heard = self.heartbeat(broker_epoch).await;
            let now = time::now();
            match &heard {
                Ok(Ok(reply)) => {
                    last_answer = now;
                    stopping.on_reply(now);
                    self.on_reply(reply, is_caught_up);
                    if reply.should_shut_down && self.signals.is_stopping() {
                        return Ended::Stopped;
                    }
                }
                Ok(Err(refusal)) if is_unregistered(refusal) => {
                    // A stopping broker has nothing left to hand over.
                    let stopping = self.signals.is_stopping();
                    return if stopping { Ended::Stopped } else { Ended::Unregistered };
                }
                Ok(Err(_)) | Err(_) => {
                    self.metrics.heartbeats_unanswered.inc();
                    let is_silent = now.duration_since(last_answer) > SILENCE_MAX;
                    if is_silent && self.signals.phase() == Phase::Running {
                        self.signals.set_phase(Phase::Unheard);
                    }
                }
            }
            if self.signals.is_stopping() && stopping.gives_up(now, self.controlled_shutdown_max) {
                warn!(last_answer = ?heard, "stopping without the controller's consent");
                return Ended::Stopped;
            }
            let next = if self.signals.is_stopping() {
                now + STOPPING_INTERVAL
            } else {
                // The answer came a moment after a grain.
                time::round_up_to_grain(now + self.heartbeat_interval - time::GRAIN / 2)
            };
            tokio::select! {
                () = &mut caught_up, if !is_caught_up => {
                    is_caught_up = true;
                    self.signals.set_phase(Phase::Fenced);
                }
                () = self.signals.heartbeat.notified() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
    }

    async fn heartbeat(
        &self,
        broker_epoch: BrokerEpoch,
    ) -> Result<Result<HeartbeatReply, Refusal>, Unanswered> {
        let node_id = self.identity.node_id;
        let request = ControllerRequest::Heartbeat(HeartbeatRequest {
            node_id,
            broker_epoch,
            applied_index: self.publication.applied_index(),
            want_fence: self
                .publication
                .with_image(|image| self.offline.holds_back(image, node_id)),
            want_shutdown: self.signals.is_stopping(),
            disk_stall_ms: self.offline.disk_stall_ms(),
        });
        // A lost heartbeat must not delay the next ones much: the session lasts a few intervals only.
        let within = self.heartbeat_interval * 2;
        match self.control.submit(self.call(request), within).await? {
            Ok(ControllerReply::Heartbeat(reply)) => Ok(Ok(reply)),
            Ok(other) => Err(Unanswered(format!("unexpected reply to a heartbeat: {other:?}"))),
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    fn on_reply(&self, reply: &HeartbeatReply, is_caught_up: bool) {
        let phase = match (is_caught_up, self.signals.is_stopping(), reply.is_fenced) {
            (_, true, _) => Phase::Stopping,
            (false, _, _) => Phase::CatchingUp,
            (true, false, true) => Phase::Fenced,
            (true, false, false) => Phase::Running,
        };
        self.signals.set_phase(phase);
    }
}

/// How far a controlled shutdown is.
#[derive(Debug, Default)]
struct Stopping {
    since: Option<Instant>,
    last_reply: Option<Instant>,
}

impl Stopping {
    fn on_reply(&mut self, now: Instant) {
        self.last_reply = Some(now);
    }

    /// Called after each heartbeat of a stopping broker.
    fn gives_up(&mut self, now: Instant, controlled_shutdown_max: Duration) -> bool {
        let since = *self.since.get_or_insert(now);
        let silent_since = self.last_reply.map_or(since, |last| last.max(since));
        now.duration_since(since) >= controlled_shutdown_max
            || now.duration_since(silent_since) >= STOPPING_SILENCE_MAX
    }
}

/// Logs the first of a series of equal problems, and then one now and then.
#[derive(Debug, Default)]
struct Complaint {
    logged: Option<Instant>,
}

impl Complaint {
    fn log(&mut self, sentence: &str) {
        let now = time::now();
        if self.logged.is_none_or(|logged| now.duration_since(logged) >= COMPLAIN_EVERY) {
            self.logged = Some(now);
            warn!("{sentence}");
        }
    }

    /// For what is normal for a while at the start.
    fn log_later(&mut self, sentence: &str) {
        match self.logged {
            None => self.logged = Some(time::now()),
            Some(_) => self.log(sentence),
        }
    }
}

fn explain(refusal: &Refusal) -> String {
    match refusal.code {
        ErrorCode::DuplicateBrokerRegistration => format!(
            "another process with this node id is registered and seems alive; trying again until it is gone ({})",
            refusal.message
        ),
        _ => format!("the controller refused the registration of this broker: {refusal}"),
    }
}

fn is_unregistered(refusal: &Refusal) -> bool {
    matches!(refusal.code, ErrorCode::StaleBrokerEpoch | ErrorCode::BrokerIdNotRegistered)
}

/// The metadata index of the registration with this epoch.
fn own_index(broker_epoch: BrokerEpoch) -> u64 {
    u64::try_from(broker_epoch.0).unwrap_or(0)
}

#[cfg(test)]
#[path = "lifecycle_test.rs"]
mod tests;
