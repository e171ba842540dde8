//! Fetch: long polls, answered with slices of log files. Sessions are never granted.

use super::dispatch::{Call, Reply};
use super::view::{self, LeaderHints};
use crate::broker::{self, FetchQuery, FetchedSlice};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    DivergingEpoch, FetchPartition, FetchPartitionResponse, FetchRequest, FetchResponse,
    FetchTopic, FetchTopicResponse, Records,
};
use crate::protocol::native::PartitionError;
use crate::storage::Slice;
use crate::types::{LeaderEpoch, TopicIdPartition};

/// From here on, a topic is named by its id.
const IDS_FROM: i16 = 13;

/// Epochs of requests that name all their partitions: outside of a session, and to open one.
const SESSIONLESS: i32 = -1;
const NEW_SESSION: i32 = 0;

/// From here on, clients look for the leader beside an error.
const HINTS_FROM: i16 = 16;

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
    let (draft, entries) = draft(&call, request.topics);
    let size = |size: i32| usize::try_from(size).unwrap_or(0);
    // An error is worth telling at once.
    let wait_ms = if draft.some_are_unknown { 0 } else { request.max_wait_ms };
    let query = FetchQuery {
        wait: super::timeout(wait_ms),
        bytes_min: size(request.min_bytes),
        bytes_max: size(request.max_bytes).min(call.front.config.fetch_size_max),
        entries,
    };
    let results = call.front.broker.fetch(query).await;
    finish(&call, draft, results, request.isolation_level)
}

/// A response under construction: what is unknown is in it already, the rest waits for the broker.
struct Draft {
    topics: Vec<FetchTopicResponse>,
    some_are_unknown: bool,
    /// For each entry at the broker: its partition, and the row of its result.
    rows: Vec<(TopicIdPartition, usize, usize)>,
}

fn draft(call: &Call, asked: Vec<FetchTopic>) -> (Draft, Vec<broker::FetchPartition>) {
    let image = call.front.broker.image();
    let mut draft = Draft {
        topics: Vec::with_capacity(asked.len()),
        some_are_unknown: false,
        rows: Vec::with_capacity(asked.len()),
    };
    let mut entries = Vec::with_capacity(asked.len());
    for FetchTopic { topic, topic_id, partitions } in asked {
        let found = view::topic(&image, &topic, topic_id, call.version >= IDS_FROM);
        draft.some_are_unknown |= found.is_err();
        let mut responses = Vec::with_capacity(partitions.len());
        for asked in &partitions {
            let response = match &found {
                Ok(topic) => {
                    let (topic_id, partition) = (topic.topic_id, asked.partition);
                    let id = TopicIdPartition { topic_id, partition };
                    draft.rows.push((id, draft.topics.len(), responses.len()));
                    entries.push(entry(id, asked));
                    FetchPartitionResponse::default()
                }
                Err(code) => failed(asked.partition, *code),
            };
            responses.push(response);
        }
        draft.topics.push(FetchTopicResponse { topic, topic_id, partitions: responses });
    }
    (draft, entries)
}

fn finish(
    call: &Call,
    mut draft: Draft,
    results: Vec<Result<FetchedSlice, PartitionError>>,
    isolation_level: i8,
) -> Reply<FetchResponse> {
    let image = call.front.broker.image();
    let mut hints = LeaderHints::new(&image);
    let mut slices = Vec::new();
    for ((id, topic, row), result) in draft.rows.into_iter().zip(results) {
        draft.topics[topic].partitions[row] = match result {
            Ok(fetched) => found(id, fetched, isolation_level, &mut slices),
            Err(error) => {
                let code = view::vanished(error.code, call.version >= IDS_FROM);
                let mut response = failed(id.partition, code);
                if call.version >= HINTS_FROM {
                    response.current_leader = hints.hint(id, &error);
                }
                response
            }
        };
    }
    let node_endpoints = hints.endpoints;
    let response = FetchResponse { responses: draft.topics, node_endpoints, ..Default::default() };
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

fn found(
    id: TopicIdPartition,
    fetched: FetchedSlice,
    isolation_level: i8,
    slices: &mut Vec<Slice>,
) -> FetchPartitionResponse {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Uuid;

    fn fetched(size: usize, diverging: Option<(LeaderEpoch, i64)>) -> FetchedSlice {
        FetchedSlice {
            high_watermark: 20,
            log_start_offset: 3,
            slice: Slice { file: None, position: 0, size, next_offset: 9 },
            diverging,
        }
    }

    #[test]
    fn rows_have_every_field_that_clients_rely_on() {
        let id = TopicIdPartition { topic_id: Uuid::ZERO, partition: 4 };
        let mut slices = Vec::new();
        let empty = found(id, fetched(0, None), 0, &mut slices);
        assert_eq!(
            (empty.partition_index, empty.error_code, &empty.records),
            (4, 0, &Records::Gap(0))
        );
        assert_eq!((empty.preferred_read_replica, empty.aborted_transactions), (-1, None));
        assert!(slices.is_empty(), "nothing to insert for no records");

        let full = found(id, fetched(100, None), READ_COMMITTED, &mut slices);
        assert_eq!(
            (full.high_watermark, full.last_stable_offset, full.log_start_offset),
            (20, 20, 3)
        );
        assert_eq!(
            (full.aborted_transactions, full.records),
            (Some(Vec::new()), Records::Gap(100))
        );
        assert_eq!(slices.len(), 1);

        let diverging = found(id, fetched(0, Some((LeaderEpoch(2), 7))), 0, &mut slices);
        assert_eq!(diverging.diverging_epoch, DivergingEpoch { epoch: 2, end_offset: 7 });
        assert_eq!(diverging.error_code, 0);

        let error = failed(4, ErrorCode::NotLeaderOrFollower);
        assert_eq!(
            (error.error_code, error.high_watermark, error.records),
            (6, -1, Records::Gap(0))
        );
    }
}
