//! Reading a topic, at the end and all along.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kontiki::client::{Client, ConsumerConfig, FetchedChunk, OffsetQuery, StartAt};
use kontiki::protocol::ErrorCode;
use kontiki::types::Offset;
use tokio::time::timeout;

use crate::harness::{Cluster, DEADLINE, eventually};

/// Per partition: offsets and values, in order.
pub(crate) type ReadRecords = BTreeMap<i32, Vec<(Offset, String)>>;

/// Everything that a topic holds, per partition. Waits until each partition is readable up to the offset that `end_min`
/// knows of.
pub(crate) async fn read_all(
    cluster: &Cluster,
    topic: &str,
    end_min: impl Fn(i32) -> Option<Offset>,
) -> ReadRecords {
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

    let mut read: ReadRecords = ends.keys().map(|partition| (*partition, Vec::new())).collect();
    let mut consumer = client.consumer(ConsumerConfig::default());
    consumer.assign_topic(topic, StartAt::Earliest).await.expect("it exists");
    let mut unfinished: BTreeMap<i32, Offset> =
        ends.into_iter().filter(|(_, end)| *end > 0).collect();
    while !unfinished.is_empty() {
        let next = timeout(DEADLINE, consumer.next()).await;
        let chunk = next.unwrap_or_else(|_| panic!("nothing more comes; missing {unfinished:?}"));
        let chunk = chunk.expect("a partition that was written can be read");
        if unfinished.get(&chunk.partition).is_some_and(|end| chunk.next_offset >= *end) {
            unfinished.remove(&chunk.partition);
        }
        take(&mut read, chunk);
    }
    read
}

/// Reads along like an application, whatever happens to the cluster, until it is told to stop.
pub(super) async fn read_along(client: Client, topic: String, stop: &AtomicBool) -> ReadRecords {
    let mut read = ReadRecords::new();
    let mut consumer = client.consumer(ConsumerConfig::default());
    consumer.assign_topic(&topic, StartAt::Earliest).await.expect("it exists");
    while !stop.load(Ordering::SeqCst) {
        match timeout(Duration::from_millis(200), consumer.next()).await {
            Ok(Ok(chunk)) => take(&mut read, chunk),
            Ok(Err(error)) => {
                // What was read does not go away (INV-12); anything else passes with the fault.
                assert_ne!(error.code(), Some(ErrorCode::OffsetOutOfRange), "{error}");
            }
            Err(_) => {}
        }
    }
    read
}

/// Offsets follow each other without a gap.
fn take(read: &mut ReadRecords, chunk: FetchedChunk) {
    let records = read.entry(chunk.partition).or_default();
    for record in chunk.records {
        let expected = records.last().map_or(0, |(last, _)| last + 1);
        assert_eq!(record.offset, expected, "{}-{} has a gap", chunk.topic, chunk.partition);
        let value = record.value.expect("every record of the load has a value");
        records.push((record.offset, String::from_utf8_lossy(&value).into_owned()));
    }
}
