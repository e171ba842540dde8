//! Writing records.
//!
//! ```text
//! send -> partition of the record -> its Queue (batches) -> its sender task -> the leader, several batches under way
//! ```
//! Invariant: records of one partition are appended in the order in which they were sent, each at most once; with
//! acknowledgements, each that was acknowledged exactly once.

mod queue;
mod sender;
mod sequence;

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use self::queue::{Queue, size_of};
use self::sender::PartitionSender;
use super::metadata::Cluster;
use super::partitioner::{Sticky, partition_of_key};
use super::{Error, ProducerConfig};
use crate::protocol::native::TopicView;
use crate::types::{Offset, TimestampMs, random, time};

/// A record to write.
///
/// ```
/// use kontiki::client::Record;
///
/// let record = Record::to("orders").key("customer-7").value("3 apples").header("trace", "f00d");
/// assert_eq!(record.topic, "orders");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub topic: String,
    /// Chosen by the key, or freely, when `None`.
    pub partition: Option<i32>,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Now, when `None`.
    pub timestamp_ms: Option<TimestampMs>,
}

impl Record {
    /// A record of this topic, with nothing in it.
    pub fn to(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            partition: None,
            key: None,
            value: None,
            headers: Vec::new(),
            timestamp_ms: None,
        }
    }

    #[must_use]
    pub fn partition(mut self, partition: i32) -> Self {
        self.partition = Some(partition);
        self
    }

    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    #[must_use]
    pub fn value(mut self, value: impl Into<Bytes>) -> Self {
        self.value = Some(value.into());
        self
    }

    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: TimestampMs) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }
}

/// Where a record ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    pub partition: i32,
    /// -1 when the acknowledgement does not say: with [`super::Acks::None`].
    pub offset: Offset,
    pub timestamp_ms: TimestampMs,
}

/// The outcome of a record, later. May be dropped: the record is sent anyway.
#[derive(Debug)]
pub struct Delivery {
    outcome: oneshot::Receiver<Result<Delivered, Error>>,
}

impl Future for Delivery {
    type Output = Result<Delivered, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.outcome)
            .poll(context)
            .map(|outcome| outcome.unwrap_or(Err(Error::Closed)))
    }
}

/// Writes records to any topics. Share it by reference or in an `Arc`; what is queued when it is dropped is still sent,
/// as long as the runtime lives.
#[derive(Debug)]
pub struct Producer {
    cluster: Arc<Cluster>,
    config: ProducerConfig,
    /// One permit a byte.
    buffer: Arc<Semaphore>,
    topics: Mutex<HashMap<String, TopicQueues>>,
}

#[derive(Debug)]
struct TopicQueues {
    sticky: Sticky,
    by_partition: BTreeMap<i32, Arc<Queue>>,
}

impl Producer {
    pub(super) fn new(cluster: Arc<Cluster>, mut config: ProducerConfig) -> Self {
        config.in_flight_max = config.in_flight_max.clamp(1, 5);
        config.buffer_bytes = config.buffer_bytes.min(Semaphore::MAX_PERMITS);
        let buffer = Arc::new(Semaphore::new(config.buffer_bytes));
        Self { cluster, config, buffer, topics: Mutex::default() }
    }

    /// Queues a record. Waits while the buffer is full, or to learn of the topic.
    ///
    /// The order of records of one partition is the order in which these calls returned. Cancel safe: a cancelled call
    /// has queued nothing.
    pub async fn send(&self, mut record: Record) -> Result<Delivery, Error> {
        let topic = self.cluster.topic(&record.topic).await?;
        let size = size_of(&record);
        let too_large = Error::RecordTooLarge { size, limit: self.config.buffer_bytes };
        if size > self.config.buffer_bytes {
            return Err(too_large);
        }
        let permits = u32::try_from(size).map_err(|_| too_large)?;
        let permit = self.buffer.acquire_many(permits).await.map_err(|_| Error::Closed)?;
        record.timestamp_ms.get_or_insert_with(time::wall_ms);

        let mut topics = self.topics.lock();
        if !topics.contains_key(&record.topic) {
            let (sticky, by_partition) = (Sticky::new(random::seed()), BTreeMap::new());
            topics.insert(record.topic.clone(), TopicQueues { sticky, by_partition });
        }
        let queues = topics.get_mut(&record.topic).expect("inserted above");
        let (partition, is_sticky) = queues.choose(&record, &topic)?;
        let queue = queues.by_partition.entry(partition).or_insert_with(|| {
            let queue = Arc::new(Queue::new(self.config.batch_bytes, self.config.linger));
            PartitionSender::start(
                self.cluster.clone(),
                self.config,
                self.buffer.clone(),
                (record.topic.clone(), partition),
                queue.clone(),
            );
            queue
        });
        // Given back when the batch has its outcome.
        permit.forget();
        let (outcome, closed_a_batch) = queue.push(record, size);
        if is_sticky && closed_a_batch {
            queues.sticky.advance();
        }
        Ok(Delivery { outcome })
    }

    /// Sends what is queued without lingering, and waits until all of it has its outcome.
    pub async fn flush(&self) {
        let queues: Vec<Arc<Queue>> = (self.topics.lock().values())
            .flat_map(|topic| topic.by_partition.values().cloned())
            .collect();
        let mut flushes = tokio::task::JoinSet::new();
        for queue in queues {
            flushes.spawn(async move { queue.flush().await });
        }
        while flushes.join_next().await.is_some() {}
    }
}

impl TopicQueues {
    /// The flag tells that the choice was free.
    fn choose(&mut self, record: &Record, topic: &TopicView) -> Result<(i32, bool), Error> {
        let count = topic.partitions.len();
        match (record.partition, &record.key) {
            (Some(partition), _) => {
                if usize::try_from(partition).is_ok_and(|partition| partition < count) {
                    return Ok((partition, false));
                }
                let topic = record.topic.clone();
                Err(Error::UnknownPartition { topic, partition, count })
            }
            (None, Some(key)) => Ok((partition_of_key(key, count), false)),
            (None, None) => {
                let has_leader = |partition: i32| {
                    let partition = usize::try_from(partition).ok();
                    let view = partition.and_then(|partition| topic.partitions.get(partition));
                    view.is_some_and(|view| view.leader.known().is_some())
                };
                Ok((self.sticky.partition(count, has_leader), true))
            }
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        for topic in self.topics.lock().values() {
            topic.by_partition.values().for_each(|queue| queue.close());
        }
    }
}
