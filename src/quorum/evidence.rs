//! Who is alive: the shell around [`Liveness`](crate::controller::Liveness) (replication.md 1.5, 2.12).
//!
//! A lost socket starts a probe, on every voter; a probe's verdict is kept there, and fences at the active controller. On
//! the others it ends the wait for a leader that is known to be dead.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::{Duration, Instant};

use openraft::Instant as _;
use openraft::async_runtime::WatchReceiver;
use tracing::{info, warn};

use super::Timing;
use super::controller_loop::{ControllerLoop, Event};
use super::propose::RETRY;
use crate::controller::{DecisionRequest, LivenessEffect, ProbeVerdict, misplaced};
use crate::net::ProbeOutcome;
use crate::types::{IncarnationId, NodeId, time};

/// Leaders that move at once.
const MOVES_MAX: usize = 1000;
const MOVES_PAUSE: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_millis(150);

impl ControllerLoop {
    pub(super) fn on_tick(&mut self) {
        let now = time::now();
        let late = now.saturating_duration_since(self.last_tick) > self.session / 2;
        self.last_tick = now;
        let is_stalled = late || self.is_cut_off();
        let was_stalled = std::mem::replace(&mut self.is_stalled, is_stalled);
        if is_stalled {
            self.liveness.on_stall(self.now());
        }
        if is_stalled && !was_stalled {
            warn!("this controller was not served in time; nobody's silence counts meanwhile");
        }
        self.make_way(is_stalled && was_stalled && !late, now);
        let effects = self.liveness.on_tick(&self.image(), self.now());
        self.execute(effects);
        self.replace_lost_voters();
        if let Some(interval) = self.tools.balance
            && now >= self.next_balance
        {
            self.balance(now, interval);
        }
    }

    /// Gives leadership back to first replicas whose brokers have been there for a while, a limited number at a time:
    /// each move makes clients look for the leader.
    fn balance(&mut self, now: Instant, interval: Duration) {
        let settled = self.liveness.settled(2 * interval);
        let partitions = misplaced(&self.image(), &settled, MOVES_MAX);
        let is_all = partitions.len() < MOVES_MAX;
        self.next_balance = now + if is_all { interval } else { interval.min(MOVES_PAUSE) };
        if !partitions.is_empty() {
            info!(partitions = partitions.len(), "leadership goes back to first replicas");
            self.enqueue(DecisionRequest::ElectPreferred { partitions }, None);
        }
    }

    /// A leader that is heard and hears nobody would keep the others from electing one that can decide. So it falls silent,
    /// but for a heartbeat now and then: the others may have been away, and not it.
    fn make_way(&mut self, is_cut_off: bool, now: Instant) {
        let raft = self.tools.raft.clone();
        if !is_cut_off {
            if self.last_sign.take().is_some() {
                raft.runtime_config().heartbeat(true);
            }
            return;
        }
        // Longer than a lease and the election after it.
        let pause = 3 * self.tools.timing.election_max;
        let Some(last_sign) = self.last_sign else {
            warn!("no majority is heard: this node makes way for another leader");
            raft.runtime_config().heartbeat(false);
            self.last_sign = Some(now);
            return;
        };
        if now.saturating_duration_since(last_sign) >= pause {
            self.last_sign = Some(now);
            // An error means that Raft has stopped.
            tokio::spawn(async move { raft.trigger().heartbeat().await });
        }
    }

    /// No acknowledgement of the quorum for half a session: then heartbeats may not have reached this node either.
    pub(super) fn is_cut_off(&self) -> bool {
        let data = self.tools.raft.data_metrics();
        let data = data.borrow_watched();
        let voters = self.server.borrow_watched().membership_config.voter_ids().count();
        voters > 1 && data.last_quorum_acked.is_some_and(|acked| acked.elapsed() > self.session / 2)
    }

    pub(super) fn execute(&mut self, effects: Vec<LivenessEffect>) {
        for effect in effects {
            match effect {
                LivenessEffect::Probe { node_id, incarnation } => {
                    let probe = self.probe(node_id, incarnation);
                    let events = self.tools.events.clone();
                    tokio::spawn(async move {
                        let verdict = probe.await;
                        if let Some(events) = events.upgrade() {
                            let probed = Event::Probed { node_id, incarnation, verdict };
                            let _ = events.send(probed).await;
                        }
                    });
                }
                LivenessEffect::Fence { node_id, broker_epoch, cause } => {
                    info!(%node_id, %broker_epoch, cause, "fencing a broker");
                    self.enqueue(DecisionRequest::Fence { node_id, broker_epoch, cause }, None);
                }
            }
        }
    }

    /// When the process that died was the leader's, there is nothing to wait for but the lease that its last heartbeat
    /// gave it. The voters go one after the other, so that they do not split the votes.
    pub(super) fn succeed(&self, dead: NodeId) {
        let server = self.server.borrow_watched();
        let vote = server.vote;
        let members = &server.membership_config;
        let leader = server.current_leader;
        let is_leader = leader
            .and_then(|leader| members.get_node(&leader))
            .is_some_and(|member| member.node_id == dead);
        let others = members.voter_ids().filter(|voter| Some(*voter) != leader);
        let rank = others.collect::<BTreeSet<_>>().iter().position(|voter| *voter == server.id);
        let (true, Some(rank)) = (is_leader, rank.and_then(|rank| u32::try_from(rank).ok())) else {
            return;
        };
        let Timing { heartbeat, election_max, .. } = self.tools.timing;
        let raft = self.tools.raft.clone();
        tokio::spawn(async move {
            tokio::time::sleep(election_max + heartbeat * rank).await;
            if raft.server_metrics().borrow_watched().vote == vote {
                // Raft refuses by itself while a lease holds. An error means that it has stopped.
                let _ = raft.trigger().elect(true).await;
            }
        });
    }

    /// Asks at the address that the broker registered. The listener of a dying process accepts a connection and drops it
    /// while the kernel closes one socket after the other, so an attempt without a verdict is repeated.
    pub(super) fn probe(
        &self,
        node_id: NodeId,
        incarnation: IncarnationId,
    ) -> impl Future<Output = ProbeVerdict> + Send + 'static {
        let image = self.image();
        let address =
            image.broker(node_id).map(|broker| broker.registration.endpoints.peer.clone());
        let transport = self.tools.transport.clone();
        async move {
            let Some(address) = address else { return ProbeVerdict::Unknown };
            let attempts = async {
                loop {
                    match transport.probe(&address, PROBE_TIMEOUT).await {
                        ProbeOutcome::Refused => return ProbeVerdict::Dead,
                        ProbeOutcome::Alive(who) if who.incarnation == incarnation => {
                            return ProbeVerdict::Alive;
                        }
                        ProbeOutcome::Alive(_) => return ProbeVerdict::Dead,
                        ProbeOutcome::Unknown(_) => tokio::time::sleep(RETRY).await,
                    }
                }
            };
            let verdict = tokio::time::timeout(PROBE_TIMEOUT, attempts).await;
            verdict.unwrap_or(ProbeVerdict::Unknown)
        }
    }
}
