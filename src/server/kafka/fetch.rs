//! Fetch: long polls, answered with slices of log files. Sessions are never granted.

use super::dispatch::{Call, Reply};
use super::view::{self, LeaderHints};
use crate::broker::{self, FetchQuery, FetchedSlice};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    DivergingEpoch, FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse,
    FetchTopicResponse, Records,
};
use crate::protocol::native::PartitionError;
use crate::storage::Slice;
use crate::types::{LeaderEpoch, TopicIdPartition};

/// From here on, a topic is named by its id.
const IDS_FROM: i16 = 13;

/// Epochs of requests that name all their partitions: outside of a session, and to open one.
const SESSIONLESS: i32 = -1;
const NEW_SESSION: i32 = 0;

/// Asks for the list of aborted transactions, which is empty as long as there are none.
const READ_COMMITTED: i8 = 1;

pub(super) async fn handle(call: Call, request: FetchRequest) -> Reply<FetchResponse> {
    let replica = request.replica_id.max(request.replica_state.replica_id);
    if replica >= 0 {
        return Reply::Close(format!("broker {replica} of Kafka wants to be a follower here"));
    }
    if ![SESSIONLESS, NEW_SESSION].contains(&request.session_epoch) {
        // The next request of a session, and there is none. The client starts over with a full one.
        let error_code = ErrorCode::FetchSessionIdNotFound.code();
        return FetchResponse { error_code, ..Default::default() }.into();
    }
    let front = &call.front;
    let image = front.broker.image();
    let by_id = call.version >= IDS_FROM;
    let size = |size: i32| usize::try_from(size).unwrap_or(0);

    let mut entries = Vec::new();
    // For each entry: the row of its result.
    let mut rows = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    let mut some_are_unknown = false;
    for topic in request.topics {
        let found = view::topic(&image, &topic.topic, topic.topic_id, by_id);
        some_are_unknown |= found.is_err();
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let partition_index = asked.partition;
            match &found {
                Ok(topic) => {
                    let id =
                        TopicIdPartition { topic_id: topic.topic_id, partition: partition_index };
                    rows.push((topics.len(), partitions.len()));
                    entries.push(entry(id, &asked));
                    partitions
                        .push(FetchPartitionResponse { partition_index, ..Default::default() });
                }
                Err(code) => partitions.push(failed(partition_index, *code)),
            }
        }
        topics.push(FetchTopicResponse {
            topic: topic.topic,
            topic_id: topic.topic_id,
            partitions,
        });
    }

    let ids: Vec<_> = entries.iter().map(|entry| entry.partition).collect();
    let query = FetchQuery {
        // An error is worth telling at once.
        wait: if some_are_unknown {
            Default::default()
        } else {
            super::timeout(request.max_wait_ms)
        },
        bytes_min: size(request.min_bytes),
        bytes_max: size(request.max_bytes).min(front.config.fetch_size_max),
        entries,
    };
    let results = front.broker.fetch(query).await;

    let image = front.broker.image();
    let mut hints = LeaderHints::new(&image);
    let mut slices = Vec::new();
    for (((topic, row), id), result) in rows.into_iter().zip(ids).zip(results) {
        topics[topic].partitions[row] =
            finish(id, result, by_id, request.isolation_level, &mut hints, &mut slices);
    }
    let node_endpoints = hints.endpoints;
    let response = FetchResponse { responses: topics, node_endpoints, ..Default::default() };
    Reply::Response { response, slices }
}

fn entry(partition: TopicIdPartition, asked: &FetchPartition) -> broker::FetchPartition {
    broker::FetchPartition {
        partition,
        leader_epoch: LeaderEpoch(asked.current_leader_epoch),
        last_fetched_epoch: LeaderEpoch(asked.last_fetched_epoch),
        fetch_offset: asked.fetch_offset,
        bytes_max: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
    }
}

fn failed(partition_index: i32, code: ErrorCode) -> FetchPartitionResponse {
    FetchPartitionResponse {
        partition_index,
        error_code: code.code(),
        high_watermark: -1,
        // Empty rather than null, which older clients do not expect.
        records: Records::Gap(0),
        ..Default::default()
    }
}

fn finish(
    id: TopicIdPartition,
    result: Result<FetchedSlice, PartitionError>,
    by_id: bool,
    isolation_level: i8,
    hints: &mut LeaderHints<'_>,
    slices: &mut Vec<Slice>,
) -> FetchPartitionResponse {
    let fetched = match result {
        Ok(fetched) => fetched,
        Err(error) => {
            let current_leader = hints.hint(id, &error);
            let code = view::vanished(error.code, by_id);
            return FetchPartitionResponse { current_leader, ..failed(id.partition, code) };
        }
    };
    let size = fetched.slice.size;
    if size > 0 {
        slices.push(fetched.slice);
    }
    let diverging = fetched.diverging;
    FetchPartitionResponse {
        partition_index: id.partition,
        high_watermark: fetched.high_watermark,
        // Without transactions every record below the high watermark is stable.
        last_stable_offset: fetched.high_watermark,
        log_start_offset: fetched.log_start_offset,
        diverging_epoch: diverging.map_or_else(Default::default, |(epoch, end_offset)| {
            DivergingEpoch { epoch: epoch.0, end_offset }
        }),
        aborted_transactions: (isolation_level == READ_COMMITTED).then(Vec::new),
        records: Records::Gap(size),
        ..Default::default()
    }
}
