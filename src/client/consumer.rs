//! Reading records.
//!
//! A consumer owns the position of each partition that it was assigned. [`Consumer::next`] keeps one fetch under way per
//! group of partitions with the same leader; while the caller looks at what came, the next is on its way, and no more:
//! a slow caller slows the fetches down. Leaders that move are followed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::error::cause;
use super::metadata::{Cluster, Leader};
use super::retry::{Backoff, is_retriable};
use super::{ConsumerConfig, Error};
use crate::net;
use crate::protocol::native::{
    FetchEntry, FetchReply, FetchRequest, Fetched, Kind, ListedOffset, OffsetQuery, PartitionError,
};
use crate::record::{self, Batch};
use crate::types::{HostPort, Offset, TimestampMs};

/// A fetch without an answer is given up when the broker is this much late.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// Largest batch when decompressed. Brokers take no batch of more than a few MiB.
const DECOMPRESSED_MAX: usize = 256 << 20;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    Earliest,
    /// After what is there now.
    Latest,
    Offset(Offset),
    /// With the first record at or after this time; at the end when there is none.
    Time(TimestampMs),
}

/// One record as it was written, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumedRecord {
    pub offset: Offset,
    pub timestamp_ms: TimestampMs,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// What one fetch brought of one partition. `records` may be empty when only the position moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedChunk {
    pub topic: Arc<str>,
    pub partition: i32,
    pub records: Vec<ConsumedRecord>,
    /// Where the next fetch begins.
    pub next_offset: Offset,
    /// Records before this are committed; at `next_offset`, everything was read.
    pub high_watermark: Offset,
}

/// Reads partitions. See the module.
#[derive(Debug)]
pub struct Consumer {
    cluster: Arc<Cluster>,
    config: ConsumerConfig,
    assigned: BTreeMap<PartitionKey, Position>,
    ready: VecDeque<FetchedChunk>,
    /// Fetches, and at most one refresh of the metadata.
    under_way: JoinSet<Event>,
    refreshing: bool,
    /// Counts assignments, so that the fetch of an earlier one is not taken for one of the next.
    generation: u64,
}

type PartitionKey = (Arc<str>, i32);

#[derive(Debug)]
struct Position {
    generation: u64,
    next_offset: Offset,
    is_fetching: bool,
    /// Not before this.
    retry_at: Option<Instant>,
    backoff: Backoff,
    failing_since: Option<Instant>,
}

#[derive(Debug)]
enum Event {
    Refreshed,
    Fetched { asked: Vec<Asked>, answer: Result<(FetchReply, Bytes), net::Error> },
}

#[derive(Debug)]
struct Asked {
    key: PartitionKey,
    generation: u64,
    fetch_offset: Offset,
}

impl Consumer {
    pub(super) fn new(cluster: Arc<Cluster>, config: ConsumerConfig) -> Self {
        Self {
            cluster,
            config,
            assigned: BTreeMap::new(),
            ready: VecDeque::new(),
            under_way: JoinSet::new(),
            refreshing: false,
            generation: 0,
        }
    }

    /// Reads this partition from `start` on; again, if it was assigned before. Returns the offset of the start.
    pub async fn assign(
        &mut self,
        topic: &str,
        partition: i32,
        start: StartAt,
    ) -> Result<Offset, Error> {
        let count = self.cluster.topic(topic).await?.partitions.len();
        if usize::try_from(partition).map_or(true, |partition| partition >= count) {
            return Err(Error::UnknownPartition { topic: topic.to_owned(), partition, count });
        }
        let offsets = self.assign_all(topic, &[partition], start).await?;
        offsets.get(&partition).copied().ok_or(Error::Closed)
    }

    /// Reads all partitions that the topic has now. Returns where each starts.
    pub async fn assign_topic(
        &mut self,
        topic: &str,
        start: StartAt,
    ) -> Result<BTreeMap<i32, Offset>, Error> {
        let view = self.cluster.topic(topic).await?;
        let partitions: Vec<i32> = view.partitions.iter().map(|p| p.partition).collect();
        self.assign_all(topic, &partitions, start).await
    }

    async fn assign_all(
        &mut self,
        topic: &str,
        partitions: &[i32],
        start: StartAt,
    ) -> Result<BTreeMap<i32, Offset>, Error> {
        let list = |query| self.cluster.list_offsets(topic, partitions, query);
        let offset_of = |(partition, listed): (i32, ListedOffset)| (partition, listed.offset);
        let mut offsets: BTreeMap<i32, Offset> = match start {
            StartAt::Offset(offset) => partitions.iter().map(|p| (*p, offset)).collect(),
            StartAt::Earliest => {
                list(OffsetQuery::Earliest).await?.into_iter().map(offset_of).collect()
            }
            StartAt::Latest => {
                list(OffsetQuery::Latest).await?.into_iter().map(offset_of).collect()
            }
            StartAt::Time(time) => {
                list(OffsetQuery::Timestamp(time)).await?.into_iter().map(offset_of).collect()
            }
        };
        if offsets.values().any(|offset| *offset < 0) {
            let ends = list(OffsetQuery::Latest).await?;
            for (partition, offset) in offsets.iter_mut().filter(|(_, offset)| **offset < 0) {
                *offset = ends.get(partition).map_or(0, |end| end.offset);
            }
        }
        let topic: Arc<str> = topic.into();
        for (&partition, &next_offset) in &offsets {
            self.generation += 1;
            let position = Position {
                generation: self.generation,
                next_offset,
                is_fetching: false,
                retry_at: None,
                backoff: Backoff::START,
                failing_since: None,
            };
            self.assigned.insert((topic.clone(), partition), position);
            self.ready.retain(|chunk| (&chunk.topic, chunk.partition) != (&topic, partition));
        }
        Ok(offsets)
    }

    /// No longer reads this partition.
    pub fn unassign(&mut self, topic: &str, partition: i32) {
        self.assigned.retain(|key, _| (key.0.as_ref(), key.1) != (topic, partition));
        self.ready.retain(|chunk| (chunk.topic.as_ref(), chunk.partition) != (topic, partition));
    }

    /// The next chunk of any assigned partition, in the order of offsets within each. Waits until there is one.
    ///
    /// An error concerns one partition. One that a retry cannot mend (an offset out of range) unassigns the partition.
    /// Cancel safe.
    pub async fn next(&mut self) -> Result<FetchedChunk, Error> {
        loop {
            let chunk = self.ready.pop_front();
            let next_retry = self.start_fetches();
            if let Some(chunk) = chunk {
                return Ok(chunk);
            }
            let event = tokio::select! {
                event = next_event(&mut self.under_way) => event,
                () = sleep_until(next_retry.unwrap_or_else(Instant::now)), if next_retry.is_some() => continue,
            };
            match event {
                Event::Refreshed => self.refreshing = false,
                Event::Fetched { asked, answer } => self.on_fetched(asked, answer)?,
            }
        }
    }

    /// Fetches whatever is neither being fetched nor waiting for the caller. Returns when the next retry is due.
    fn start_fetches(&mut self) -> Option<Instant> {
        let view = self.cluster.view();
        let now = Instant::now();
        let mut next_retry: Option<Instant> = None;
        let mut is_leaderless = false;
        let mut by_leader: BTreeMap<HostPort, Vec<(Asked, Leader)>> = BTreeMap::new();
        for (key, position) in &mut self.assigned {
            let waits = self.ready.iter().any(|c| (&c.topic, c.partition) == (&key.0, key.1));
            if position.is_fetching || waits {
                continue;
            }
            if let Some(retry_at) = position.retry_at.filter(|retry_at| *retry_at > now) {
                next_retry = Some(next_retry.map_or(retry_at, |next| next.min(retry_at)));
                continue;
            }
            let Some(leader) = view.leader(&key.0, key.1) else {
                let retry_at = position.failed(now);
                next_retry = Some(next_retry.map_or(retry_at, |next| next.min(retry_at)));
                is_leaderless = true;
                continue;
            };
            position.is_fetching = true;
            let asked = Asked {
                key: key.clone(),
                generation: position.generation,
                fetch_offset: position.next_offset,
            };
            by_leader.entry(leader.address.clone()).or_default().push((asked, leader));
        }
        for (address, entries) in by_leader {
            self.fetch(address, entries);
        }
        if is_leaderless {
            self.refresh();
        }
        next_retry
    }

    fn fetch(&mut self, address: HostPort, entries: Vec<(Asked, Leader)>) {
        let entry_of = |(asked, leader): &(Asked, Leader)| FetchEntry {
            topic_id: leader.topic_id,
            partition: leader.partition.partition,
            leader_epoch: leader.partition.leader_epoch,
            fetch_offset: asked.fetch_offset,
            bytes_max: self.config.partition_bytes_max,
        };
        let request = FetchRequest {
            wait_ms: u32::try_from(self.config.wait.as_millis()).unwrap_or(u32::MAX),
            bytes_min: 1,
            bytes_max: self.config.bytes_max,
            entries: entries.iter().map(entry_of).collect(),
        };
        let (cluster, within) = (self.cluster.clone(), self.config.wait + ANSWER_GRACE);
        self.under_way.spawn(async move {
            // When a node falls silent its partitions move, all of them: one is enough to notice.
            let first =
                entries.first().map(|(asked, leader)| (asked.key.0.clone(), leader.clone()));
            let asked = entries.into_iter().map(|(asked, _)| asked).collect();
            let moved = async {
                match &first {
                    Some((topic, leader)) => cluster.moved(topic, leader, Instant::now()).await,
                    None => std::future::pending().await,
                }
            };
            let call =
                cluster.peers.call(&address, Kind::ClientFetch, &request, Bytes::new(), within);
            let answer = tokio::select! {
                biased;
                answer = call => answer,
                () = moved => Err(net::Error::Lost("the partition has another leader".to_owned())),
            };
            Event::Fetched { asked, answer }
        });
    }

    fn refresh(&mut self) {
        if !std::mem::replace(&mut self.refreshing, true) {
            let cluster = self.cluster.clone();
            self.under_way.spawn(async move {
                // Without an answer the old view is as good as any; fetches that fail ask again.
                let _ = cluster.refresh(&cluster.view()).await;
                Event::Refreshed
            });
        }
    }

    fn on_fetched(
        &mut self,
        asked: Vec<Asked>,
        answer: Result<(FetchReply, Bytes), net::Error>,
    ) -> Result<(), Error> {
        let (results, mut payload) = match answer {
            Ok((reply, payload)) if reply.results.len() == asked.len() => (reply.results, payload),
            answer => {
                let cause = match answer {
                    Ok(_) => "not one result a partition".to_owned(),
                    Err(error) => cause(&error),
                };
                let mut outcome = Ok(());
                for asked in asked {
                    outcome = outcome.and(self.retry_later(&asked, cause.clone()));
                }
                return outcome;
            }
        };
        let mut outcome = Ok(());
        for (asked, result) in asked.into_iter().zip(results) {
            let one = match result {
                Ok(fetched) => {
                    let size = usize::try_from(fetched.size).unwrap_or(usize::MAX);
                    if size > payload.len() {
                        return Err(Error::Protocol("batches cut short".to_owned()));
                    }
                    let batches = payload.split_to(size);
                    self.on_batches(&asked, fetched, &batches)
                }
                Err(error) => self.on_refused(&asked, error),
            };
            outcome = outcome.and(one);
        }
        outcome
    }

    fn on_batches(
        &mut self,
        asked: &Asked,
        fetched: Fetched,
        batches: &Bytes,
    ) -> Result<(), Error> {
        let Some(position) = position_of(&mut self.assigned, asked) else { return Ok(()) };
        position.is_fetching = false;
        position.failing_since = None;
        position.backoff = Backoff::START;
        if batches.is_empty() {
            return Ok(());
        }
        match decode(batches, asked.fetch_offset) {
            Ok((records, next_offset)) => {
                position.next_offset = next_offset;
                self.ready.push_back(FetchedChunk {
                    topic: asked.key.0.clone(),
                    partition: asked.key.1,
                    records,
                    next_offset,
                    high_watermark: fetched.high_watermark,
                });
                Ok(())
            }
            Err(refusal) => {
                self.assigned.remove(&asked.key);
                Err(refusal.into())
            }
        }
    }

    fn on_refused(&mut self, asked: &Asked, error: PartitionError) -> Result<(), Error> {
        if !is_retriable(error.code) {
            self.assigned.remove(&asked.key);
            return Err(error.into());
        }
        if self.cluster.learn_leader(&asked.key.0, asked.key.1, &error) {
            if let Some(position) = position_of(&mut self.assigned, asked) {
                position.is_fetching = false;
            }
            return Ok(());
        }
        self.retry_later(asked, Error::from(error).to_string())
    }

    /// An error when it has failed for too long. It is tried again anyway.
    fn retry_later(&mut self, asked: &Asked, cause: String) -> Result<(), Error> {
        self.refresh();
        let within = self.cluster.deadline;
        let Some(position) = position_of(&mut self.assigned, asked) else { return Ok(()) };
        position.is_fetching = false;
        let now = Instant::now();
        position.failed(now);
        if position.failing_since.is_some_and(|since| now - since > within) {
            position.failing_since = None;
            return Err(Error::Deadline { what: "the fetch", within, cause });
        }
        Ok(())
    }
}

impl Position {
    /// Returns when to try again.
    fn failed(&mut self, now: Instant) -> Instant {
        self.failing_since.get_or_insert(now);
        let retry_at = now + self.backoff.next_pause();
        self.retry_at = Some(retry_at);
        retry_at
    }
}

/// The position that a fetch was for, unless it was assigned anew since.
fn position_of<'a>(
    assigned: &'a mut BTreeMap<PartitionKey, Position>,
    asked: &Asked,
) -> Option<&'a mut Position> {
    assigned.get_mut(&asked.key).filter(|position| position.generation == asked.generation)
}

/// Never ends when nothing is under way.
async fn next_event(under_way: &mut JoinSet<Event>) -> Event {
    loop {
        match under_way.join_next().await {
            Some(Ok(event)) => return event,
            // A task that panicked has aborted the process, or the runtime is going down.
            Some(Err(_)) => {}
            None => std::future::pending().await,
        }
    }
}

/// The records from `fetch_offset` on, and where the next fetch begins.
fn decode(
    bytes: &Bytes,
    fetch_offset: Offset,
) -> Result<(Vec<ConsumedRecord>, Offset), record::Refusal> {
    let mut decoded = Vec::new();
    let mut next_offset = fetch_offset;
    for batch in record::batches(bytes) {
        let batch = batch?;
        batch.check_crc()?;
        if !batch.header.is_control() {
            decode_batch(bytes, &batch, fetch_offset, &mut decoded)?;
        }
        next_offset = next_offset.max(batch.header.next_offset());
    }
    Ok((decoded, next_offset))
}

fn decode_batch(
    bytes: &Bytes,
    batch: &Batch<'_>,
    fetch_offset: Offset,
    decoded: &mut Vec<ConsumedRecord>,
) -> Result<(), record::Refusal> {
    // Parts of what was fetched are shared, parts of what was decompressed are copied.
    let owned = |part: &[u8]| match batch.header.is_compressed() {
        true => Bytes::copy_from_slice(part),
        false => bytes.slice_ref(part),
    };
    for record in record::records(batch, DECOMPRESSED_MAX)?.iter() {
        let record = record?;
        // The first batch may begin before what was asked for.
        if record.offset >= fetch_offset {
            let headers = record.headers.iter();
            decoded.push(ConsumedRecord {
                offset: record.offset,
                timestamp_ms: record.timestamp_ms,
                key: record.key.map(owned),
                value: record.value.map(owned),
                headers: headers.map(|(name, v)| ((*name).to_owned(), v.map(owned))).collect(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BatchBuilder, Compression};

    fn batches(compression: Compression) -> Bytes {
        let mut bytes = Vec::new();
        for base_offset in [10_i64, 12] {
            let mut builder = BatchBuilder::new(compression);
            builder.push(1000, Some(b"k"), Some(b"a"), &[("h", Some(b"x")), ("n", None)]);
            builder.push(1001, None, None, &[]);
            let mut batch = builder.build();
            batch[..8].copy_from_slice(&base_offset.to_be_bytes());
            bytes.extend_from_slice(&batch);
        }
        bytes.into()
    }

    #[test]
    fn records_come_out_as_they_went_in_from_the_fetch_offset_on() {
        for compression in Compression::ALL {
            let (records, next_offset) = decode(&batches(compression), 11).expect("well-formed");
            assert_eq!(next_offset, 14);
            let offsets: Vec<_> = records.iter().map(|record| record.offset).collect();
            assert_eq!(offsets, [11, 12, 13], "{compression:?}");
            assert_eq!((&records[0].key, &records[0].value), (&None, &None));
            assert_eq!(records[1].key.as_deref(), Some(&b"k"[..]));
            let headers = [("h".to_owned(), Some(Bytes::from("x"))), ("n".to_owned(), None)];
            assert_eq!(records[1].headers, headers);
            assert_eq!(records[2].timestamp_ms, 1001);
        }
    }

    #[test]
    fn damaged_batches_are_refused() {
        let mut damaged = batches(Compression::None).to_vec();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert!(decode(&damaged.into(), 10).is_err());
        assert!(decode(&batches(Compression::None).slice(..80), 10).is_err());
    }
}
