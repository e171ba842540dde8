//! Numbered records through our client, and the check of what can be read back.
//!
//! The promise under test (INV-10, INV-12, INV-21): with acks=all and an idempotent producer, every acknowledged record is read back at the offset
//! that the acknowledgement named, in the order in which it was sent, once. A record whose fate the producer does not know
//! may be there or not, but not twice and not out of order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kontiki::client::{
    Client, ConsumerConfig, Delivery, OffsetQuery, ProducerConfig, Record, StartAt,
};
use kontiki::types::{Offset, time};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::harness::{Cluster, DEADLINE, eventually};

/// Writes to every partition of a topic until it is stopped.
#[derive(Debug)]
pub(crate) struct Load {
    topic: String,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    writer: JoinHandle<()>,
    collector: JoinHandle<Ledger>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicUsize,
    acknowledged: AtomicUsize,
}

/// What the producer was told.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    topic: String,
    sent: usize,
    /// Per partition: number of the record to its offset.
    acknowledged: BTreeMap<i32, BTreeMap<u64, Offset>>,
    /// Records whose fate is not known, and why.
    unknown: Vec<String>,
    /// Longest time between two acknowledgements.
    longest_gap: Duration,
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
        let writer = Writer { topic: topic.to_owned(), partitions, stop: stop.clone(), queue };
        let writer = tokio::spawn(writer.run(client, counts.clone()));
        let collector = tokio::spawn(collect(topic.to_owned(), deliveries, counts.clone()));
        let load = Self { topic: topic.to_owned(), stop, counts, writer, collector };
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
            self.collector.await.expect("the collector does not panic")
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

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sent, gap) = (self.sent, self.longest_gap);
        write!(f, "{sent} records acknowledged and read back, longest wait for one {gap:?}")
    }
}

impl Ledger {
    /// Reads the topic from the beginning and compares.
    pub(crate) async fn check(&self, cluster: &Cluster) {
        let read = read_all(cluster, &self.topic, |partition| {
            let offsets = self.acknowledged.get(&partition)?;
            offsets.values().max().map(|last| last + 1)
        })
        .await;
        let total: usize = self.acknowledged.values().map(BTreeMap::len).sum();
        assert!(total > 0, "nothing was acknowledged: the scenario proves nothing");
        for (partition, offsets) in &self.acknowledged {
            check_partition(*partition, offsets, &read[partition]);
        }
    }
}

/// `read` is what the partition holds, in order of offsets.
fn check_partition(
    partition: i32,
    acknowledged: &BTreeMap<u64, Offset>,
    read: &[(Offset, String)],
) {
    let mut found = BTreeMap::new();
    let mut last = None;
    for (offset, value) in read {
        let number: u64 = value
            .strip_prefix(&format!("{partition}:"))
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("partition {partition} holds {value:?} at {offset}"));
        assert!(last < Some(number), "partition {partition}: {number} after {last:?} at {offset}");
        last = Some(number);
        found.insert(number, *offset);
    }
    for (number, offset) in acknowledged {
        let found = found.get(number);
        assert_eq!(
            found,
            Some(offset),
            "record {number} of partition {partition} was acknowledged"
        );
    }
}

/// Everything that a topic holds, per partition. Waits until each partition is readable up to the offset that `end_min`
/// knows of.
pub(crate) async fn read_all(
    cluster: &Cluster,
    topic: &str,
    end_min: impl Fn(i32) -> Option<Offset>,
) -> BTreeMap<i32, Vec<(Offset, String)>> {
    let client = cluster.client().await;
    let ends: BTreeMap<i32, Offset> =
        eventually("all that was acknowledged is readable", || async {
            let ends =
                client.offsets(topic, OffsetQuery::Latest).await.map_err(|e| e.to_string())?;
            let ends: BTreeMap<i32, Offset> =
                ends.iter().map(|(p, end)| (*p, end.offset)).collect();
            let behind = ends.iter().find(|(p, end)| end_min(**p).is_some_and(|min| **end < min));
            match behind {
                None => Ok(ends),
                Some((p, end)) => {
                    Err(format!("{topic}-{p} ends at {end}, not at {:?}", end_min(*p)))
                }
            }
        })
        .await;

    let mut read: BTreeMap<i32, Vec<(Offset, String)>> = BTreeMap::new();
    let mut consumer = client.consumer(ConsumerConfig::default());
    consumer.assign_topic(topic, StartAt::Earliest).await.expect("it exists");
    let mut unfinished: BTreeMap<i32, Offset> = ends.clone();
    for partition in ends.keys() {
        read.insert(*partition, Vec::new());
    }
    unfinished.retain(|_, end| *end > 0);
    while !unfinished.is_empty() {
        let next = tokio::time::timeout(DEADLINE, consumer.next()).await;
        let chunk = next.unwrap_or_else(|_| panic!("nothing more comes; missing {unfinished:?}"));
        let chunk = chunk.expect("a partition that was written can be read");
        let records = read.get_mut(&chunk.partition).expect("assigned");
        for record in chunk.records {
            if let Some((last, _)) = records.last() {
                assert_eq!(record.offset, last + 1, "{topic}-{} has a gap", chunk.partition);
            }
            let value = record.value.expect("every record of the load has a value");
            records.push((record.offset, String::from_utf8_lossy(&value).into_owned()));
        }
        if unfinished.get(&chunk.partition).is_some_and(|end| chunk.next_offset >= *end) {
            unfinished.remove(&chunk.partition);
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: &[&str]) -> bool {
        let acknowledged = BTreeMap::from([(0, 0), (2, 1)]);
        let read: Vec<(Offset, String)> = (0..).zip(read.iter().map(ToString::to_string)).collect();
        std::panic::catch_unwind(|| check_partition(7, &acknowledged, &read)).is_ok()
    }

    #[test]
    fn the_checker_sees_loss_duplicates_and_disorder() {
        assert!(check(&["7:0", "7:2"]));
        assert!(check(&["7:0", "7:2", "7:3"]), "an unacknowledged record may be there");
        assert!(!check(&["7:0"]), "lost");
        assert!(!check(&["7:0", "7:2", "7:2"]), "twice");
        assert!(!check(&["7:2", "7:0"]), "out of order");
        assert!(!check(&["7:0", "7:1", "7:2"]), "not at the acknowledged offset");
        assert!(!check(&["7:0", "8:2"]), "of another partition");
    }
}
