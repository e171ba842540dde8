//! What clients do with partitions: produce, fetch, list offsets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::time::{Instant, timeout_at};

use super::partition::{FetchedSlice, Partition, ProduceOutcome, TrimResult};
use super::purgatory::FetchWaiter;
use super::{Broker, FetchQuery};
use crate::protocol::ErrorCode;
use crate::protocol::native::{ListedOffset, OffsetQuery, PartitionError, Produced};
use crate::types::{LeaderEpoch, Offset, TopicIdPartition, time};

impl Broker {
    /// Appends each batch to its partition before it returns; the future completes when all of them count as written
    /// under `acks` (-1, 0 or 1), or have failed, or `timeout` has passed. Results are in the order of the entries.
    pub fn produce(
        &self,
        entries: Vec<(TopicIdPartition, BytesMut)>,
        acks: i16,
        timeout: Duration,
    ) -> impl Future<Output = Vec<Result<Produced, PartitionError>>> + Send + 'static + use<> {
        let deadline = time::now() + timeout;
        let outcomes: Vec<ProduceOutcome> = entries
            .into_iter()
            .map(|(id, batch)| {
                let size = batch.len() as u64;
                let outcome = self.append(id, batch, acks, deadline);
                if matches!(outcome, ProduceOutcome::Done(Err(_))) {
                    self.metrics.produce_refusals.inc();
                } else {
                    self.metrics.produced_batches.inc();
                    self.metrics.produced_bytes.inc_by(size);
                }
                outcome
            })
            .collect();
        async move {
            let mut results = Vec::with_capacity(outcomes.len());
            for outcome in outcomes {
                results.push(match outcome {
                    ProduceOutcome::Done(result) => result,
                    ProduceOutcome::Wait(waiter) => waiter.await,
                });
            }
            results
        }
    }

    /// Appends batches that have their offsets already. See [`Partition::import`].
    pub async fn import(
        &self,
        id: TopicIdPartition,
        batches: BytesMut,
        expected_end: Offset,
        timeout: Duration,
    ) -> Result<Produced, PartitionError> {
        let partition = self.find_partition(id)?;
        match partition.import(batches, expected_end, time::now() + timeout) {
            ProduceOutcome::Done(result) => result,
            ProduceOutcome::Wait(waiter) => waiter.await,
        }
    }

    /// See [`Partition::read_replica`].
    pub fn read_replica(
        &self,
        id: TopicIdPartition,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
    ) -> Result<FetchedSlice, PartitionError> {
        self.find_partition(id)?.read_replica(from, upper, bytes_max)
    }

    fn append(
        &self,
        id: TopicIdPartition,
        batch: BytesMut,
        acks: i16,
        deadline: std::time::Instant,
    ) -> ProduceOutcome {
        if !matches!(acks, -1..=1) {
            let message = format!("acks must be -1, 0 or 1, not {acks}");
            return ProduceOutcome::Done(Err(refusal(ErrorCode::InvalidRequiredAcks, message)));
        }
        match self.find_partition(id) {
            Ok(partition) => partition.produce(batch, acks, deadline),
            Err(error) => ProduceOutcome::Done(Err(error)),
        }
    }

    /// Reads all entries; waits while they are fewer than `bytes_min` bytes and none is refused, until `wait` has passed.
    /// At least one batch is returned, if there is one, however large.
    pub async fn fetch(&self, query: FetchQuery) -> Vec<Result<FetchedSlice, PartitionError>> {
        let deadline = Instant::now() + query.wait;
        let partitions: Vec<_> =
            query.entries.iter().map(|entry| self.find_partition(entry.partition)).collect();
        let waiter = Arc::<FetchWaiter>::default();
        loop {
            let read = Read::all(&query, &partitions);
            let may_wait = read.size < query.bytes_min && !read.is_final && !query.wait.is_zero();
            if !may_wait || Instant::now() >= deadline {
                self.metrics.fetched_bytes.inc_by(read.size as u64);
                return read.results;
            }
            if read.register(&partitions, &waiter) {
                // What the time brings, the next look tells.
                let _ = timeout_at(deadline, waiter.woken()).await;
            }
        }
    }

    pub fn list_offset(
        &self,
        id: TopicIdPartition,
        query: OffsetQuery,
        leader_epoch: LeaderEpoch,
    ) -> Result<ListedOffset, PartitionError> {
        self.find_partition(id)?.list_offset(query, leader_epoch)
    }

    /// Deletes the records before the offset of each partition (-1: all that is committed). Answers with low watermarks,
    /// in the order of the entries, once every live replica has the new log starts, or when `timeout` has passed.
    pub async fn delete_records(
        &self,
        entries: Vec<(TopicIdPartition, Offset)>,
        timeout: Duration,
    ) -> Vec<TrimResult> {
        let deadline = time::now() + timeout;
        let trim = |(id, offset): (TopicIdPartition, Offset)| {
            self.find_partition(id)?.trim(Some(offset).filter(|offset| *offset != -1), deadline)
        };
        let waiters: Vec<_> = entries.into_iter().map(trim).collect();
        let mut results = Vec::with_capacity(waiters.len());
        for waiter in waiters {
            results.push(match waiter {
                Ok(waiter) => waiter.await.unwrap_or_else(|_| {
                    let message = "the partition was removed from this broker".to_owned();
                    Err(refusal(ErrorCode::NotLeaderOrFollower, message))
                }),
                Err(error) => Err(error),
            });
        }
        results
    }

    /// The replica here, or why clients have no business with it here.
    fn find_partition(&self, id: TopicIdPartition) -> Result<Arc<Partition>, PartitionError> {
        if let Some(partition) = self.partition(id) {
            return Ok(partition);
        }
        let image = self.image();
        if image.topic_by_id(id.topic_id).is_none() {
            let message = format!("no topic has the id {}", id.topic_id);
            return Err(refusal(ErrorCode::UnknownTopicId, message));
        }
        let Some(partition) = image.partition(id) else {
            let message = format!("the topic has no partition {}", id.partition);
            return Err(refusal(ErrorCode::UnknownTopicOrPartition, message));
        };
        let leader = partition.leader.known().map(|leader| (leader, partition.leader_epoch));
        let message = "this broker has no replica of it".to_owned();
        Err(PartitionError {
            code: ErrorCode::NotLeaderOrFollower,
            message,
            leader,
            record_errors: Vec::new(),
        })
    }
}

fn refusal(code: ErrorCode, message: String) -> PartitionError {
    PartitionError { code, message, leader: None, record_errors: Vec::new() }
}

/// One look at all partitions of a fetch.
struct Read {
    results: Vec<Result<FetchedSlice, PartitionError>>,
    size: usize,
    /// Somebody has to be told something, however little was read.
    is_final: bool,
}

impl Read {
    fn all(query: &FetchQuery, partitions: &[Result<Arc<Partition>, PartitionError>]) -> Self {
        let mut read = Self {
            results: Vec::with_capacity(partitions.len()),
            size: 0,
            is_final: partitions.is_empty(),
        };
        for (entry, partition) in query.entries.iter().zip(partitions) {
            let result = partition.as_ref().map_err(Clone::clone).and_then(|partition| {
                partition.fetch_read(
                    entry.fetch_offset,
                    entry.leader_epoch,
                    entry.last_fetched_epoch,
                    entry.bytes_max.min(query.bytes_max.saturating_sub(read.size)),
                    read.size == 0,
                )
            });
            match &result {
                Ok(fetched) => {
                    read.size += fetched.slice.size;
                    read.is_final |= fetched.diverging.is_some();
                }
                Err(_) => read.is_final = true,
            }
            read.results.push(result);
        }
        read
    }

    /// `false`: something has changed since, so look again.
    fn register(
        &self,
        partitions: &[Result<Arc<Partition>, PartitionError>],
        waiter: &Arc<FetchWaiter>,
    ) -> bool {
        self.results.iter().zip(partitions).all(|(result, partition)| match (result, partition) {
            (Ok(fetched), Ok(partition)) => {
                partition.register_fetch_waiter(waiter, fetched.high_watermark)
            }
            _ => true,
        })
    }
}
