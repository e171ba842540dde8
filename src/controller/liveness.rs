//! Who is alive: soft state of every voter, judged by the active controller only (replication.md 1.5, 2.12).
//!
//! Events go in at all times, so that a voter that is elected already knows who died a moment ago.

use std::time::Duration;

use super::HeartbeatRequest;
use crate::metadata::MetadataImage;
use crate::types::{BrokerEpoch, IncarnationId, MetadataIndex, NodeId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivenessConfig {
    /// A broker that is silent for this long is fenced.
    pub session: Duration,
    /// What damping may raise the session of a broker to that was fenced wrongly.
    pub session_max: Duration,
    /// Time without a wrong fencing after which a raised session is back to normal.
    pub damping_decay: Duration,
    /// How long a confirmed death is worth something to a newly elected controller.
    pub evidence_max_age: Duration,
}

impl Default for LivenessConfig {
    fn default() -> Self {
        Self {
            session: Duration::from_millis(700),
            session_max: Duration::from_secs(9),
            damping_decay: Duration::from_secs(600),
            evidence_max_age: Duration::from_secs(1),
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
}

impl Liveness {
    pub fn new(config: LivenessConfig) -> Self {
        Self { config }
    }

    /// This voter is the active controller, and `image` is applied up to its first entry.
    pub fn on_elected(&mut self, image: &MetadataImage, now: Duration) -> Vec<LivenessEffect> {
        let _ = (image, now, &self.config);
        todo!()
    }

    /// This voter is not the active controller any more.
    pub fn on_deposed(&mut self) {
        todo!()
    }

    pub fn on_heartbeat(&mut self, request: &HeartbeatRequest, now: Duration) {
        let _ = (request, now);
        todo!()
    }

    /// A socket to that incarnation closed. Evidence, not a verdict: it is probed.
    pub fn on_peer_lost(
        &mut self,
        node_id: NodeId,
        incarnation: IncarnationId,
        now: Duration,
    ) -> Vec<LivenessEffect> {
        let _ = (node_id, incarnation, now);
        todo!()
    }

    pub fn on_probe(
        &mut self,
        node_id: NodeId,
        incarnation: IncarnationId,
        verdict: ProbeVerdict,
        now: Duration,
    ) -> Vec<LivenessEffect> {
        let _ = (node_id, incarnation, verdict, now);
        todo!()
    }

    /// Call every 50 ms or so, at least four times a session.
    pub fn on_tick(&mut self, image: &MetadataImage, now: Duration) -> Vec<LivenessEffect> {
        let _ = (image, now);
        todo!()
    }

    /// The controller itself was not served (late timer, no acknowledgement of the quorum): silence proves nothing.
    pub fn on_stall(&mut self, now: Duration) {
        let _ = now;
        todo!()
    }

    /// The last metadata index that the broker said it published, under its present epoch.
    pub fn applied_index(&self, node_id: NodeId) -> Option<MetadataIndex> {
        let _ = node_id;
        todo!()
    }
}
