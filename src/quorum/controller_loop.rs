//! The active controller's single-writer loop, and the soft state that every voter keeps.
//!
//! ```text
//! calls, fences --> queue --> turn: decide all on a clone of the image --> one batch --> applied --> answers
//!                     ^          one batch in flight; what arrives meanwhile is the next turn
//! ```
//!
//! Invariant: nothing is decided before this leadership's own first entry is applied, and nothing is answered before
//! its batch is applied or, without a batch, before leadership was confirmed after the request arrived
//! (replication.md 1.1 R2, R3). A proposal whose fate is not known is answered as unknown, never as failed (R4).
//! `evidence` has the part that judges who is alive, `propose` the part that waits for Raft.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use openraft::{ReadPolicy, ServerState};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tracing::{debug, info};

use super::Timing;
use super::propose::{RETRY, TurnEnd, confirm, propose};
use super::raft::{Raft, TypeConfig};
use super::transport::Transport;
use crate::controller::{
    ClusterDefaults, ControllerCall, ControllerReply, ControllerRequest, DecisionContext,
    DecisionRequest, Liveness, LivenessConfig, PendingReply, ProbeVerdict, Refusal, Turn,
    heartbeat_reply,
};
use crate::metadata::MetadataImage;
use crate::net::{BoxFuture, Identity};
use crate::protocol::native::NodeHello;
use crate::types::{IncarnationId, NodeId, random, time};

/// A turn ends when it has this many records, so that one batch stays quick to replicate and replay.
const TURN_RECORDS_MAX: usize = 20_000;
/// Requests that may wait for a turn.
pub(super) const QUEUE_MAX: usize = 4096;
const TICK: Duration = Duration::from_millis(60);

/// Why a request got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Certainly not applied.
    NotController,
    /// Perhaps applied.
    Unknown,
}

pub(super) type Answer = Result<Result<ControllerReply, Refusal>, Unanswered>;
pub(super) type Answering = oneshot::Sender<Answer>;

#[derive(Debug)]
pub(super) enum Event {
    Call(ControllerCall, Answering),
    /// A registration whose predecessor was probed.
    Checked(ControllerCall, Answering),
    PeerLost(NodeHello),
    Probed {
        node_id: NodeId,
        incarnation: IncarnationId,
        verdict: ProbeVerdict,
    },
}

/// What the loop works with.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) raft: Raft,
    pub(super) images: watch::Receiver<Arc<MetadataImage>>,
    pub(super) transport: Transport,
    pub(super) identity: Arc<Identity>,
    pub(super) events: mpsc::WeakSender<Event>,
    pub(super) liveness: LivenessConfig,
    pub(super) timing: Timing,
    pub(super) partition_count: i32,
    pub(super) replication_factor: Option<i16>,
    pub(super) balance: Option<Duration>,
}

struct Waiting {
    request: DecisionRequest,
    /// `None` for what the controller's own soft state asks for.
    answering: Option<Answering>,
}

enum Pending {
    Decided(PendingReply),
    Refused(Refusal),
}

struct InFlight {
    end: BoxFuture<'static, TurnEnd>,
    answers: Vec<(Answering, Pending)>,
}

enum Role {
    Standby,
    /// Leads, but its own first entry may not be applied yet.
    Taking {
        term: u64,
        ready: BoxFuture<'static, bool>,
    },
    Active {
        term: u64,
    },
}

pub(super) struct ControllerLoop {
    pub(super) tools: Tools,
    pub(super) server:
        WatchReceiverOf<TypeConfig, openraft::metrics::RaftServerMetrics<TypeConfig>>,
    pub(super) liveness: Liveness,
    pub(super) session: Duration,
    started: Instant,
    pub(super) last_tick: Instant,
    /// When leaders are looked at that are not where they should be.
    pub(super) next_balance: Instant,
    /// The last heartbeat of a leader that hears no majority, and has fallen silent.
    pub(super) last_sign: Option<Instant>,
    /// Under way; one at a time.
    pub(super) membership_change: Option<JoinHandle<()>>,
    /// The last tick found that this controller was not served in time.
    pub(super) is_stalled: bool,
    role: Role,
    defaults: Option<ClusterDefaults>,
    queue: VecDeque<Waiting>,
    /// Refusals of heartbeats, which need no decision but do need confirmed leadership.
    refused: Vec<(Answering, Refusal)>,
    in_flight: Option<InFlight>,
}

impl ControllerLoop {
    pub(super) fn new(tools: Tools) -> Self {
        let now = time::now();
        Self {
            server: tools.raft.server_metrics(),
            session: tools.liveness.session,
            liveness: Liveness::new(tools.liveness.clone()),
            tools,
            started: now,
            last_tick: now,
            next_balance: now,
            last_sign: None,
            membership_change: None,
            is_stalled: false,
            role: Role::Standby,
            defaults: None,
            queue: VecDeque::new(),
            refused: Vec::new(),
            in_flight: None,
        }
    }

    /// Runs until Raft stops or nobody can send events any more.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let first_tick = time::round_up_to_grain(time::now());
        let mut ticks = tokio::time::interval_at(first_tick.into(), TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.on_server_state();
        loop {
            let is_active = matches!(self.role, Role::Active { .. });
            tokio::select! {
                // Leadership first: nothing may be decided or answered after it is gone. Then answers, so that a flood
                // of requests does not hold them back.
                biased;
                changed = self.server.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    self.on_server_state();
                }
                ready = ready(&mut self.role) => self.on_ready(ready),
                end = turn_end(&mut self.in_flight) => self.on_turn_end(end),
                event = events.recv(), if self.queue.len() < QUEUE_MAX => match event {
                    Some(event) => self.on_event(event),
                    None => return,
                },
                _ = ticks.tick(), if is_active => self.on_tick(),
            }
            // Whatever else is there already belongs to the same turn.
            while self.queue.len() < QUEUE_MAX
                && let Ok(event) = events.try_recv()
            {
                self.on_event(event);
            }
            self.begin_turn();
        }
    }

    pub(super) fn now(&self) -> Duration {
        time::now().saturating_duration_since(self.started)
    }

    pub(super) fn image(&self) -> Arc<MetadataImage> {
        self.tools.images.borrow().clone()
    }

    fn on_server_state(&mut self) {
        let (leads, term) = {
            let server = self.server.borrow_watched();
            let vote = &server.vote;
            let leads = server.state == ServerState::Leader && vote.is_committed();
            (leads, vote.leader_id().term)
        };
        let present = match &self.role {
            Role::Standby => None,
            Role::Taking { term, .. } | Role::Active { term } => Some(*term),
        };
        let wanted = leads.then_some(term);
        if present == wanted {
            return;
        }
        if present.is_some() {
            self.step_down();
        }
        if let Some(term) = wanted {
            // Confirms leadership, and waits until everything up to this term's first entry is applied.
            let raft = self.tools.raft.clone();
            let ready =
                Box::pin(
                    async move { raft.ensure_linearizable(ReadPolicy::ReadIndex).await.is_ok() },
                );
            self.role = Role::Taking { term, ready };
        }
    }

    fn on_ready(&mut self, ready: bool) {
        let Role::Taking { term, .. } = self.role else { return };
        if !ready {
            // No quorum yet. If leadership is gone, the server state will say so.
            let raft = self.tools.raft.clone();
            let ready = Box::pin(async move {
                tokio::time::sleep(RETRY).await;
                raft.ensure_linearizable(ReadPolicy::ReadIndex).await.is_ok()
            });
            self.role = Role::Taking { term, ready };
            return;
        }
        let Some(cluster_id) = self.tools.identity.cluster_id() else { return };
        self.defaults = Some(ClusterDefaults {
            partition_count: self.tools.partition_count,
            replication_factor: self.tools.replication_factor,
            cluster_id,
        });
        self.role = Role::Active { term };
        self.last_tick = time::now();
        info!(term, "this node is the active controller");
        let effects = self.liveness.on_elected(&self.image(), self.now());
        self.execute(effects);
    }

    fn step_down(&mut self) {
        if matches!(self.role, Role::Active { .. }) {
            info!("this node is no longer the active controller");
            self.liveness.on_deposed();
        }
        if self.last_sign.take().is_some() {
            self.tools.raft.runtime_config().heartbeat(true);
        }
        self.role = Role::Standby;
        if let Some(InFlight { answers, .. }) = self.in_flight.take() {
            for (answering, _) in answers {
                let _ = answering.send(Err(Unanswered::Unknown));
            }
        }
        for waiting in self.queue.drain(..) {
            if let Some(answering) = waiting.answering {
                let _ = answering.send(Err(Unanswered::NotController));
            }
        }
        for (answering, _) in self.refused.drain(..) {
            let _ = answering.send(Err(Unanswered::NotController));
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Call(call, answering) => self.on_call(call, answering),
            Event::Checked(call, answering) => {
                self.enqueue(DecisionRequest::Call(call), Some(answering));
            }
            Event::PeerLost(node) => {
                let now = self.now();
                if matches!(self.role, Role::Standby) {
                    // Nothing ticks on a standby, so old evidence goes when new one comes.
                    let effects = self.liveness.on_tick(&self.image(), now);
                    self.execute(effects);
                }
                let effects = self.liveness.on_peer_lost(node.node_id, node.incarnation, now);
                self.execute(effects);
            }
            Event::Probed { node_id, incarnation, verdict } => {
                debug!(%node_id, ?verdict, "probed");
                if verdict == ProbeVerdict::Dead {
                    self.succeed(node_id);
                }
                let now = self.now();
                let image = self.image();
                let effects = self.liveness.on_probe(&image, node_id, incarnation, verdict, now);
                self.execute(effects);
            }
        }
    }

    fn on_call(&mut self, mut call: ControllerCall, answering: Answering) {
        // Without a quorum nothing that is asked now will come to an end here.
        if matches!(self.role, Role::Standby) || self.is_cut_off() {
            let _ = answering.send(Err(Unanswered::NotController));
            return;
        }
        let image = self.image();
        match &mut call.request {
            ControllerRequest::Heartbeat(request) => {
                self.liveness.on_heartbeat(request, self.now());
                // Without a quorum it cannot know what it would promise: another may lead, and have fenced this broker.
                if !matches!(self.role, Role::Active { .. }) || self.is_cut_off() {
                    let _ = answering.send(Err(Unanswered::NotController));
                    return;
                }
                match heartbeat_reply(&image, &self.liveness, request) {
                    Ok((reply, asked)) => {
                        let _ = answering.send(Ok(Ok(ControllerReply::Heartbeat(reply))));
                        if let Some(request) = asked {
                            self.enqueue(request, None);
                        }
                    }
                    Err(refusal) => self.refused.push((answering, refusal)),
                }
            }
            ControllerRequest::RegisterBroker(request) => {
                request.supersede = false;
                let predecessor = image.broker(request.registration.node_id).filter(|broker| {
                    broker.registration.incarnation != request.registration.incarnation
                });
                let Some(predecessor) = predecessor else {
                    self.enqueue(DecisionRequest::Call(call), Some(answering));
                    return;
                };
                let probe = self
                    .probe(predecessor.registration.node_id, predecessor.registration.incarnation);
                let events = self.tools.events.clone();
                tokio::spawn(async move {
                    let verdict = probe.await;
                    if let ControllerRequest::RegisterBroker(request) = &mut call.request {
                        request.supersede = verdict == ProbeVerdict::Dead;
                    }
                    if let Some(events) = events.upgrade() {
                        // A loop that is gone answers nobody; the caller sees its answer dropped.
                        let _ = events.send(Event::Checked(call, answering)).await;
                    }
                });
            }
            ControllerRequest::AddVoter { .. }
            | ControllerRequest::RemoveVoter { .. }
            | ControllerRequest::TransferController { .. } => {
                self.change_quorum(&call.request, answering);
            }
            _ => self.enqueue(DecisionRequest::Call(call), Some(answering)),
        }
    }

    pub(super) fn enqueue(&mut self, request: DecisionRequest, answering: Option<Answering>) {
        if matches!(self.role, Role::Standby) {
            if let Some(answering) = answering {
                let _ = answering.send(Err(Unanswered::NotController));
            }
            return;
        }
        // A broker that waits to be unfenced asks with every heartbeat.
        let is_repeated =
            answering.is_none() && self.queue.iter().any(|waiting| waiting.request == request);
        if !is_repeated {
            self.queue.push_back(Waiting { request, answering });
        }
    }

    fn begin_turn(&mut self) {
        let Role::Active { term } = self.role else { return };
        if self.in_flight.is_some() || (self.queue.is_empty() && self.refused.is_empty()) {
            return;
        }
        let Some(defaults) = &self.defaults else { return };
        let image = self.image();
        let context = DecisionContext {
            now_ms: time::wall_ms(),
            seed: random::seed(),
            liveness: &self.liveness,
            defaults,
        };
        let mut turn = Turn::begin(&image, context);
        let mut answers: Vec<_> = self
            .refused
            .drain(..)
            .map(|(answering, refusal)| (answering, Pending::Refused(refusal)))
            .collect();
        while turn.record_count() < TURN_RECORDS_MAX
            && let Some(waiting) = self.queue.pop_front()
        {
            // Who gave up does not want it done any more.
            if waiting.answering.as_ref().is_some_and(Answering::is_closed) {
                continue;
            }
            let reply = turn.decide(&waiting.request);
            answers.extend(waiting.answering.map(|a| (a, Pending::Decided(reply))));
        }
        let raft = self.tools.raft.clone();
        let end: BoxFuture<'static, TurnEnd> = match turn.finish(term) {
            Some(batch) => Box::pin(propose(raft, term, Arc::new(batch))),
            None if answers.is_empty() => return,
            None => Box::pin(confirm(raft, term, image.index)),
        };
        self.in_flight = Some(InFlight { end, answers });
    }

    fn on_turn_end(&mut self, end: TurnEnd) {
        let Some(InFlight { answers, .. }) = self.in_flight.take() else { return };
        for (answering, pending) in answers {
            let answer = match (end, pending) {
                (TurnEnd::Unanswered(why), _) => Err(why),
                (TurnEnd::Settled(index), Pending::Decided(reply)) => Ok(reply.settled_at(index)),
                (TurnEnd::Settled(_), Pending::Refused(refusal)) => Ok(Err(refusal)),
            };
            // A caller that gave up has been told that it does not know.
            let _ = answering.send(answer);
        }
    }
}

async fn ready(role: &mut Role) -> bool {
    match role {
        Role::Taking { ready, .. } => ready.await,
        Role::Standby | Role::Active { .. } => pending().await,
    }
}

async fn turn_end(in_flight: &mut Option<InFlight>) -> TurnEnd {
    match in_flight {
        Some(in_flight) => (&mut in_flight.end).await,
        None => pending().await,
    }
}
