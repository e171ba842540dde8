//! Numbered records through our client, read along as they come, and the check of what can be read back.
//!
//! The promise under test (INV-10, INV-12, INV-21): with acks=all and an idempotent producer, every acknowledged record is
//! read back at the offset that the acknowledgement named, in the order in which it was sent, once. A record whose fate the
//! producer does not know may be there or not, but not twice and not out of order. What a consumer has seen stays.

mod ledger;
mod reader;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kontiki::client::{Client, Delivery, ProducerConfig, Record};
use kontiki::types::time;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) use ledger::Ledger;
use reader::{ReadRecords, read_along};

use crate::harness::{Cluster, DEADLINE, eventually};

/// What most scenarios write to.
pub(crate) const TOPIC: &str = "orders";

/// How most scenarios begin: three nodes, and records that are written to [`TOPIC`] and read all the time.
pub(crate) async fn under_load(partitions: i32) -> (Cluster, Load) {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, partitions).await;
    let load = Load::start(&cluster, TOPIC).await;
    (cluster, load)
}

/// Writes to every partition of a topic until it is stopped.
#[derive(Debug)]
pub(crate) struct Load {
    topic: String,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    writer: JoinHandle<()>,
    collector: JoinHandle<Ledger>,
    reader: JoinHandle<ReadRecords>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicUsize,
    acknowledged: AtomicUsize,
}

struct Sent {
    partition: i32,
    number: u64,
    delivery: Delivery,
}

impl Load {
    /// One record to each partition every few milliseconds.
    pub(crate) async fn start(cluster: &Cluster, topic: &str) -> Self {
        let client = cluster.client().await;
        let partitions = client.topic(topic).await.expect("it was created").partitions.len();
        let partitions = i32::try_from(partitions).expect("a small number");
        let stop = Arc::new(AtomicBool::new(false));
        let counts = Arc::new(Counts::default());
        let (queue, deliveries) = mpsc::channel(100_000);
        let (reading, topic_read, stop_reading) = (client.clone(), topic.to_owned(), stop.clone());
        let reader =
            tokio::spawn(async move { read_along(reading, topic_read, &stop_reading).await });
        let writer = Writer { topic: topic.to_owned(), partitions, stop: stop.clone(), queue };
        let writer = tokio::spawn(writer.run(client, counts.clone()));
        let collector = tokio::spawn(collect(topic.to_owned(), deliveries, counts.clone()));
        let load = Self { topic: topic.to_owned(), stop, counts, writer, collector, reader };
        load.progress().await;
        load
    }

    /// Waits until everything sent before the call is acknowledged, and a hundred records that were sent after it.
    pub(crate) async fn progress(&self) {
        let enough = self.counts.sent.load(Ordering::SeqCst) + 100;
        eventually(&format!("writes to {} go on", self.topic), || async {
            let now = self.counts.acknowledged.load(Ordering::SeqCst);
            if now >= enough { Ok(()) } else { Err(format!("{now} of {enough} acknowledged")) }
        })
        .await;
    }

    /// Ends the load and waits until the fate of every record is known.
    pub(crate) async fn finish(self) -> Ledger {
        self.stop.store(true, Ordering::SeqCst);
        let joined = async {
            self.writer.await.expect("the writer does not panic");
            let seen = self.reader.await.expect("the reader meets nothing that it must not meet");
            let ledger = self.collector.await.expect("the collector does not panic");
            Ledger { seen, ..ledger }
        };
        tokio::time::timeout(DEADLINE, joined).await.expect("every record gets its outcome")
    }

    /// Ends the load and checks that everything acknowledged is there: the whole promise.
    pub(crate) async fn check(self, cluster: &Cluster) -> Ledger {
        let ledger = self.finish().await;
        assert!(ledger.unknown.is_empty(), "records were given up: {:?}", ledger.unknown);
        ledger.check(cluster).await;
        ledger
    }
}

struct Writer {
    topic: String,
    partitions: i32,
    stop: Arc<AtomicBool>,
    queue: mpsc::Sender<Sent>,
}

impl Writer {
    async fn run(self, client: Client, counts: Arc<Counts>) {
        // Faults of the scenarios end within DEADLINE; no record is given up before.
        let config = ProducerConfig { delivery_timeout: DEADLINE, ..ProducerConfig::default() };
        let producer = client.producer(config);
        let mut number = 0;
        while !self.stop.load(Ordering::SeqCst) {
            for partition in 0..self.partitions {
                let value = format!("{partition}:{number}");
                let record = Record::to(&self.topic).partition(partition).value(value);
                let delivery = producer.send(record).await.expect("a valid record is taken");
                counts.sent.fetch_add(1, Ordering::SeqCst);
                let sent = Sent { partition, number, delivery };
                self.queue.send(sent).await.expect("the collector outlives the writer");
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        producer.flush().await;
    }
}

async fn collect(
    topic: String,
    mut deliveries: mpsc::Receiver<Sent>,
    counts: Arc<Counts>,
) -> Ledger {
    let mut ledger = Ledger { topic, ..Ledger::default() };
    let mut last: Option<Instant> = None;
    while let Some(Sent { partition, number, delivery }) = deliveries.recv().await {
        ledger.sent += 1;
        match delivery.await {
            Ok(delivered) => {
                assert_eq!(delivered.partition, partition);
                let offsets = ledger.acknowledged.entry(partition).or_default();
                offsets.insert(number, delivered.offset);
                let now = time::now();
                let gap = last.map_or(Duration::ZERO, |last| now - last);
                ledger.longest_gap = ledger.longest_gap.max(gap);
                last = Some(now);
                counts.acknowledged.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => ledger.unknown.push(format!("{partition}:{number}: {error}")),
        }
    }
    ledger
}
