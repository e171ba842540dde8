//! The stream from one leader broker: its connections, one after the other, and what travels on them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, error, info, warn};

use super::Target;
use super::subscriptions::{Followed, Subscriptions};
use crate::broker::metrics::Metrics;
use crate::broker::outbox::Outbox;
use crate::broker::partition::{NextStep, Partition};
use crate::net::{FrameReader, FrameWriter, Peers};
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    AckedPartition, Frame, Kind, Purpose, PushEntry, PushEvent, ReplicaAck, ReplicaPush,
    ReplicaSubscribe, Subscription,
};
use crate::types::{NodeId, TopicIdPartition, random};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses before a connection is tried again; jitter comes on top.
const RETRY_MIN: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The stream from one leader broker, over all its connections.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) leader: NodeId,
    pub(super) metrics: Metrics,
    pub(super) next_slot: Arc<AtomicU32>,
    pub(super) state: Mutex<Subscriptions>,
    /// Slots that have more to acknowledge since a flush.
    pub(super) acks: Arc<Outbox>,
    /// There is something to subscribe, to drop or to acknowledge.
    pub(super) news: Notify,
    /// The connection that is wanted is another one, or there was none.
    pub(super) reconnect: Notify,
}

impl Stream {
    pub(super) fn set_target(&self, target: Option<Target>) {
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

    pub(super) fn follow(&self, partition: Arc<Partition>) {
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

    pub(super) fn unfollow(&self, id: TopicIdPartition) {
        let mut state = self.state.lock();
        state.drop_subscription(id);
        state.followed.remove(&id);
        self.news.notify_one();
    }

    /// Keeps the connection for as long as the process lives.
    pub(super) async fn run(self: Arc<Self>, peers: Peers) {
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
                // The log directory has said what is wrong.
                NextStep::AwaitImage if error.is_storage() => {
                    debug!(partition = %partition.name(), %error, "cannot follow");
                }
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
