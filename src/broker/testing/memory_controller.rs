//! The real decisions on an image in memory, without Raft: every broker sees an image the moment it is decided.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::broker::control_plane::{ControlPlane, Unanswered};
use crate::controller::{
    ClusterDefaults, ControllerCall, ControllerReply, ControllerRequest, DecisionContext,
    DecisionRequest, Liveness, LivenessConfig, Refusal, Turn, heartbeat_reply,
};
use crate::metadata::MetadataImage;
use crate::net::BoxFuture;
use crate::protocol::native::QuorumStatus;
use crate::types::{ClusterId, NodeId, Uuid, time};

pub(in crate::broker) const CLUSTER_ID: ClusterId = Uuid([9; 16]);

#[derive(Debug)]
pub(in crate::broker) struct MemoryController {
    liveness: Mutex<Liveness>,
    images: watch::Sender<Arc<MetadataImage>>,
    started: Instant,
    /// How many answers to AlterPartition are still to be lost, after they were applied.
    answers_to_lose: AtomicU32,
    /// The numbers of the AlterPartition requests that came.
    sequences: Mutex<Vec<u64>>,
}

impl MemoryController {
    pub(in crate::broker) fn new() -> Arc<Self> {
        let mut liveness = Liveness::new(LivenessConfig::default());
        liveness.on_elected(&MetadataImage::default(), Duration::ZERO);
        Arc::new(Self {
            liveness: Mutex::new(liveness),
            images: watch::channel(Arc::default()).0,
            started: time::now(),
            answers_to_lose: AtomicU32::new(0),
            sequences: Mutex::default(),
        })
    }

    pub(in crate::broker) fn image(&self) -> Arc<MetadataImage> {
        self.images.borrow().clone()
    }

    pub(in crate::broker) fn lose_answers(&self, count: u32) {
        self.answers_to_lose.store(count, Ordering::Relaxed);
    }

    pub(in crate::broker) fn sequences(&self) -> Vec<u64> {
        self.sequences.lock().clone()
    }

    /// As after a confirmed death.
    pub(in crate::broker) fn fence(&self, node_id: NodeId) {
        let broker_epoch = self.image().broker(node_id).expect("registered").broker_epoch;
        let cause = "a test killed it".to_owned();
        let fenced = self.decide(&DecisionRequest::Fence { node_id, broker_epoch, cause });
        fenced.expect("fencing is not refused");
    }

    /// One turn per request.
    fn decide(&self, request: &DecisionRequest) -> Result<ControllerReply, Refusal> {
        // Also keeps turns apart.
        let liveness = self.liveness.lock();
        let image = self.image();
        let defaults = ClusterDefaults {
            partition_count: 1,
            replication_factor: None,
            cluster_id: CLUSTER_ID,
        };
        let context = DecisionContext {
            now_ms: time::wall_ms(),
            seed: image.index,
            liveness: &liveness,
            defaults: &defaults,
        };
        let mut turn = Turn::begin(&image, context);
        let reply = turn.decide(request);
        let Some(batch) = turn.finish(1) else { return reply.settled_at(image.index) };
        let mut next = (*image).clone();
        let index = image.index + 1;
        next.replay(index, &batch).expect("decided against this image");
        self.images.send_replace(Arc::new(next));
        reply.settled_at(index)
    }

    fn on_call(&self, call: ControllerCall) -> Result<ControllerReply, Refusal> {
        let ControllerRequest::Heartbeat(request) = &call.request else {
            return self.decide(&DecisionRequest::Call(call));
        };
        let (reply, next) = {
            let mut liveness = self.liveness.lock();
            liveness.on_heartbeat(request, time::now().duration_since(self.started));
            heartbeat_reply(&self.image(), &liveness, request)?
        };
        if let Some(next) = next {
            // Nobody waits for it.
            let _ = self.decide(&next);
        }
        Ok(ControllerReply::Heartbeat(reply))
    }
}

impl ControlPlane for MemoryController {
    fn images(&self) -> watch::Receiver<Arc<MetadataImage>> {
        self.images.subscribe()
    }

    fn submit(
        &self,
        call: ControllerCall,
        _: Duration,
    ) -> BoxFuture<'static, Result<Result<ControllerReply, Refusal>, Unanswered>> {
        let mut is_lost = false;
        if let ControllerRequest::AlterPartition(request) = &call.request {
            self.sequences.lock().push(request.sequence);
            let left = self.answers_to_lose.load(Ordering::Relaxed);
            self.answers_to_lose.store(left.saturating_sub(1), Ordering::Relaxed);
            is_lost = left > 0;
        }
        let answer = self.on_call(call);
        let lost = Err(Unanswered("lost".to_owned()));
        Box::pin(async move { if is_lost { lost } else { Ok(answer) } })
    }

    fn status(&self) -> QuorumStatus {
        let index = self.image().index;
        QuorumStatus {
            cluster_id: CLUSTER_ID,
            node_id: NodeId(1),
            leader_id: None,
            term: 1,
            last_log_index: index,
            applied_index: index,
            voters: Vec::new(),
            learners: Vec::new(),
        }
    }
}
