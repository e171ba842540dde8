//! The follower's side of replica streams: one connection per leader broker, carrying all partitions that follow it
//! (design D6).
//!
//! The reconciler says which partitions follow whom. The stream subscribes them, applies what is pushed, and
//! acknowledges: at once what counts as stored already, the rest when the flusher says so, all partitions of a flush
//! round in one frame. A subscription that ended is made again under a new slot.
//!
//! Connections are kept to every unfenced broker, followed or not, so that a change of leaders finds them open.
//!
//! Invariant: an acknowledgement holds what the partition said under its lock for exactly that slot, so progress made
//! under one leadership is never reported under another (18).

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::metrics::Metrics;
use super::outbox::Outbox;
use super::partition::{NextStep, Partition};
use crate::net::{FrameReader, FrameWriter, Peers};
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    AckedPartition, Frame, Kind, Purpose, PushEntry, PushEvent, ReplicaAck, ReplicaPush,
    ReplicaSubscribe, Subscription,
};
use crate::types::{HostPort, IncarnationId, NodeId, TopicIdPartition, random};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses before a connection or a subscription is tried again; jitter comes on top.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// All streams of this broker on which it follows.
#[derive(Debug)]
pub(super) struct FollowerStreams {
    peers: Peers,
    data: Handle,
    metrics: Metrics,
    by_leader: Mutex<HashMap<NodeId, Arc<Stream>>>,
    by_partition: RwLock<HashMap<TopicIdPartition, Arc<Stream>>>,
    /// Slots only grow, so that a leader can tell the later of two subscriptions.
    next_slot: Arc<AtomicU32>,
}

/// Where a broker listens, in one of its lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) peer: HostPort,
    pub(super) incarnation: IncarnationId,
    /// Whether to keep a connection without a partition to follow.
    pub(super) is_unfenced: bool,
}

impl FollowerStreams {
    pub(super) fn new(peers: Peers, data: Handle, metrics: Metrics) -> Self {
        Self {
            peers,
            data,
            metrics,
            by_leader: Mutex::default(),
            by_partition: RwLock::default(),
            next_slot: Arc::new(AtomicU32::new(1)),
        }
    }

    /// Where to find the broker; `None` when it is not registered any more.
    pub(super) fn set_target(&self, leader: NodeId, target: Option<Target>) {
        self.stream(leader).set_target(target);
    }

    /// Subscribes the partition at its present leader, in its present epoch.
    pub(super) fn follow(&self, leader: NodeId, partition: &Arc<Partition>) {
        let id = partition.id();
        let stream = self.stream(leader);
        let before = self.by_partition.write().insert(id, stream.clone());
        if let Some(before) = before.filter(|before| before.leader != leader) {
            before.unfollow(id);
        }
        stream.follow(partition.clone());
    }

    /// The partition follows nobody.
    pub(super) fn unfollow(&self, id: TopicIdPartition) {
        if let Some(stream) = self.by_partition.write().remove(&id) {
            stream.unfollow(id);
        }
    }

    /// This broker has another broker epoch: leaders must hear of it.
    pub(super) fn reconnect_all(&self) {
        for stream in self.by_leader.lock().values() {
            stream.state.lock().generation += 1;
            stream.reconnect.notify_one();
        }
    }

    fn stream(&self, leader: NodeId) -> Arc<Stream> {
        let mut streams = self.by_leader.lock();
        let stream = streams.entry(leader).or_insert_with(|| {
            let stream = Arc::new(Stream {
                leader,
                metrics: self.metrics.clone(),
                next_slot: self.next_slot.clone(),
                state: Mutex::default(),
                acks: Arc::default(),
                news: Notify::new(),
                reconnect: Notify::new(),
            });
            self.data.spawn(stream.clone().run(self.peers.clone()));
            stream
        });
        stream.clone()
    }
}

/// The stream from one leader broker, over all its connections.
#[derive(Debug)]
struct Stream {
    leader: NodeId,
    metrics: Metrics,
    next_slot: Arc<AtomicU32>,
    state: Mutex<State>,
    /// Slots that have more to acknowledge since a flush.
    acks: Arc<Outbox>,
    /// There is something to subscribe, to drop or to acknowledge.
    news: Notify,
    /// The connection that is wanted is another one, or there was none.
    reconnect: Notify,
}

#[derive(Debug, Default)]
struct State {
    target: Option<Target>,
    /// Grows when a connection that was made before is not wanted any more.
    generation: u64,
    followed: HashMap<TopicIdPartition, Followed>,
    by_slot: HashMap<u32, Arc<Partition>>,
    to_subscribe: Vec<TopicIdPartition>,
    to_drop: Vec<u32>,
    /// Acknowledgements of what counts as stored already.
    to_ack: Vec<AckedPartition>,
    /// Partitions whose subscription failed, and when to try again.
    retries: Vec<(Instant, TopicIdPartition)>,
}

#[derive(Debug)]
struct Followed {
    partition: Arc<Partition>,
    /// `None` while it is not subscribed.
    slot: Option<u32>,
}

impl State {
    /// The slot's subscription is over. The leader knows, or will be told by `to_drop`.
    fn end_slot(&mut self, slot: u32) {
        if let Some(partition) = self.by_slot.remove(&slot)
            && let Some(followed) = self.followed.get_mut(&partition.id())
            && followed.slot == Some(slot)
        {
            followed.slot = None;
        }
    }

    fn drop_subscription(&mut self, id: TopicIdPartition) {
        if let Some(slot) = self.followed.get(&id).and_then(|followed| followed.slot) {
            self.end_slot(slot);
            self.to_drop.push(slot);
        }
    }

    /// A connection begins or has ended: everything is to be subscribed. Returns the slots that it had.
    fn start_over(&mut self) -> HashMap<u32, Arc<Partition>> {
        self.to_drop.clear();
        self.to_ack.clear();
        self.retries.clear();
        for followed in self.followed.values_mut() {
            followed.slot = None;
        }
        self.to_subscribe = self.followed.keys().copied().collect();
        std::mem::take(&mut self.by_slot)
    }

    /// With the generation that it is wanted in.
    fn wanted_connection(&self) -> Option<(Target, u64)> {
        let target = self.target.clone()?;
        (target.is_unfenced || !self.followed.is_empty()).then_some((target, self.generation))
    }

    /// Moves what is due to the subscriptions to make; when the next one is.
    fn take_due_retries(&mut self, now: Instant) -> Option<Instant> {
        let due: Vec<_> = self.retries.extract_if(.., |(due, _)| *due <= now).collect();
        self.to_subscribe.extend(due.into_iter().map(|(_, id)| id));
        self.retries.iter().map(|(due, _)| *due).min()
    }
}

impl Stream {
    fn set_target(&self, target: Option<Target>) {
        let place = |target: &Option<Target>| {
            target.as_ref().map(|target| (target.peer.clone(), target.incarnation))
        };
        let mut state = self.state.lock();
        if state.target != target {
            state.generation += u64::from(place(&state.target) != place(&target));
            state.target = target;
            self.reconnect.notify_one();
        }
    }

    fn follow(&self, partition: Arc<Partition>) {
        let mut state = self.state.lock();
        let id = partition.id();
        state.drop_subscription(id);
        if state.followed.is_empty() {
            // Maybe no connection was wanted until now.
            self.reconnect.notify_one();
        }
        state.followed.insert(id, Followed { partition, slot: None });
        state.to_subscribe.push(id);
        self.news.notify_one();
    }

    fn unfollow(&self, id: TopicIdPartition) {
        let mut state = self.state.lock();
        state.drop_subscription(id);
        state.followed.remove(&id);
        self.news.notify_one();
    }

    /// Keeps the connection for as long as the process lives.
    async fn run(self: Arc<Self>, peers: Peers) {
        let mut pause = RETRY_MIN;
        loop {
            let wanted = self.state.lock().wanted_connection();
            let Some((target, generation)) = wanted else {
                self.reconnect.notified().await;
                pause = RETRY_MIN;
                continue;
            };
            match self.connect(&peers, &target).await {
                Ok((reader, writer)) => {
                    pause = RETRY_MIN;
                    self.serve(generation, reader, writer).await;
                }
                Err(reason) => {
                    debug!(leader = %self.leader, peer = %target.peer, reason, "no replica stream");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(with_jitter(pause)) => pause = (pause * 2).min(RETRY_MAX),
                () = self.reconnect.notified() => pause = RETRY_MIN,
            }
        }
    }

    async fn connect(
        &self,
        peers: &Peers,
        target: &Target,
    ) -> Result<(FrameReader, FrameWriter), String> {
        let opened = timeout(CONNECT_TIMEOUT, peers.open_stream(&target.peer, Purpose::Replica));
        let (reader, writer, hello) = opened
            .await
            .map_err(|_| format!("no connection within {CONNECT_TIMEOUT:?}"))?
            .map_err(|error| error.to_string())?;
        if (hello.node_id, hello.incarnation) != (self.leader, target.incarnation) {
            // It has restarted and the image does not know yet, or it is somebody else: nothing to follow there.
            return Err(format!("node {}, incarnation {}", hello.node_id, hello.incarnation));
        }
        Ok((reader, writer))
    }

    async fn serve(&self, generation: u64, reader: FrameReader, writer: FrameWriter) {
        info!(leader = %self.leader, "replica stream connected");
        self.start_over();
        // Both halves in one task, so that the ack of a push needs no hand-off between threads. Neither future is
        // dropped before the connection ends.
        let ended = tokio::select! {
            biased; // What a push makes known is acknowledged in the same turn.
            ended = self.read(reader) => ended,
            ended = self.write(writer) => ended,
            () = self.superseded(generation) => Err(io::Error::other("not wanted any more")),
        };
        self.start_over();
        match ended {
            Ok(()) => info!(leader = %self.leader, "replica stream closed by the leader"),
            Err(error) => info!(leader = %self.leader, %error, "replica stream ended"),
        }
    }

    fn start_over(&self) {
        let slots = self.state.lock().start_over();
        for (slot, partition) in slots {
            partition.end_subscription(slot);
        }
    }

    async fn superseded(&self, generation: u64) {
        loop {
            self.reconnect.notified().await;
            let wanted = self.state.lock().wanted_connection();
            if wanted.is_none_or(|(_, wanted)| wanted != generation) {
                return;
            }
        }
    }

    async fn read(&self, mut reader: FrameReader) -> io::Result<()> {
        while let Some(frame) = reader.read_frame().await? {
            if frame.kind != Kind::ReplicaPush {
                return Err(malformed(format!("unexpected {:?} frame", frame.kind)));
            }
            let push: ReplicaPush = frame.body().map_err(|error| malformed(error.to_string()))?;
            self.on_push(push, &frame.payload)?;
        }
        Ok(())
    }

    fn on_push(&self, push: ReplicaPush, payload: &[u8]) -> io::Result<()> {
        self.metrics.replicated_in_bytes.inc_by(payload.len() as u64);
        let (mut rest, mut acks) = (payload, Vec::new());
        for PushEntry { slot, event } in push.entries {
            if let PushEvent::Refused { code: ErrorCode::StaleBrokerEpoch, .. } = event {
                // The hello told an epoch that is not the present one any more: say hello again.
                return Err(io::Error::other(
                    "the leader knows a later registration of this broker",
                ));
            }
            let mut batches: &[u8] = &[];
            if let PushEvent::Batches { size, .. } = event {
                (batches, rest) = rest
                    .split_at_checked(size as usize)
                    .ok_or_else(|| malformed("batches beyond the payload".to_owned()))?;
            }
            // An unknown slot was given up while the push was under way.
            let partition = self.state.lock().by_slot.get(&slot).cloned();
            if let Some(partition) = partition {
                acks.extend(self.on_event(slot, &partition, &event, batches));
            }
        }
        if !acks.is_empty() {
            self.state.lock().to_ack.append(&mut acks);
            self.news.notify_one();
        }
        Ok(())
    }

    /// Returns what can be acknowledged at once.
    fn on_event(
        &self,
        slot: u32,
        partition: &Partition,
        event: &PushEvent,
        batches: &[u8],
    ) -> Option<AckedPartition> {
        let next = match *event {
            PushEvent::Batches { fetch_offset, high_watermark, log_start_offset, .. } => {
                let appended = partition.append_from_leader(
                    slot,
                    fetch_offset,
                    batches,
                    high_watermark,
                    log_start_offset,
                );
                match appended {
                    Ok(acked) => return acked,
                    Err(error) => Err(error),
                }
            }
            PushEvent::Diverging { epoch, end_offset } => {
                partition.on_diverging(slot, epoch, end_offset).map(|()| NextStep::SubscribeAgain)
            }
            PushEvent::Refused { code, log_start_offset, end_offset } => {
                partition.on_refused(slot, code, log_start_offset, end_offset)
            }
        };
        let next = next.unwrap_or_else(|error| {
            match error.next_step() {
                NextStep::Ignore => {}
                NextStep::AwaitImage => {
                    error!(partition = %partition.name(), %error, "cannot follow");
                }
                _ => warn!(partition = %partition.name(), %error, "following with a fresh start"),
            }
            error.next_step()
        });
        self.go_on(slot, partition.id(), next);
        None
    }

    fn go_on(&self, slot: u32, id: TopicIdPartition, next: NextStep) {
        let mut state = self.state.lock();
        match next {
            NextStep::Ignore => return,
            NextStep::SubscribeAgain => state.to_subscribe.push(id),
            NextStep::SubscribeAfter(pause) => {
                state.retries.push((Instant::now() + with_jitter(pause), id));
            }
            NextStep::AwaitImage => {}
        }
        state.end_slot(slot);
        state.to_drop.push(slot);
        self.news.notify_one();
    }

    async fn write(&self, mut writer: FrameWriter) -> io::Result<()> {
        let mut marked = Vec::new();
        loop {
            let (next_retry, mut acks) = {
                let mut state = self.state.lock();
                let next_retry = state.take_due_retries(Instant::now());
                (next_retry, std::mem::take(&mut state.to_ack))
            };
            if let Some(request) = self.take_subscriptions() {
                writer.write_frame(&Frame::new(Kind::ReplicaSubscribe, 0, &request)).await?;
            }
            acks.extend(marked.drain(..).filter_map(|slot| self.take_ack(slot)));
            if !acks.is_empty() {
                let ack = ReplicaAck { partitions: acks };
                writer.write_frame(&Frame::new(Kind::ReplicaAck, 0, &ack)).await?;
            }
            tokio::select! {
                biased; // What is there already, before what a timer or another thread may bring.
                () = self.news.notified() => {}
                slots = self.acks.take_dirty() => marked = slots,
                () = sleep_until(next_retry.unwrap_or_else(Instant::now)), if next_retry.is_some() => {}
            }
        }
    }

    fn take_ack(&self, slot: u32) -> Option<AckedPartition> {
        let partition = self.state.lock().by_slot.get(&slot).cloned()?;
        partition.take_ack(slot)
    }

    /// Subscribes everything that waits for it. Partitions are called outside of this stream's lock.
    fn take_subscriptions(&self) -> Option<ReplicaSubscribe> {
        let (to_subscribe, drop) = {
            let mut state = self.state.lock();
            (std::mem::take(&mut state.to_subscribe), std::mem::take(&mut state.to_drop))
        };
        let add: Vec<_> = to_subscribe.into_iter().filter_map(|id| self.subscribe(id)).collect();
        (!add.is_empty() || !drop.is_empty()).then_some(ReplicaSubscribe { add, drop })
    }

    fn subscribe(&self, id: TopicIdPartition) -> Option<Subscription> {
        let slot = self.next_slot.fetch_add(1, Ordering::Relaxed);
        let partition = {
            let mut state = self.state.lock();
            // Listed twice, or not followed any more.
            let followed = state.followed.get_mut(&id).filter(|it| it.slot.is_none())?;
            followed.slot = Some(slot);
            let partition = followed.partition.clone();
            state.by_slot.insert(slot, partition.clone());
            partition
        };
        match partition.follower_subscription(slot, &self.acks) {
            Some((leader, subscription)) if leader == self.leader => Some(subscription),
            // The image has moved on; the reconciler is about to say where to.
            _ => {
                self.state.lock().end_slot(slot);
                None
            }
        }
    }
}

fn with_jitter(pause: Duration) -> Duration {
    // Up to a quarter on top, so that brokers that lost the same peer do not come back in step.
    let share = u32::try_from(random::seed() % 256).unwrap_or(0);
    pause + pause * share / 1024
}

fn malformed(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
