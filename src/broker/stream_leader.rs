//! The leader's side of a replica stream: what one follower broker is sent (design D6).
//!
//! One task per stream. It waits until partitions have something for the follower (the [`Outbox`]), gathers whole
//! batches of many partitions into one frame up to a byte budget, round-robin, and writes it; between writes it takes
//! acknowledgements, which move high watermarks. Back-pressure is TCP's.
//!
//! Invariant: idle partitions cost nothing here, no task, timer or message.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use super::departures::Departures;
use super::metrics::Metrics;
use super::outbox::Outbox;
use super::partition::Partition;
use super::publication::Publication;
use super::registry::Registry;
use crate::codec;
use crate::net::{self, FrameReader, FrameWriter};
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    FRAME_HEADER_SIZE, FrameHeader, Kind, NodeHello, PushEntry, PushEvent, ReplicaAck, ReplicaPush,
    ReplicaSubscribe, Subscription,
};
use crate::types::NodeId;

/// Bytes of batches in one frame, give or take one batch.
const FRAME_BUDGET: usize = 1 << 20;

/// The streams of all followers.
#[derive(Debug)]
pub(super) struct LeaderStreams {
    registry: Arc<Registry>,
    publication: Arc<Publication>,
    metrics: Metrics,
    departures: Arc<Departures>,
    /// Per follower, to end its stream when it opens another: the old one may be that of a host that is gone.
    current: Mutex<HashMap<NodeId, Arc<Notify>>>,
}

impl LeaderStreams {
    pub(super) fn new(
        registry: Arc<Registry>,
        publication: Arc<Publication>,
        metrics: Metrics,
        departures: Arc<Departures>,
    ) -> Self {
        Self { registry, publication, metrics, departures, current: Mutex::default() }
    }

    /// Serves a follower until its connection ends. Runs on the data runtime.
    pub(super) async fn serve(
        self: Arc<Self>,
        node: NodeHello,
        reader: FrameReader,
        writer: FrameWriter,
    ) {
        let (follower, broker_epoch) = (node.node_id, node.broker_epoch);
        // The connection was accepted by the control runtime; its bytes are the data runtime's work.
        let (reader, writer) = match net::rehome(reader, writer) {
            Ok(halves) => halves,
            Err(error) => {
                warn!(%follower, %error, "cannot take over a replica stream");
                return;
            }
        };
        info!(%follower, %broker_epoch, "replica stream opened");
        self.departures.on_connected(follower);
        let superseded = Arc::<Notify>::default();
        let before = self.current.lock().insert(follower, superseded.clone());
        if let Some(before) = before {
            before.notify_one();
        }
        let stream = Stream {
            registry: self.registry.clone(),
            publication: self.publication.clone(),
            metrics: self.metrics.clone(),
            node,
            outbox: Arc::default(),
            slots: Mutex::default(),
            early: Mutex::default(),
            refusals: Mutex::default(),
        };
        // Both halves in one task, so that an ack and the push it causes need no hand-off between threads. Neither
        // future is dropped before the connection ends.
        let ended = tokio::select! {
            biased; // What an ack or a new image makes writable is written in the same turn.
            ended = stream.read(reader) => ended,
            () = stream.admit_early() => Ok(()),
            ended = stream.write(writer) => ended,
            () = superseded.notified() => Err(io::Error::other("the follower has opened another")),
        };
        stream.unsubscribe_all();
        let was_current = {
            let mut current = self.current.lock();
            let is_own = |own: &mut Arc<Notify>| Arc::ptr_eq(own, &superseded);
            current.extract_if(|_, own| is_own(own)).count() > 0
        };
        if was_current {
            self.departures.on_lost(follower);
        }
        match ended {
            Ok(()) => info!(%follower, %broker_epoch, "replica stream closed by the follower"),
            Err(error) => info!(%follower, %broker_epoch, %error, "replica stream ended"),
        }
    }
}

struct Stream {
    registry: Arc<Registry>,
    publication: Arc<Publication>,
    metrics: Metrics,
    node: NodeHello,
    outbox: Arc<Outbox>,
    /// What the follower subscribed.
    slots: Mutex<HashMap<u32, Arc<Partition>>>,
    /// Subscriptions under a leader epoch that this broker has not heard of yet: they wait for its image.
    early: Mutex<Vec<Subscription>>,
    /// Subscriptions that were refused.
    refusals: Mutex<Vec<PushEntry>>,
}

impl Stream {
    fn follower(&self) -> NodeId {
        self.node.node_id
    }

    async fn read(&self, mut reader: FrameReader) -> io::Result<()> {
        while let Some(frame) = reader.read_frame().await? {
            match frame.kind {
                Kind::ReplicaAck => self.on_ack(&frame.body().map_err(invalid_data)?),
                Kind::ReplicaSubscribe => self.on_subscribe(&frame.body().map_err(invalid_data)?),
                kind => {
                    let reason = format!("unexpected {kind:?} frame on a replica stream");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
                }
            }
        }
        Ok(())
    }

    fn on_ack(&self, ack: &ReplicaAck) {
        for acked in &ack.partitions {
            // An unknown slot was dropped while the ack was under way.
            let partition = self.slots.lock().get(&acked.slot).cloned();
            if let Some(partition) = partition {
                partition.on_ack(self.follower(), acked);
            }
        }
    }

    fn on_subscribe(&self, request: &ReplicaSubscribe) {
        for &slot in &request.drop {
            let dropped = self.slots.lock().remove(&slot);
            if let Some(partition) = dropped {
                partition.unsubscribe(self.follower(), slot);
            }
        }
        self.early.lock().retain(|early| !request.drop.contains(&early.slot));
        for subscription in &request.add {
            self.admit(subscription);
        }
    }

    /// Tries again whenever the partitions of this broker follow a later image.
    async fn admit_early(&self) {
        let mut applied = self.publication.applied();
        while applied.changed().await.is_ok() {
            let early = std::mem::take(&mut *self.early.lock());
            early.iter().for_each(|subscription| self.admit(subscription));
        }
    }

    fn admit(&self, subscription: &Subscription) {
        let Err(event) = self.subscribe(subscription) else { return };
        if self.is_early(subscription) {
            self.early.lock().push(subscription.clone());
            return;
        }
        debug!(follower = %self.follower(), ?subscription, ?event, "subscription refused");
        self.refusals.lock().push(PushEntry { slot: subscription.slot, event });
        // No partition has this slot: the mark only wakes the writer.
        self.outbox.mark(subscription.slot);
    }

    /// Whether the follower's image is ahead of what the partitions here follow.
    fn is_early(&self, subscription: &Subscription) -> bool {
        match self.registry.get(subscription.partition) {
            Some(partition) => partition.leader_epoch() < subscription.leader_epoch,
            None => self
                .publication
                .with_image(|image| image.partition(subscription.partition).is_none()),
        }
    }

    fn subscribe(&self, subscription: &Subscription) -> Result<(), PushEvent> {
        let unknown = PushEvent::Refused {
            code: ErrorCode::UnknownTopicOrPartition,
            log_start_offset: -1,
            end_offset: -1,
        };
        let partition = self.registry.get(subscription.partition).ok_or(unknown)?;
        // First the slot, then the partition that marks it.
        self.slots.lock().insert(subscription.slot, partition.clone());
        let broker_epoch = self.node.broker_epoch;
        partition
            .subscribe(self.follower(), broker_epoch, subscription, &self.outbox)
            .inspect_err(|_| _ = self.slots.lock().remove(&subscription.slot))
    }

    fn unsubscribe_all(&self) {
        let slots = std::mem::take(&mut *self.slots.lock());
        for (slot, partition) in slots {
            partition.unsubscribe(self.follower(), slot);
        }
    }

    async fn write(&self, mut writer: FrameWriter) -> io::Result<()> {
        let mut push = Push::default();
        loop {
            push.dirty.extend(self.outbox.take_dirty().await);
            while self.gather(&mut push) {
                let head = push.encode_head();
                writer.write_parts(&head, &push.payload).await?;
                self.metrics.replicated_out_bytes.inc_by(push.payload.len() as u64);
            }
            push.give_back_memory();
        }
    }

    /// Makes the next frame of the slots that are dirty. `false`: there is nothing to send now. A partition that has
    /// more than its turn allows marks itself again, so that the others come first.
    fn gather(&self, push: &mut Push) -> bool {
        push.payload.clear();
        push.entries = std::mem::take(&mut *self.refusals.lock());
        while push.payload.len() < FRAME_BUDGET
            && let Some(slot) = push.dirty.pop_front()
        {
            let partition = self.slots.lock().get(&slot).cloned();
            if let Some(partition) = partition
                && let Some(event) = self.contribute(slot, &partition, &mut push.payload)
            {
                push.entries.push(PushEntry { slot, event });
            }
        }
        !push.entries.is_empty()
    }

    /// What one partition has for the follower; its batches go to the end of `payload`.
    fn contribute(
        &self,
        slot: u32,
        partition: &Partition,
        payload: &mut Vec<u8>,
    ) -> Option<PushEvent> {
        let size_max = FRAME_BUDGET - payload.len();
        let read = match partition.read_for_follower(self.follower(), slot, size_max) {
            Ok(read) => read?,
            Err(event) => {
                self.slots.lock().remove(&slot);
                return Some(event);
            }
        };
        let start = payload.len();
        if let Err(error) = read.slice.read_into(payload) {
            warn!(partition = %partition.name(), %error, "cannot read for a follower");
            payload.truncate(start);
            self.slots.lock().remove(&slot);
            partition.unsubscribe(self.follower(), slot);
            let (code, log_start_offset) = (error.code(), read.log_start_offset);
            return Some(PushEvent::Refused { code, log_start_offset, end_offset: -1 });
        }
        Some(PushEvent::Batches {
            fetch_offset: read.fetch_offset,
            size: u32::try_from(read.slice.size).expect("a slice is a budget or a batch"),
            high_watermark: read.high_watermark,
            log_start_offset: read.log_start_offset,
        })
    }
}

/// The frame in the making.
#[derive(Default)]
struct Push {
    /// Slots to look at, for this frame and the next ones.
    dirty: VecDeque<u32>,
    entries: Vec<PushEntry>,
    payload: Vec<u8>,
}

impl Push {
    fn encode_head(&mut self) -> BytesMut {
        let body = codec::encode(&ReplicaPush { entries: std::mem::take(&mut self.entries) });
        let mut head = BytesMut::with_capacity(FRAME_HEADER_SIZE + body.len());
        let (body_size, payload_size) = (body.len(), self.payload.len());
        FrameHeader { kind: Kind::ReplicaPush, request_id: 0, body_size, payload_size }
            .encode(&mut head);
        head.put_slice(&body);
        head
    }

    /// A burst of large frames does not leave its buffer with a stream that has become quiet.
    fn give_back_memory(&mut self) {
        if self.payload.capacity() > 2 * FRAME_BUDGET {
            self.payload = Vec::new();
        }
    }
}

fn invalid_data(error: codec::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
