//! DeleteRecords: answered once all live replicas have the new log start.

use std::sync::Arc;

use super::dispatch::{Call, Reply};
use super::{timeout, view};
use crate::broker::Broker;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use crate::types::{TopicIdPartition, Uuid};

pub(super) async fn handle(
    call: Call,
    request: DeleteRecordsRequest,
) -> Reply<DeleteRecordsResponse> {
    let broker: &Arc<Broker> = &call.front.broker;
    let image = broker.image();
    let mut entries = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let found = match view::topic(&image, &topic.name, Uuid::ZERO, false) {
            Ok(_) if view::is_internal(&topic.name) => Err(ErrorCode::InvalidTopicException),
            found => found,
        };
        let partitions = topic.partitions.iter().map(|partition| {
            if let Ok(topic) = &found {
                let partition_index = partition.partition_index;
                let id = TopicIdPartition { topic_id: topic.topic_id, partition: partition_index };
                entries.push((id, partition.offset));
            }
            DeleteRecordsPartitionResult {
                partition_index: partition.partition_index,
                error_code: found.as_ref().map_or_else(|code| code.code(), |_| 0),
                ..Default::default()
            }
        });
        let partitions = partitions.collect();
        topics.push(DeleteRecordsTopicResult { partitions, name: topic.name });
    }
    let results = broker.delete_records(entries, timeout(request.timeout_ms)).await;
    let mut results = results.into_iter();
    let asked = topics.iter_mut().flat_map(|topic| &mut topic.partitions);
    for partition in asked.filter(|partition| partition.error_code == 0) {
        match results.next() {
            Some(Ok(low_watermark)) => partition.low_watermark = low_watermark,
            Some(Err(error)) => partition.error_code = view::vanished(error.code, false).code(),
            None => partition.error_code = ErrorCode::UnknownServerError.code(),
        }
    }
    DeleteRecordsResponse { topics, ..Default::default() }.into()
}
