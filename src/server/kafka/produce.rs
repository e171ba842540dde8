//! Produce: appends while it is started, answers when the batches count as written.

use std::future::Future;

use bytes::BytesMut;

use super::dispatch::{Call, Reply};
use super::view::{self, LeaderHints};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    Api, ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse,
    ProduceTopicResponse, RecordError, Records, Text,
};
use crate::protocol::native::{PartitionError, Produced};
use crate::types::TopicIdPartition;

/// From here on, a topic is named by its id.
const IDS_FROM: i16 = 13;
/// From here on, a client may compress with zstd.
const ZSTD_FROM: i16 = 7;

/// Where a batch says how it is compressed, and zstd's number there (kafka-protocol.md 3.1).
const CODEC_AT: usize = 22;
const CODEC_ZSTD: u8 = 4;

/// A response under construction: refusals are in it already, the rest waits for the broker.
struct Draft {
    topics: Vec<ProduceTopicResponse>,
    /// For each batch at the broker: its partition, and the row of its result.
    rows: Vec<(TopicIdPartition, usize, usize)>,
}

pub(super) fn handle(
    call: Call,
    request: ProduceRequest,
) -> impl Future<Output = Reply<ProduceResponse>> + Send + 'static {
    let (acks, timeout) = (request.acks, super::timeout(request.timeout_ms));
    let (draft, entries) = draft(&call, request);
    let results = call.front.broker.produce(entries, acks, timeout);
    async move {
        let results = results.await;
        finish(&call, draft, results, acks)
    }
}

/// Sorts out what cannot be appended, and what is to be.
fn draft(call: &Call, request: ProduceRequest) -> (Draft, Vec<(TopicIdPartition, BytesMut)>) {
    let image = call.front.broker.image();
    let refusal = refusal_of_all(call.version, &request);
    let by_id = call.version >= IDS_FROM;
    let mut draft =
        Draft { topics: Vec::with_capacity(request.topic_data.len()), rows: Vec::new() };
    let mut entries = Vec::new();
    for data in request.topic_data {
        let found = view::topic(&image, &data.name, data.topic_id, by_id);
        // A name that is a slice of the request would keep its records in memory until the answer.
        let name = match &found {
            Ok(topic) => topic.name.clone().into(),
            Err(_) => data.name.detached(),
        };
        let mut responses = Vec::with_capacity(data.partition_data.len());
        for partition in data.partition_data {
            let index = partition.index;
            let checked = match (&refusal, &found) {
                (Some((code, message)), _) => Err((*code, *message)),
                (None, Err(code)) => Err((*code, "there is no such topic")),
                (None, Ok(topic)) => batch(call.version, partition).map(|batch| {
                    let id = TopicIdPartition { topic_id: topic.topic_id, partition: index };
                    draft.rows.push((id, draft.topics.len(), responses.len()));
                    entries.push((id, batch));
                }),
            };
            let mut response =
                ProducePartitionResponse { index, base_offset: -1, ..Default::default() };
            if let Err((code, message)) = checked {
                response.error_code = code.code();
                response.error_message = Some(message.into());
            }
            responses.push(response);
        }
        draft.topics.push(ProduceTopicResponse {
            name,
            topic_id: data.topic_id,
            partition_responses: responses,
        });
    }
    (draft, entries)
}

/// Why nothing of a request is appended.
fn refusal_of_all(version: i16, request: &ProduceRequest) -> Option<(ErrorCode, &'static str)> {
    if !Api::Produce.served().contains(&version) {
        // Listed only so that old librdkafka compresses (`api_table!`).
        Some((ErrorCode::UnsupportedVersion, "Produce is served from version 3 on"))
    } else if request.transactional_id.is_some() {
        Some((ErrorCode::InvalidTxnState, "transactions are not served yet"))
    } else if !(-1..=1).contains(&request.acks) {
        Some((ErrorCode::InvalidRequiredAcks, "acks must be -1, 0 or 1"))
    } else {
        None
    }
}

/// The record set of a partition, if this version may send it.
fn batch(version: i16, partition: ProducePartition) -> Result<BytesMut, (ErrorCode, &'static str)> {
    let Records::Bytes(batch) = partition.records else {
        return Err((ErrorCode::InvalidRecord, "there is no record batch"));
    };
    let codec = batch.get(CODEC_AT).map_or(0, |attributes| attributes & 7);
    if codec == CODEC_ZSTD && version < ZSTD_FROM {
        let message = "zstd needs Produce version 7 or later";
        return Err((ErrorCode::UnsupportedCompressionType, message));
    }
    Ok(batch)
}

fn finish(
    call: &Call,
    mut draft: Draft,
    results: Vec<Result<Produced, PartitionError>>,
    acks: i16,
) -> Reply<ProduceResponse> {
    let image = call.front.broker.image();
    let by_id = call.version >= IDS_FROM;
    let mut hints = LeaderHints::new(&image);
    for ((id, topic, row), result) in draft.rows.iter().zip(results) {
        let response = &mut draft.topics[*topic].partition_responses[*row];
        match result {
            Ok(produced) => {
                response.base_offset = produced.base_offset;
                response.log_append_time_ms = produced.log_append_time_ms;
                response.log_start_offset = produced.log_start_offset;
            }
            Err(error) => {
                response.error_code = view::vanished(error.code, by_id).code();
                response.current_leader = hints.hint(*id, &error);
                response.error_message = Some(error.message.into());
                let record_error = |(batch_index, reason): (i32, String)| RecordError {
                    batch_index,
                    batch_index_error_message: Some(reason.into()),
                };
                response.record_errors =
                    error.record_errors.into_iter().map(record_error).collect();
            }
        }
    }
    if acks == 0 {
        return silence(&draft.topics);
    }
    let node_endpoints = hints.endpoints;
    ProduceResponse { responses: draft.topics, node_endpoints, ..Default::default() }.into()
}

/// A client that wants no answer learns of an error by the end of its connection.
fn silence(topics: &[ProduceTopicResponse]) -> Reply<ProduceResponse> {
    let rows = topics.iter().flat_map(|topic| {
        topic.partition_responses.iter().map(move |response| (&topic.name, response))
    });
    match rows.into_iter().find(|(_, response)| response.error_code != 0) {
        None => Reply::Silence,
        Some((name, response)) => {
            let code = ErrorCode::from_code(response.error_code).name();
            let message = response.error_message.as_ref().map_or("", Text::as_str);
            let index = response.index;
            Reply::Close(format!(
                "a produce with acks=0 to {name}-{index} failed: {code}: {message}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(attributes: u8) -> ProducePartition {
        let mut batch = BytesMut::zeroed(61);
        batch[CODEC_AT] = attributes;
        ProducePartition { index: 0, records: Records::Bytes(batch) }
    }

    #[test]
    fn zstd_needs_version_7() {
        assert!(batch(6, partition(3)).is_ok());
        assert!(batch(7, partition(4)).is_ok());
        let (code, _) = batch(6, partition(4 | 8)).expect_err("too old");
        assert_eq!(code, ErrorCode::UnsupportedCompressionType);
        let nothing = ProducePartition { index: 0, records: Records::Null };
        assert_eq!(batch(9, nothing).expect_err("no batch").0, ErrorCode::InvalidRecord);
    }

    #[test]
    fn whole_requests_are_refused_for_what_cannot_be_served() {
        let request = |acks, transaction: Option<&'static str>| ProduceRequest {
            acks,
            transactional_id: transaction.map(Text::from),
            ..Default::default()
        };
        let code = |version, acks, transaction| {
            refusal_of_all(version, &request(acks, transaction)).map(|(code, _)| code)
        };
        assert_eq!(code(3, -1, None), None);
        assert_eq!(code(13, 0, None), None);
        assert_eq!(code(2, 1, None), Some(ErrorCode::UnsupportedVersion));
        assert_eq!(code(9, 2, None), Some(ErrorCode::InvalidRequiredAcks));
        assert_eq!(code(9, 1, Some("tx")), Some(ErrorCode::InvalidTxnState));
    }

    #[test]
    fn without_a_response_an_error_ends_the_connection() {
        let topic = |error_code| ProduceTopicResponse {
            name: "t".into(),
            partition_responses: vec![ProducePartitionResponse {
                index: 3,
                error_code,
                ..Default::default()
            }],
            ..Default::default()
        };
        assert!(matches!(silence(&[topic(0)]), Reply::Silence));
        let Reply::Close(reason) = silence(&[topic(0), topic(6)]) else { panic!("no error") };
        assert!(reason.contains("t-3") && reason.contains("NOT_LEADER_OR_FOLLOWER"), "{reason}");
    }
}
