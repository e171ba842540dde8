//! The queue workload: producers that write numbers, each process into one partition, and consumers that read all.
//!
//! Invariant: whatever a client was told is in the history. What it was not told, it counts as unknown, never as failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::recorder::Recorder;
use crate::checker::{Event, KeyEnd, Outcome, Poll, Send};
use crate::client::{
    Client, ClientConfig, Consumer, ConsumerConfig, Delivery, Error, OffsetQuery, ProducerConfig,
    Record, StartAt,
};

/// A producer that waits for so many acknowledgements sends no more.
const PENDING_MAX: usize = 4096;
/// Consumers are numbered from here.
const FIRST_CONSUMER: u32 = 1_000;
const FINAL_CONSUMER: u32 = 2_000;
/// How long everything may take to be read once all is healed.
const FINAL_READ_MAX: Duration = Duration::from_secs(300);
/// Values of one process lie between multiples of this.
const PROCESS_STRIDE: u64 = 1 << 40;

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) bootstrap: ClientConfig,
    pub(super) topic: String,
    pub(super) partitions: u32,
    pub(super) producers: u32,
    pub(super) consumers: u32,
    /// Records a second of all producers together.
    pub(super) rate: u32,
    /// Bytes of a record.
    pub(super) size: usize,
}

/// A load that runs.
#[derive(Debug)]
pub(super) struct Load {
    plan: Plan,
    recorder: Recorder,
    stop: watch::Sender<bool>,
    producers: JoinSet<()>,
    consumers: JoinSet<()>,
    acknowledged: Arc<AtomicU64>,
}

impl Load {
    pub(super) async fn start(plan: Plan, recorder: Recorder) -> Result<Self, Error> {
        let mut load = Self {
            plan,
            recorder,
            stop: watch::Sender::new(false),
            producers: JoinSet::new(),
            consumers: JoinSet::new(),
            acknowledged: Arc::default(),
        };
        for process in 0..load.plan.producers {
            let client = Client::connect_with(load.plan.bootstrap.clone()).await?;
            let task = produce(client, load.plan.clone(), process, load.tools());
            load.producers.spawn(task);
        }
        for process in FIRST_CONSUMER..FIRST_CONSUMER + load.plan.consumers {
            let client = Client::connect_with(load.plan.bootstrap.clone()).await?;
            let reader = Reader::new(client, &load.plan, process, load.recorder.clone());
            let stopped = load.stop.subscribe();
            load.consumers.spawn(follow(reader, stopped));
        }
        Ok(load)
    }

    fn tools(&self) -> Tools {
        Tools {
            recorder: self.recorder.clone(),
            stopped: self.stop.subscribe(),
            acknowledged: self.acknowledged.clone(),
        }
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Ends the load, and reads everything once more from the start. Says why when that was not possible: then the
    /// history has no end.
    pub(super) async fn finish(mut self) -> Result<(), String> {
        self.stop.send_replace(true);
        while self.producers.join_next().await.is_some() {}
        let read = timeout(FINAL_READ_MAX, self.read_everything()).await;
        while self.consumers.join_next().await.is_some() {}
        match read {
            Ok(Ok(keys)) => {
                self.recorder.record(&Event::End { keys });
                Ok(())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("not all could be read within {FINAL_READ_MAX:?}")),
        }
    }

    async fn read_everything(&self) -> Result<Vec<KeyEnd>, Error> {
        let client = Client::connect_with(self.plan.bootstrap.clone()).await?;
        let listed = client.offsets(&self.plan.topic, OffsetQuery::Latest).await?;
        let ends: Vec<KeyEnd> = (listed.iter())
            .filter_map(|(&partition, end)| {
                Some(KeyEnd { key: u32::try_from(partition).ok()?, offset: end.offset })
            })
            .collect();
        let mut reader = Reader::new(client, &self.plan, FINAL_CONSUMER, self.recorder.clone());
        while !ends.iter().all(|end| reader.position(end.key) >= end.offset) {
            reader.step().await;
        }
        Ok(ends)
    }
}

#[derive(Debug)]
struct Tools {
    recorder: Recorder,
    stopped: watch::Receiver<bool>,
    acknowledged: Arc<AtomicU64>,
}

struct Pending {
    value: u64,
    begin_us: u64,
    delivery: Delivery,
}

async fn produce(client: Client, plan: Plan, process: u32, mut tools: Tools) {
    let key = process % plan.partitions;
    let linger = Duration::from_millis(1);
    let producer = client.producer(ProducerConfig { linger, ..ProducerConfig::default() });
    let send = move |value, begin_us, end_us| Send {
        process,
        key,
        value,
        begin_us,
        end_us,
        outcome: Outcome::Unknown,
        offset: None,
        error: None,
    };
    let (pending, mut outcomes) = mpsc::channel::<Pending>(PENDING_MAX);
    let recorder = tools.recorder.clone();
    let waiting = tokio::spawn(async move {
        // Of one partition, outcomes come in the order of the records.
        while let Some(Pending { value, begin_us, delivery }) = outcomes.recv().await {
            let outcome = delivery.await;
            let mut send = send(value, begin_us, recorder.now_us());
            match outcome {
                Ok(delivered) => {
                    (send.outcome, send.offset) = (Outcome::Ok, Some(delivered.offset));
                    tools.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => send.error = Some(error.to_string()),
            }
            recorder.record(&Event::Send(send));
        }
    });
    let period = Duration::from_secs(1) * plan.producers / plan.rate.max(1);
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let partition = i32::try_from(key).unwrap_or(i32::MAX);
    for number in 0.. {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = tools.stopped.wait_for(|stopped| *stopped) => break,
        }
        let value = u64::from(process) * PROCESS_STRIDE + number;
        let record = Record::to(&*plan.topic).partition(partition).value(encode(value, plan.size));
        let begin_us = tools.recorder.now_us();
        match producer.send(record).await {
            Ok(delivery) => {
                if pending.send(Pending { value, begin_us, delivery }).await.is_err() {
                    break;
                }
            }
            // It was never queued.
            Err(error) => {
                let mut send = send(value, begin_us, tools.recorder.now_us());
                (send.outcome, send.error) = (Outcome::Failed, Some(error.to_string()));
                tools.recorder.record(&Event::Send(send));
            }
        }
    }
    drop(pending);
    // A panic in there would have been a bug of ours, and its records are missing: they count as unread, not as fine.
    let _ = waiting.await;
}

async fn follow(mut reader: Reader, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = reader.step() => {}
        }
    }
}

/// A consumer that writes down what it is given.
#[derive(Debug)]
struct Reader {
    consumer: Consumer,
    topic: String,
    process: u32,
    recorder: Recorder,
    positions: BTreeMap<u32, i64>,
    is_assigned: bool,
}

impl Reader {
    fn new(client: Client, plan: &Plan, process: u32, recorder: Recorder) -> Self {
        Self {
            consumer: client.consumer(ConsumerConfig::default()),
            topic: plan.topic.clone(),
            process,
            recorder,
            positions: (0..plan.partitions).map(|key| (key, 0)).collect(),
            is_assigned: false,
        }
    }

    fn position(&self, key: u32) -> i64 {
        self.positions.get(&key).copied().unwrap_or(0)
    }

    /// One poll. After an error it goes on where it was.
    async fn step(&mut self) {
        if !self.is_assigned {
            for (&key, &offset) in &self.positions {
                let partition = i32::try_from(key).unwrap_or(i32::MAX);
                let assigned =
                    self.consumer.assign(&self.topic, partition, StartAt::Offset(offset));
                if assigned.await.is_err() {
                    return;
                }
                self.recorder.record(&Event::Seek { process: self.process, key, offset });
            }
            self.is_assigned = true;
        }
        let begin_us = self.recorder.now_us();
        let Ok(chunk) = self.consumer.next().await else {
            self.is_assigned = false;
            return;
        };
        let Ok(key) = u32::try_from(chunk.partition) else { return };
        self.positions.insert(key, chunk.next_offset);
        let records = chunk
            .records
            .iter()
            .map(|record| (record.offset, record.value.as_deref().and_then(decode)));
        self.recorder.record(&Event::Poll(Poll {
            process: self.process,
            key,
            begin_us,
            end_us: self.recorder.now_us(),
            records: records.collect(),
            next_offset: chunk.next_offset,
        }));
    }
}

/// The number, its checksum, and dots up to `size`.
fn encode(value: u64, size: usize) -> Vec<u8> {
    let mut text = format!("{value} {:08x} ", crc32c::crc32c(&value.to_be_bytes())).into_bytes();
    text.resize(text.len().max(size), b'.');
    text
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (value, rest) = text.split_once(' ')?;
    let (checksum, dots) = rest.split_once(' ')?;
    let value: u64 = value.parse().ok()?;
    let is_right = u32::from_str_radix(checksum, 16) == Ok(crc32c::crc32c(&value.to_be_bytes()));
    (is_right && dots.bytes().all(|byte| byte == b'.')).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_only_when_it_is_whole() {
        let bytes = encode(1234, 100);
        assert_eq!((bytes.len(), decode(&bytes)), (100, Some(1234)));
        for damaged in [&bytes[1..], b"", b"1234 00000000 ", b"x y z", &[0xff; 40]] {
            assert_eq!(decode(damaged), None);
        }
        let mut flipped = bytes;
        flipped[60] ^= 1;
        assert_eq!(decode(&flipped), None);
    }
}
