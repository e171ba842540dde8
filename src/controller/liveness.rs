//! Who is alive: soft state of every voter, judged by the active controller only (replication.md 1.5, 2.12).
//!
//! A ladder: a closed socket is evidence and starts a probe; a refused probe, or one that another incarnation answers,
//! is death, and the broker is fenced at once; a silent broker is fenced when its session ends. Events go in at all
//! times, so that a voter that is elected already knows who died a moment ago. Fencing is always safe, because epochs
//! decide; it is only costly when wrong, so a broker that comes back from a wrong fencing gets a longer session.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::HeartbeatRequest;
use super::heartbeat::DISK_STALL_MAX_MS;
use crate::metadata::{BrokerImage, MetadataImage};
use crate::types::{BrokerEpoch, IncarnationId, MetadataIndex, NodeId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivenessConfig {
    /// A broker that is silent for this long is fenced.
    pub session: Duration,
    /// What damping may raise the session of a broker to that was fenced wrongly.
    pub session_max: Duration,
    /// Time without a wrong fencing after which a raised session is halved.
    pub damping_decay: Duration,
    /// How long a confirmed death is worth something to a newly elected controller.
    pub evidence_age_max: Duration,
}

impl Default for LivenessConfig {
    fn default() -> Self {
        Self {
            session: Duration::from_millis(700),
            session_max: Duration::from_secs(9),
            damping_decay: Duration::from_secs(150),
            evidence_age_max: Duration::from_secs(1),
        }
    }
}

/// What a probe (connect and WHOAMI) of a node told about one of its incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Connection refused, or another incarnation answered.
    Dead,
    Alive,
    /// Timed out.
    Unknown,
}

/// What the shell has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LivenessEffect {
    /// Connect to the node's peer address and ask WHOAMI; report by [`Liveness::on_probe`].
    Probe { node_id: NodeId, incarnation: IncarnationId },
    /// Decide [`super::DecisionRequest::Fence`].
    Fence { node_id: NodeId, broker_epoch: BrokerEpoch, cause: String },
}

/// All times are since one start of the caller's choice, on a monotonic clock.
#[derive(Debug)]
pub struct Liveness {
    config: LivenessConfig,
    is_active_controller: bool,
    brokers: BTreeMap<NodeId, Contact>,
    /// Incarnations that a probe found dead, and when.
    deaths: BTreeMap<(NodeId, IncarnationId), Duration>,
    /// Probes under way, and since when. One whose answer got lost does not stop the next for ever.
    probes: BTreeMap<(NodeId, IncarnationId), Duration>,
    /// The latest time that any event had.
    now: Duration,
    last_tick: Option<Duration>,
    /// Set while many brokers are silent at once: more likely it is this controller that does not hear.
    mass_silence_until: Option<Duration>,
}

/// One life of one broker.
#[derive(Debug, Clone)]
struct Contact {
    broker_epoch: BrokerEpoch,
    last_heard: Duration,
    applied_index: Option<MetadataIndex>,
    disk_stall_ms: u32,
    /// When it was fenced for silence. If it speaks again, that was wrong.
    fenced_for_silence: Option<Duration>,
    /// The session is doubled this many times, since then.
    damping: u32,
    damped_at: Duration,
    /// As far as this controller knows.
    unfenced_since: Option<Duration>,
}

impl Contact {
    fn new(broker_epoch: BrokerEpoch, now: Duration) -> Self {
        Self {
            broker_epoch,
            last_heard: now,
            applied_index: None,
            disk_stall_ms: 0,
            fenced_for_silence: None,
            damping: 0,
            damped_at: now,
            unfenced_since: None,
        }
    }

    fn session(&self, config: &LivenessConfig) -> Duration {
        config.session.saturating_mul(1 << self.damping.min(16)).min(config.session_max)
    }

    fn is_stalled(&self) -> bool {
        self.disk_stall_ms >= DISK_STALL_MAX_MS
    }

    /// Another life of the same broker: what was learnt about its connection stays.
    fn reborn(&self, broker_epoch: BrokerEpoch, now: Duration) -> Self {
        Self { damping: self.damping, damped_at: self.damped_at, ..Self::new(broker_epoch, now) }
    }
}

impl Liveness {
    pub fn new(config: LivenessConfig) -> Self {
        Self {
            config,
            is_active_controller: false,
            brokers: BTreeMap::new(),
            deaths: BTreeMap::new(),
            probes: BTreeMap::new(),
            now: Duration::ZERO,
            last_tick: None,
            mass_silence_until: None,
        }
    }

    /// This voter is the active controller, and `image` is applied up to its first entry. Everybody gets a new
    /// session, except those whose death it witnessed: they are probed once more.
    pub fn on_elected(&mut self, image: &MetadataImage, now: Duration) -> Vec<LivenessEffect> {
        self.is_active_controller = true;
        self.now = now;
        self.last_tick = Some(now);
        self.brokers.clear();
        self.probes.clear();
        self.follow(image, now);
        let deaths = std::mem::take(&mut self.deaths);
        let unfenced = |node_id: NodeId, incarnation: IncarnationId| {
            image.broker(node_id).is_some_and(|broker| {
                !broker.fenced && broker.registration.incarnation == incarnation
            })
        };
        let mut effects = Vec::new();
        for ((node_id, incarnation), at) in deaths {
            if now.saturating_sub(at) < self.config.evidence_age_max
                && unfenced(node_id, incarnation)
            {
                effects.extend(self.probe(node_id, incarnation, now));
            }
        }
        effects
    }

    /// This voter is not the active controller any more.
    pub fn on_deposed(&mut self) {
        self.is_active_controller = false;
        self.brokers.clear();
        self.last_tick = None;
        self.mass_silence_until = None;
    }

    pub fn on_heartbeat(&mut self, request: &HeartbeatRequest, now: Duration) {
        self.now = self.now.max(now);
        if !self.is_active_controller {
            return;
        }
        let contact = self
            .brokers
            .entry(request.node_id)
            .or_insert_with(|| Contact::new(request.broker_epoch, now));
        if request.broker_epoch < contact.broker_epoch {
            return;
        }
        if request.broker_epoch > contact.broker_epoch {
            *contact = contact.reborn(request.broker_epoch, now);
        }
        if contact.fenced_for_silence.take().is_some() {
            contact.damping += 1;
            contact.damped_at = now;
        }
        contact.last_heard = now;
        contact.disk_stall_ms = request.disk_stall_ms;
        contact.applied_index = contact.applied_index.max(Some(request.applied_index));
    }

    /// A socket to that incarnation closed. Evidence, not a verdict: it is probed.
    pub fn on_peer_lost(
        &mut self,
        node_id: NodeId,
        incarnation: IncarnationId,
        now: Duration,
    ) -> Vec<LivenessEffect> {
        self.now = self.now.max(now);
        self.probe(node_id, incarnation, now).into_iter().collect()
    }

    /// `image` is the applied one.
    pub fn on_probe(
        &mut self,
        image: &MetadataImage,
        node_id: NodeId,
        incarnation: IncarnationId,
        verdict: ProbeVerdict,
        now: Duration,
    ) -> Vec<LivenessEffect> {
        self.now = self.now.max(now);
        self.probes.remove(&(node_id, incarnation));
        match verdict {
            ProbeVerdict::Dead => {
                self.deaths.insert((node_id, incarnation), now);
            }
            ProbeVerdict::Alive => {
                self.deaths.remove(&(node_id, incarnation));
            }
            ProbeVerdict::Unknown => {}
        }
        self.fence_dead(image)
    }

    /// Call every 50 ms or so, at least four times a session, also when not the active controller.
    pub fn on_tick(&mut self, image: &MetadataImage, now: Duration) -> Vec<LivenessEffect> {
        self.now = self.now.max(now);
        let age_max = self.config.evidence_age_max;
        self.deaths.retain(|_, at| now.saturating_sub(*at) < age_max);
        if !self.is_active_controller {
            return Vec::new();
        }
        // What was not served for that long may have missed heartbeats that lie in its queues.
        let late = now.saturating_sub(self.last_tick.unwrap_or(now)) > self.config.session / 2;
        self.last_tick = Some(now);
        if late {
            self.on_stall(now);
        }
        self.follow(image, now);
        let mut effects = self.fence_dead(image);
        effects.extend(self.judge_silence(image, now));
        effects
    }

    /// The controller itself was not served (late timer, no acknowledgement of the quorum): silence proves nothing.
    pub fn on_stall(&mut self, now: Duration) {
        for contact in self.brokers.values_mut() {
            contact.last_heard = contact.last_heard.max(now);
        }
    }

    /// The last metadata index that the broker said it published, in its present life.
    pub fn applied_index(&self, node_id: NodeId) -> Option<MetadataIndex> {
        self.brokers.get(&node_id)?.applied_index
    }

    /// Whether a log disk of the broker is stuck, by its last heartbeat.
    pub(super) fn is_stalled(&self, node_id: NodeId) -> bool {
        let contact = self.brokers.get(&node_id);
        contact.is_some_and(Contact::is_stalled)
    }

    /// Brokers that have been serving for at least `time`, under this controller.
    pub fn settled(&self, time: Duration) -> BTreeSet<NodeId> {
        let is_settled = |contact: &Contact| {
            !contact.is_stalled()
                && contact
                    .unfenced_since
                    .is_some_and(|since| self.now.saturating_sub(since) >= time)
        };
        self.brokers.iter().filter(|(_, c)| is_settled(c)).map(|(node_id, _)| *node_id).collect()
    }

    /// Whether that life of the broker was heard of within its session.
    pub(super) fn has_session(&self, node_id: NodeId, broker_epoch: BrokerEpoch) -> bool {
        self.brokers.get(&node_id).is_some_and(|contact| {
            contact.broker_epoch == broker_epoch
                && contact.applied_index.is_some()
                && self.now.saturating_sub(contact.last_heard) < contact.session(&self.config)
        })
    }

    /// Whether a probe found that process dead a moment ago. What still arrives from it was sent before.
    pub(super) fn saw_death(&self, node_id: NodeId, incarnation: IncarnationId) -> bool {
        let at = self.deaths.get(&(node_id, incarnation));
        at.is_some_and(|at| self.now.saturating_sub(*at) < self.config.evidence_age_max)
    }

    /// Brings the table in line with the registrations.
    fn follow(&mut self, image: &MetadataImage, now: Duration) {
        self.brokers.retain(|node_id, _| image.broker(*node_id).is_some());
        for (node_id, broker) in &image.brokers {
            let contact = self
                .brokers
                .entry(*node_id)
                .or_insert_with(|| Contact::new(broker.broker_epoch, now));
            if broker.broker_epoch > contact.broker_epoch {
                *contact = contact.reborn(broker.broker_epoch, now);
            }
            contact.unfenced_since = match broker.fenced {
                true => None,
                false => Some(contact.unfenced_since.unwrap_or(now)),
            };
            let decay = self.config.damping_decay;
            if contact.damping > 0 && now.saturating_sub(contact.damped_at) > decay {
                contact.damping -= 1;
                contact.damped_at = now;
            }
        }
    }

    fn probe(
        &mut self,
        node_id: NodeId,
        incarnation: IncarnationId,
        now: Duration,
    ) -> Option<LivenessEffect> {
        let patience = self.config.session;
        self.probes.retain(|_, since| now.saturating_sub(*since) < patience);
        let is_new = self.probes.insert((node_id, incarnation), now).is_none();
        is_new.then_some(LivenessEffect::Probe { node_id, incarnation })
    }

    fn fence_dead(&self, image: &MetadataImage) -> Vec<LivenessEffect> {
        if !self.is_active_controller {
            return Vec::new();
        }
        let unfenced = self.deaths.keys().filter_map(|(node_id, incarnation)| {
            let broker = image.broker(*node_id)?;
            (!broker.fenced && broker.registration.incarnation == *incarnation).then_some(broker)
        });
        unfenced.map(|broker| fence(broker, "its process is gone")).collect()
    }

    fn judge_silence(&mut self, image: &MetadataImage, now: Duration) -> Vec<LivenessEffect> {
        let unfenced: Vec<&BrokerImage> = image
            .brokers
            .values()
            .map(|broker| &**broker)
            .filter(|broker| !broker.fenced)
            .collect();
        let silent: Vec<&BrokerImage> = unfenced
            .iter()
            .copied()
            .filter(|broker| {
                self.brokers.get(&broker.registration.node_id).is_some_and(|contact| {
                    now.saturating_sub(contact.last_heard) >= contact.session(&self.config)
                })
            })
            .collect();
        if silent.len() <= (unfenced.len() * 3 / 10).max(2) {
            self.mass_silence_until = None;
        } else {
            let session = self.config.session;
            let until = *self.mass_silence_until.get_or_insert(now + session);
            if now < until {
                let registrations = silent.iter().map(|broker| &broker.registration);
                return registrations
                    .filter_map(|r| self.probe(r.node_id, r.incarnation, now))
                    .collect();
            }
        }
        let mut effects = Vec::new();
        for broker in silent {
            let Some(contact) = self.brokers.get_mut(&broker.registration.node_id) else {
                continue;
            };
            // A fence that was decided but not applied yet is not decided again at every tick.
            let waiting = contact
                .fenced_for_silence
                .is_some_and(|at| now.saturating_sub(at) < self.config.session);
            if !waiting {
                contact.fenced_for_silence = Some(now);
                let silence = now.saturating_sub(contact.last_heard).as_millis();
                effects.push(fence(broker, &format!("no heartbeat for {silence} ms")));
            }
        }
        effects
    }
}

fn fence(broker: &BrokerImage, cause: &str) -> LivenessEffect {
    LivenessEffect::Fence {
        node_id: broker.registration.node_id,
        broker_epoch: broker.broker_epoch,
        cause: cause.to_owned(),
    }
}

#[cfg(test)]
#[path = "liveness_test.rs"]
mod tests;
