//! DescribeTopicPartitions: topics in pages, with eligible leader replicas.

use std::cmp::Ordering;

use super::dispatch::{Call, Reply};
use super::view;
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, DescribedPartition,
    DescribedTopic, Nullable, Text, TopicPartitionCursor,
};
use crate::types::TopicIdPartition;

/// Most partitions in one page, whatever the client asks for.
const PAGE_MAX: usize = 2_000;

pub(super) async fn handle(
    call: Call,
    request: DescribeTopicPartitionsRequest,
) -> Reply<DescribeTopicPartitionsResponse> {
    let image = call.front.broker.image();
    let mut names: Vec<Text> = request.topics.into_iter().map(|topic| topic.name).collect();
    if names.is_empty() {
        names.extend(image.topic_ids.keys().cloned().map(Text::from));
    }
    // Pages need an order that outlives the request.
    names.sort_by(|a, b| a.as_str().cmp(b));
    names.dedup();
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0).clamp(1, PAGE_MAX);
    page(&image, names, request.cursor.0.as_ref(), limit).into()
}

fn page(
    image: &MetadataImage,
    names: Vec<Text>,
    cursor: Option<&TopicPartitionCursor>,
    limit: usize,
) -> DescribeTopicPartitionsResponse {
    let mut response = DescribeTopicPartitionsResponse::default();
    let mut left = limit;
    for name in names {
        let first = match cursor.map(|cursor| (name.as_str().cmp(&cursor.topic_name), cursor)) {
            Some((Ordering::Less, _)) => continue,
            Some((Ordering::Equal, cursor)) => usize::try_from(cursor.partition_index).unwrap_or(0),
            Some((Ordering::Greater, _)) | None => 0,
        };
        if left == 0 {
            response.next_cursor = next(name, 0);
            break;
        }
        let Some(topic) = image.topic(&name) else {
            let error_code = ErrorCode::UnknownTopicOrPartition.code();
            let name = Some(name);
            response.topics.push(DescribedTopic { error_code, name, ..Default::default() });
            continue;
        };
        let described = describe(image, topic, first, left);
        left -= described.partitions.len();
        let end = first.saturating_add(described.partitions.len());
        response.topics.push(described);
        if end < topic.partitions.len() {
            response.next_cursor = next(name, end);
            break;
        }
    }
    response
}

fn next(topic_name: Text, partition: usize) -> Nullable<TopicPartitionCursor> {
    let partition_index = i32::try_from(partition).unwrap_or(i32::MAX);
    Nullable(Some(TopicPartitionCursor { topic_name, partition_index }))
}

fn describe(
    image: &MetadataImage,
    topic: &TopicImage,
    first: usize,
    limit: usize,
) -> DescribedTopic {
    let partitions = (0..).zip(&topic.partitions).skip(first).take(limit);
    let partitions = partitions.map(|(partition_index, partition)| {
        let (error, leader) = view::live_leader(image, partition);
        let id = TopicIdPartition { topic_id: topic.topic_id, partition: partition_index };
        DescribedPartition {
            error_code: error.code(),
            partition_index,
            leader_id: leader.0,
            leader_epoch: partition.leader_epoch.0,
            replica_nodes: view::ids(&partition.replicas),
            isr_nodes: view::ids(&partition.isr),
            eligible_leader_replicas: Some(view::ids(&partition.elr)),
            last_known_elr: Some(view::ids(&partition.last_known_elr)),
            offline_replicas: view::offline(image, id, partition),
        }
    });
    DescribedTopic {
        name: Some(topic.name.clone().into()),
        topic_id: topic.topic_id,
        is_internal: view::is_internal(&topic.name),
        partitions: partitions.collect(),
        topic_authorized_operations: view::TOPIC_OPERATIONS,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::test_support::image_with_topic;

    /// (topic, error, partitions) of each topic on a page, and where the next page starts.
    type Page = (Vec<(String, i16, Vec<i32>)>, Option<(String, i32)>);

    fn shown(response: &DescribeTopicPartitionsResponse) -> Page {
        let topics = response.topics.iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|p| p.partition_index).collect();
            (topic.name.as_deref().unwrap_or_default().to_owned(), topic.error_code, partitions)
        });
        let cursor = response.next_cursor.0.as_ref();
        let next = cursor.map(|c| (c.topic_name.to_string(), c.partition_index));
        (topics.collect(), next)
    }

    #[test]
    fn pages_follow_one_another_without_gaps() {
        let image = image_with_topic("m", 5);
        let names = || vec![Text::from("a"), "m".into(), "z".into()];
        let first = page(&image, names(), None, 2);
        let unknown = |name: &str| (name.to_owned(), 3, Vec::new());
        let known = |partitions| ("m".to_owned(), 0, partitions);
        let next = |partition| Some(("m".to_owned(), partition));
        assert_eq!(shown(&first), (vec![unknown("a"), known(vec![0, 1])], next(2)));
        let second = page(&image, names(), first.next_cursor.0.as_ref(), 2);
        assert_eq!(shown(&second), (vec![known(vec![2, 3])], next(4)));
        let third = page(&image, names(), second.next_cursor.0.as_ref(), 2);
        assert_eq!(shown(&third), (vec![known(vec![4]), unknown("z")], None));
    }

    #[test]
    fn a_cursor_beyond_everything_shows_nothing() {
        let image = image_with_topic("m", 2);
        let cursor = TopicPartitionCursor { topic_name: "m".into(), partition_index: i32::MAX };
        let response = page(&image, vec!["m".into()], Some(&cursor), 10);
        assert_eq!(shown(&response), (vec![("m".to_owned(), 0, Vec::new())], None));
    }
}
