//! OffsetForLeaderEpoch: where an epoch ends, for consumers that want to know whether their log was truncated.

use super::dispatch::{Call, Reply};
use super::view;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use crate::types::{LeaderEpoch, TopicIdPartition, Uuid};

pub(super) async fn handle(
    call: Call,
    request: OffsetForLeaderEpochRequest,
) -> Reply<OffsetForLeaderEpochResponse> {
    let image = call.front.broker.image();
    let topics = request.topics.into_iter().map(|topic| {
        let found = view::topic(&image, &topic.topic, Uuid::ZERO, false);
        let partitions = topic.partitions.iter().map(|asked| {
            let mut end = EpochEndOffset { partition: asked.partition, ..Default::default() };
            let answer = match &found {
                Ok(topic) => look_up(&call, topic.topic_id, asked),
                Err(code) => Err(*code),
            };
            match answer {
                Ok(Some((epoch, offset))) => (end.leader_epoch, end.end_offset) = (epoch.0, offset),
                // Not known: -1, as the fields are already.
                Ok(None) => {}
                Err(code) => end.error_code = code.code(),
            }
            end
        });
        OffsetForLeaderTopicResult { partitions: partitions.collect(), topic: topic.topic }
    });
    OffsetForLeaderEpochResponse { topics: topics.collect(), ..Default::default() }.into()
}

fn look_up(
    call: &Call,
    topic_id: Uuid,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, i64)>, ErrorCode> {
    let id = TopicIdPartition { topic_id, partition: asked.partition };
    let current = LeaderEpoch(asked.current_leader_epoch);
    let broker = &call.front.broker;
    let Some(partition) = broker.partition(id) else {
        // It may well be elsewhere; with "unknown", librdkafka gives the topic up.
        let exists = broker.image().partition(id).is_some();
        return Err(if exists {
            ErrorCode::NotLeaderOrFollower
        } else {
            ErrorCode::UnknownTopicOrPartition
        });
    };
    let end = partition.end_offset_for_epoch(LeaderEpoch(asked.leader_epoch), current);
    end.map_err(|error| error.code)
}
