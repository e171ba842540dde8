//! Sends the batches of one partition to its leader, several under way, in order, whatever happens to the leader.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use super::queue::{Batch, Queue};
use super::sequence::{Outcome, Verdict, sequence_after, settle};
use super::{Delivered, ProducerConfig};
use crate::client::error::cause;
use crate::client::metadata::Cluster;
use crate::client::retry::{Backoff, is_retriable};
use crate::client::{Acks, Error};
use crate::net;
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    InitProducerIdReply, InitProducerIdRequest, Kind, PartitionError, ProduceEntry, ProduceReply,
    ProduceRequest,
};
use crate::record::BatchBuilder;

/// How long a broker may wait for its replicas before it answers.
const BROKER_WAIT_MAX: Duration = Duration::from_secs(30);
/// A request without an answer is given up this much later.
const ANSWER_GRACE: Duration = Duration::from_secs(5);

/// The task of one partition.
pub(super) struct PartitionSender {
    cluster: Arc<Cluster>,
    config: ProducerConfig,
    buffer: Arc<Semaphore>,
    topic: Arc<str>,
    partition: i32,
    queue: Arc<Queue>,
    /// Producer id and epoch, once needed.
    identity: Option<(i64, i16)>,
    next_sequence: i32,
    next_ordinal: usize,
    /// See [`settle`].
    gap: bool,
    /// The broker knows our producer id. Before, it takes any sequence for the first one, so a second batch under way
    /// could end up before the first.
    is_known: bool,
    in_flight: VecDeque<Sent>,
    /// To be sent again before anything else, in this order.
    resends: VecDeque<Sent>,
    backoff: Backoff,
}

/// A batch that is under way.
struct Sent {
    batch: Batch,
    bytes: Bytes,
    deadline: Instant,
    /// Counts the batches of the partition.
    ordinal: usize,
    /// Nothing was under way when it was sent.
    is_alone: bool,
    outcome: Pin<Box<dyn Future<Output = Outcome> + Send>>,
}

impl Sent {
    /// Out of order is a verdict only about a batch that went alone. Others may have overtaken the one before them, on
    /// their way to a new leader.
    async fn ended(&mut self) -> Outcome {
        match self.outcome.as_mut().await {
            Outcome::OutOfOrder(error) if !self.is_alone => Outcome::Unknown(error.to_string()),
            outcome => outcome,
        }
    }
}

impl PartitionSender {
    /// Runs until the queue is closed and empty.
    pub(super) fn start(
        cluster: Arc<Cluster>,
        config: ProducerConfig,
        buffer: Arc<Semaphore>,
        (topic, partition): (String, i32),
        queue: Arc<Queue>,
    ) {
        let sender = Self {
            cluster,
            config,
            buffer,
            topic: topic.into(),
            partition,
            queue,
            identity: None,
            next_sequence: 0,
            next_ordinal: 0,
            gap: false,
            is_known: false,
            in_flight: VecDeque::new(),
            resends: VecDeque::new(),
            backoff: Backoff::START,
        };
        tokio::spawn(sender.run());
    }

    async fn run(mut self) {
        let queue = self.queue.clone();
        let mut is_closed = false;
        loop {
            while self.in_flight.len() < self.window()
                && let Some(mut sent) = self.resends.pop_front()
            {
                sent.is_alone = self.in_flight.is_empty();
                sent.outcome = self.transmit(sent.bytes.clone(), sent.deadline).await;
                self.in_flight.push_back(sent);
            }
            if is_closed && self.in_flight.is_empty() {
                return;
            }
            let may_send = !is_closed && self.has_room();
            tokio::select! {
                biased; // What is done makes room for what waits.
                outcome = front_outcome(&mut self.in_flight) => self.on_outcome(outcome).await,
                batch = queue.take(), if may_send => match batch {
                    Some(batch) => self.dispatch(batch).await,
                    None => is_closed = true,
                },
            }
        }
    }

    /// How many batches may be under way.
    fn window(&self) -> usize {
        if self.is_known { self.config.in_flight_max } else { 1 }
    }

    /// A new batch may follow. Never further from the oldest without outcome than a broker can remember: that one may be
    /// in the log, and must still be known there when it is sent again.
    fn has_room(&self) -> bool {
        let oldest = self.in_flight.front().map_or(self.next_ordinal, |sent| sent.ordinal);
        self.resends.is_empty() && self.next_ordinal - oldest < self.window()
    }

    fn is_idempotent(&self) -> bool {
        self.config.acks != Acks::None
    }

    async fn dispatch(&mut self, batch: Batch) {
        let deadline = batch.opened_at + self.config.delivery_timeout;
        if let Err(error) = self.ensure_identity(deadline).await {
            return self.fail(batch, error);
        }
        let bytes = self.encode(&batch);
        let (ordinal, is_alone) = (self.next_ordinal, self.in_flight.is_empty());
        self.next_ordinal += 1;
        let outcome = self.transmit(bytes.clone(), deadline).await;
        self.in_flight.push_back(Sent { batch, bytes, deadline, ordinal, is_alone, outcome });
    }

    async fn ensure_identity(&mut self, deadline: Instant) -> Result<(), Error> {
        while self.is_idempotent() && self.identity.is_none() {
            let asked = self.cluster.ask_any(Kind::ClientInitProducerId, InitProducerIdRequest);
            let answer: Result<InitProducerIdReply, String> =
                match timeout_at(deadline, asked).await {
                    Ok(Ok(Ok(reply))) => Ok(reply),
                    Ok(Ok(Err(refusal))) => Err(Error::Refused(refusal).to_string()),
                    Ok(Err(error)) => return Err(error),
                    Err(_) => Err("no answer".to_owned()),
                };
            match answer {
                Ok(reply) => {
                    self.identity = Some((reply.producer_id, reply.producer_epoch));
                    (self.next_sequence, self.is_known) = (0, false);
                }
                Err(cause) if Instant::now() >= deadline => return Err(self.out_of_time(cause)),
                Err(_) => sleep(self.backoff.next_pause()).await,
            }
        }
        Ok(())
    }

    /// The bytes of a batch, with the next sequence numbers.
    fn encode(&mut self, batch: &Batch) -> Bytes {
        let mut builder = BatchBuilder::new(self.config.compression);
        if let Some((id, epoch)) = self.identity {
            builder.set_producer(id, epoch, self.next_sequence);
            self.next_sequence = sequence_after(self.next_sequence, batch.records.len());
        }
        let mut headers = Vec::new();
        for record in &batch.records {
            headers.clear();
            let parts = record.headers.iter();
            headers.extend(parts.map(|(name, value)| (name.as_str(), value.as_deref())));
            let timestamp_ms = record.timestamp_ms.unwrap_or_default();
            let (key, value) = (record.key.as_deref(), record.value.as_deref());
            builder.push(timestamp_ms, key, value, &headers);
        }
        builder.build().into()
    }

    /// Puts a batch on its way to the leader. The future is its outcome.
    async fn transmit(
        &mut self,
        bytes: Bytes,
        deadline: Instant,
    ) -> Pin<Box<dyn Future<Output = Outcome> + Send>> {
        let unsent = |cause: String| Box::pin(std::future::ready(Outcome::Unknown(cause)));
        let Some(leader) = self.cluster.view().leader(&self.topic, self.partition) else {
            return unsent("the partition has no leader".to_owned());
        };
        let now = Instant::now();
        let wait = deadline.saturating_duration_since(now).min(BROKER_WAIT_MAX);
        let entry = ProduceEntry {
            topic_id: leader.topic_id,
            partition: self.partition,
            size: u32::try_from(bytes.len()).expect("batches are smaller than the buffer"),
        };
        let request = ProduceRequest {
            acks: self.config.acks.number(),
            timeout_ms: u32::try_from(wait.as_millis()).expect("at most BROKER_WAIT_MAX"),
            entries: vec![entry],
        };
        let sending =
            self.cluster.peers.send(&leader.address, Kind::ClientProduce, &request, bytes);
        let pending = match timeout_at(now + ANSWER_GRACE, sending).await {
            Ok(Ok(pending)) => pending,
            Ok(Err(error)) => return unsent(cause(&error)),
            Err(_) => return unsent(format!("cannot connect to {} in time", leader.address)),
        };
        let (cluster, topic, partition) =
            (self.cluster.clone(), self.topic.clone(), self.partition);
        Box::pin(async move {
            let reply = tokio::select! {
                biased;
                reply = pending.reply::<ProduceReply>() => reply,
                () = cluster.moved(&topic, &leader, now) => {
                    return Outcome::Unknown("the partition has another leader now".to_owned());
                }
                () = sleep(wait + ANSWER_GRACE) => Err(net::Error::Timeout(wait + ANSWER_GRACE)),
            };
            let result = match reply {
                Ok((mut reply, _)) if reply.results.len() == 1 => reply.results.remove(0),
                Ok(_) => return Outcome::Unknown("an answer to something else".to_owned()),
                Err(error) => return Outcome::Unknown(cause(&error)),
            };
            match result {
                Ok(produced) => Outcome::Acked(produced),
                Err(error) => {
                    cluster.learn_leader(&topic, partition, &error);
                    outcome_of(error)
                }
            }
        })
    }

    /// The oldest batch under way has its outcome.
    async fn on_outcome(&mut self, outcome: Outcome) {
        let Some(sent) = self.in_flight.pop_front() else { return };
        if matches!(outcome, Outcome::Acked(_)) {
            self.backoff = Backoff::START;
            self.settle(vec![(sent, outcome)]);
            return;
        }
        // Nothing overtakes: the others end first, then all that must is sent again, in order.
        let mut ended = vec![(sent, outcome)];
        while let Some(mut sent) = self.in_flight.pop_front() {
            let outcome = sent.ended().await;
            ended.push((sent, outcome));
        }
        let (resends, renumber) = self.settle(ended);
        for sent in resends.into_iter().rev() {
            self.resends.push_front(sent);
        }
        let Some(first) = self.resends.front() else { return };
        let deadline = first.deadline;
        sleep(self.backoff.next_pause()).await;
        // Without an answer the old view is as good as any.
        let _ = timeout_at(deadline, self.cluster.refresh(&self.cluster.view())).await;
        if renumber {
            self.renumber(deadline).await;
        }
    }

    /// Tells those who wait, and returns what is to be sent again.
    fn settle(&mut self, ended: Vec<(Sent, Outcome)>) -> (Vec<Sent>, bool) {
        let now = Instant::now();
        // Nothing but "sent" was promised without acknowledgements, and a resend might duplicate.
        let expired = |sent: &Sent| sent.deadline <= now || self.config.acks == Acks::None;
        let (sents, outcomes): (Vec<Sent>, Vec<(Outcome, bool)>) = ended
            .into_iter()
            .map(|(sent, outcome)| {
                let expired = expired(&sent);
                (sent, (outcome, expired))
            })
            .unzip();
        let settled = settle(outcomes, &mut self.gap);
        let mut resends = Vec::new();
        for (sent, verdict) in sents.into_iter().zip(settled.verdicts) {
            match verdict {
                Verdict::Resend => resends.push(sent),
                Verdict::Failed(error) => self.fail(sent.batch, error),
                Verdict::Expired(cause) => self.fail(sent.batch, self.out_of_time(cause)),
                Verdict::Acked(produced) => {
                    self.is_known = self.is_idempotent();
                    let partition = self.partition;
                    let stamped = produced.log_append_time_ms;
                    let stamps: Vec<i64> =
                        sent.batch.records.iter().map(|r| r.timestamp_ms.unwrap_or(-1)).collect();
                    self.complete(sent.batch, |index| {
                        let timestamp_ms = if stamped >= 0 { stamped } else { stamps[index] };
                        let offset = match produced.base_offset {
                            -1 => -1,
                            base => base + i64::try_from(index).expect("records of one batch"),
                        };
                        Ok(Delivered { partition, offset, timestamp_ms })
                    });
                }
            }
        }
        (resends, settled.renumber)
    }

    /// Gives all that is to be sent again new numbers under a new producer id.
    async fn renumber(&mut self, deadline: Instant) {
        self.identity = None;
        let identified = self.ensure_identity(deadline).await;
        for mut sent in std::mem::take(&mut self.resends) {
            match &identified {
                Ok(()) => {
                    sent.bytes = self.encode(&sent.batch);
                    self.resends.push_back(sent);
                }
                Err(error) => self.fail(sent.batch, error.clone()),
            }
        }
    }

    fn out_of_time(&self, cause: String) -> Error {
        Error::Deadline { what: "the write", within: self.config.delivery_timeout, cause }
    }

    fn fail(&self, batch: Batch, error: Error) {
        self.complete(batch, |_| Err(error.clone()));
    }

    fn complete(&self, batch: Batch, outcome_of: impl Fn(usize) -> Result<Delivered, Error>) {
        self.buffer.add_permits(batch.bytes);
        self.queue.complete(batch, outcome_of);
    }
}

/// Never ends when nothing is under way.
async fn front_outcome(in_flight: &mut VecDeque<Sent>) -> Outcome {
    match in_flight.front_mut() {
        Some(sent) => sent.ended().await,
        None => std::future::pending().await,
    }
}

fn outcome_of(error: PartitionError) -> Outcome {
    match error.code {
        ErrorCode::OutOfOrderSequenceNumber
        | ErrorCode::UnknownProducerId
        | ErrorCode::InvalidProducerEpoch => Outcome::OutOfOrder(error.into()),
        code if is_retriable(code) => Outcome::Unknown(Error::from(error).to_string()),
        _ => Outcome::Rejected(error.into()),
    }
}
