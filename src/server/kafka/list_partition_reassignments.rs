//! ListPartitionReassignments: partitions that replicas are being added to or removed from.

use super::dispatch::{Call, Reply};
use super::view;
use crate::metadata::TopicImage;
use crate::protocol::kafka::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment, OngoingTopicReassignment,
};

pub(super) async fn handle(
    call: Call,
    request: ListPartitionReassignmentsRequest,
) -> Reply<ListPartitionReassignmentsResponse> {
    let image = call.front.broker.image();
    let topics = match request.topics {
        None => image.topics.values().filter_map(|topic| ongoing(topic, |_| true)).collect(),
        Some(asked) => {
            let ongoing = asked.iter().filter_map(|asked| {
                let topic = image.topic(&asked.name)?;
                ongoing(topic, |partition| asked.partition_indexes.contains(&partition))
            });
            ongoing.collect()
        }
    };
    ListPartitionReassignmentsResponse { topics, ..Default::default() }.into()
}

fn ongoing(topic: &TopicImage, asked: impl Fn(i32) -> bool) -> Option<OngoingTopicReassignment> {
    let moving = (0..).zip(&topic.partitions).filter(|(index, partition)| {
        !(partition.adding.is_empty() && partition.removing.is_empty()) && asked(*index)
    });
    let partitions: Vec<_> = moving
        .map(|(partition_index, partition)| OngoingPartitionReassignment {
            partition_index,
            replicas: view::ids(&partition.replicas),
            adding_replicas: view::ids(&partition.adding),
            removing_replicas: view::ids(&partition.removing),
        })
        .collect();
    let name = topic.name.clone().into();
    (!partitions.is_empty()).then_some(OngoingTopicReassignment { name, partitions })
}
