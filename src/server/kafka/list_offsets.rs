//! ListOffsets: offsets at ends and at times.

use super::dispatch::{Call, Reply};
use super::view;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse, TIMESTAMP_EARLIEST, TIMESTAMP_EARLIEST_LOCAL,
    TIMESTAMP_EARLIEST_PENDING_UPLOAD, TIMESTAMP_LATEST, TIMESTAMP_LATEST_TIERED, TIMESTAMP_MAX,
};
use crate::protocol::native::OffsetQuery;
use crate::types::{LeaderEpoch, TopicIdPartition, Uuid};

pub(super) async fn handle(call: Call, request: ListOffsetsRequest) -> Reply<ListOffsetsResponse> {
    let image = call.front.broker.image();
    let topics = request.topics.into_iter().map(|topic| {
        let found = view::topic(&image, &topic.name, Uuid::ZERO, false);
        let partitions = topic.partitions.iter().map(|partition| {
            let answer = match &found {
                Ok(topic) => look_up(&call, topic.topic_id, partition),
                Err(code) => Err(*code),
            };
            answer.unwrap_or_else(|code| ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                error_code: code.code(),
                ..Default::default()
            })
        });
        ListOffsetsTopicResponse { partitions: partitions.collect(), name: topic.name }
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }.into()
}

fn look_up(
    call: &Call,
    topic_id: Uuid,
    partition: &ListOffsetsPartition,
) -> Result<ListOffsetsPartitionResponse, ErrorCode> {
    let partition_index = partition.partition_index;
    let mut response = ListOffsetsPartitionResponse { partition_index, ..Default::default() };
    if let Some(query) = query(call.version, partition.timestamp)? {
        let id = TopicIdPartition { topic_id, partition: partition_index };
        let epoch = LeaderEpoch(partition.current_leader_epoch);
        let listed = call.front.broker.list_offset(id, query, epoch);
        let listed = listed.map_err(|error| view::vanished(error.code, false))?;
        response.offset = listed.offset;
        response.timestamp = listed.timestamp;
        response.leader_epoch = listed.leader_epoch.0;
    }
    Ok(response)
}

/// What is asked for; `None` where the answer is "nowhere", because nothing is in remote storage.
fn query(version: i16, timestamp: i64) -> Result<Option<OffsetQuery>, ErrorCode> {
    let (since, query) = match timestamp {
        0.. => (1, Some(OffsetQuery::Timestamp(timestamp))),
        TIMESTAMP_LATEST => (1, Some(OffsetQuery::Latest)),
        TIMESTAMP_EARLIEST => (1, Some(OffsetQuery::Earliest)),
        TIMESTAMP_MAX => (7, Some(OffsetQuery::MaxTimestamp)),
        TIMESTAMP_EARLIEST_LOCAL => (8, Some(OffsetQuery::Earliest)),
        TIMESTAMP_LATEST_TIERED => (9, None),
        TIMESTAMP_EARLIEST_PENDING_UPLOAD => (11, None),
        _ => (i16::MAX, None),
    };
    if version < since { Err(ErrorCode::UnsupportedVersion) } else { Ok(query) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_times_need_their_version() {
        assert_eq!(query(1, 5), Ok(Some(OffsetQuery::Timestamp(5))));
        assert_eq!(query(6, -3), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(query(7, -3), Ok(Some(OffsetQuery::MaxTimestamp)));
        assert_eq!(query(8, -4), Ok(Some(OffsetQuery::Earliest)));
        assert_eq!(query(9, -5), Ok(None));
        assert_eq!(query(10, -6), Err(ErrorCode::UnsupportedVersion));
        assert_eq!(query(11, -7), Err(ErrorCode::UnsupportedVersion));
    }
}
