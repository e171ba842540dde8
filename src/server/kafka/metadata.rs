//! Metadata: brokers, topics, and who leads which partition.

use std::collections::HashSet;

use super::dispatch::{Call, Reply};
use super::refusal::{each, results_of};
use super::{Front, view};
use crate::controller::{ControllerRequest, CreatableTopic, CreatedTopic, Refusal};
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    MetadataBroker, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataTopic, OPERATIONS_OMITTED, Text,
};
use crate::types::{TopicIdPartition, random};

/// Topics that one request may create by asking for them. The client asks again for the rest.
const CREATE_MAX: usize = 100;

/// How long a topic that is created by asking for it may take.
const CREATE_TIMEOUT_MS: i32 = 5_000;

pub(super) async fn handle(call: Call, request: MetadataRequest) -> Reply<MetadataResponse> {
    let front = &*call.front;
    let asked = match request.topics {
        Some(topics) if topics.is_empty() && call.version == 0 => None,
        topics => topics.map(each_once),
    };
    let mut image = front.broker.settled_image().await;
    let mut refused = Vec::new();
    if let Some(asked) = &asked
        && request.allow_auto_topic_creation
        && front.config.auto_create_topics
    {
        let missing = missing_names(&image, asked);
        if !missing.is_empty() {
            refused = create(front, missing).await;
            image = front.broker.image();
        }
    }
    let mut topics: Vec<MetadataTopic> = match &asked {
        None => image
            .topic_ids
            .keys()
            .filter_map(|name| image.topic(name))
            .map(|t| known(&image, t))
            .collect(),
        Some(asked) => {
            asked.iter().map(|topic| one(&image, topic, &refused, call.version)).collect()
        }
    };
    if request.include_topic_authorized_operations {
        for topic in topics.iter_mut().filter(|topic| topic.error_code == 0) {
            topic.topic_authorized_operations = view::TOPIC_OPERATIONS;
        }
    }
    let status = front.broker.quorum_status();
    let listed = view::endpoints(&image, |broker| front.broker.is_listed(broker));
    let brokers = listed.into_iter().map(|node| MetadataBroker {
        node_id: node.node_id,
        host: node.host,
        port: node.port,
        rack: node.rack,
    });
    let cluster_operations = request.include_cluster_authorized_operations;
    MetadataResponse {
        brokers: brokers.collect(),
        cluster_id: Some(status.cluster_id.to_string().into()),
        controller_id: view::controller_id(&image, status.leader_id),
        topics,
        cluster_authorized_operations: if cluster_operations {
            view::CLUSTER_OPERATIONS
        } else {
            OPERATIONS_OMITTED
        },
        ..Default::default()
    }
    .into()
}

/// A topic that is named twice is shown once, so that a small request has no huge answer.
fn each_once(mut topics: Vec<MetadataRequestTopic>) -> Vec<MetadataRequestTopic> {
    let mut seen = HashSet::new();
    topics.retain(|topic| seen.insert((topic.topic_id, topic.name.as_deref().map(str::to_owned))));
    topics
}

/// Names that were asked for and that nobody has.
fn missing_names(image: &MetadataImage, asked: &[MetadataRequestTopic]) -> Vec<Text> {
    let named = asked.iter().filter(|topic| topic.topic_id.is_zero());
    let missing = named.filter_map(|topic| topic.name.as_ref());
    missing.filter(|name| image.topic(name).is_none()).take(CREATE_MAX).cloned().collect()
}

/// Creates topics with the cluster's defaults. Returns those that were refused, and why.
async fn create(front: &Front, names: Vec<Text>) -> Vec<(Text, Refusal)> {
    let topics = names.iter().map(|name| CreatableTopic {
        name: name.to_string(),
        topic_id: random::uuid(),
        partition_count: -1,
        replication_factor: -1,
        assignments: Default::default(),
        configs: Vec::new(),
    });
    let request =
        ControllerRequest::CreateTopics { topics: topics.collect(), validate_only: false };
    let results: Vec<Result<CreatedTopic, Refusal>> =
        each(results_of!(front.admin(request, CREATE_TIMEOUT_MS).await, CreateTopics), names.len());
    let refused = names.into_iter().zip(results).filter_map(|(name, r)| Some((name, r.err()?)));
    refused.collect()
}

fn one(
    image: &MetadataImage,
    asked: &MetadataRequestTopic,
    refused: &[(Text, Refusal)],
    version: i16,
) -> MetadataTopic {
    let by_id = !asked.topic_id.is_zero();
    let name = asked.name.as_deref().unwrap_or_default();
    match view::topic(image, name, asked.topic_id, by_id) {
        Ok(topic) => known(image, topic),
        Err(unknown) => {
            let refusal = refused.iter().find(|(refused, _)| **refused == *name);
            let error = refusal.map_or(unknown, |(_, refusal)| while_creating(refusal.code));
            MetadataTopic {
                error_code: error.code(),
                name: if by_id && version >= 12 { None } else { Some(name.to_owned().into()) },
                topic_id: asked.topic_id,
                ..Default::default()
            }
        }
    }
}

/// What a client is told about a topic that is not there although it was to be created: come back, unless it never will.
fn while_creating(refused: ErrorCode) -> ErrorCode {
    match refused {
        ErrorCode::InvalidTopicException
        | ErrorCode::InvalidReplicationFactor
        | ErrorCode::PolicyViolation => refused,
        _ => ErrorCode::LeaderNotAvailable,
    }
}

fn known(image: &MetadataImage, topic: &TopicImage) -> MetadataTopic {
    let partitions = (0..).zip(&topic.partitions).map(|(partition_index, partition)| {
        let (error, leader) = view::live_leader(image, partition);
        let id = TopicIdPartition { topic_id: topic.topic_id, partition: partition_index };
        MetadataPartition {
            error_code: error.code(),
            partition_index,
            leader_id: leader.0,
            leader_epoch: partition.leader_epoch.0,
            replica_nodes: view::ids(&partition.replicas),
            isr_nodes: view::ids(&partition.isr),
            offline_replicas: view::offline(image, id, partition),
        }
    });
    MetadataTopic {
        name: Some(topic.name.clone().into()),
        topic_id: topic.topic_id,
        is_internal: view::is_internal(&topic.name),
        partitions: partitions.collect(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MetadataRecord;
    use crate::metadata::test_support::{apply, image_with_topic, led_by, uuid};
    use crate::types::NodeId;

    fn named(name: &'static str) -> MetadataRequestTopic {
        MetadataRequestTopic { name: Some(name.into()), ..Default::default() }
    }

    #[test]
    fn partitions_without_a_live_leader_say_so() {
        let mut image = image_with_topic("t", 2);
        let topic = image.topic("t").expect("created").clone();
        apply(&mut image, vec![led_by(&topic, 1, NodeId::NONE.0)]);
        let shown = one(&image, &named("t"), &[], 12);
        let leaders: Vec<_> = shown
            .partitions
            .iter()
            .map(|p| (p.partition_index, p.error_code, p.leader_id, p.leader_epoch))
            .collect();
        assert_eq!(leaders, [(0, 0, 1, 0), (1, 5, -1, 1)]);
        assert_eq!((shown.error_code, shown.topic_id), (0, uuid(1)));
        assert!(shown.partitions[0].offline_replicas.is_empty());
    }

    #[test]
    fn replicas_on_fenced_brokers_are_offline() {
        let mut image = image_with_topic("t", 1);
        let broker_epoch = image.broker(NodeId(3)).expect("registered").broker_epoch;
        let fence = crate::metadata::BrokerChangeRecord {
            node_id: NodeId(3),
            broker_epoch,
            fenced: Some(true),
            in_controlled_shutdown: None,
        };
        apply(&mut image, vec![MetadataRecord::BrokerChange(fence)]);
        assert_eq!(one(&image, &named("t"), &[], 12).partitions[0].offline_replicas, [3]);
    }

    #[test]
    fn unknown_topics_are_told_by_name_or_by_id() {
        let image = image_with_topic("t", 1);
        let by_name = one(&image, &named("u"), &[], 12);
        assert_eq!((by_name.error_code, by_name.name), (3, Some("u".into())));
        let asked = MetadataRequestTopic { topic_id: uuid(9), name: None };
        let by_id = one(&image, &asked, &[], 12);
        assert_eq!((by_id.error_code, by_id.name, by_id.topic_id), (100, None, uuid(9)));

        let refused = |code| [(Text::from("u"), Refusal::new(code, ""))];
        let after = |code| one(&image, &named("u"), &refused(code), 12).error_code;
        assert_eq!(after(ErrorCode::InvalidTopicException), 17);
        assert_eq!(after(ErrorCode::RequestTimedOut), 5);
    }

    #[test]
    fn what_is_asked_for_twice_is_served_once() {
        let asked = each_once(vec![named("a"), named("b"), named("a")]);
        assert_eq!(asked.len(), 2);
        assert_eq!(missing_names(&image_with_topic("a", 1), &asked), [Text::from("b")]);
    }
}
