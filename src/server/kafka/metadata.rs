//! Metadata: brokers, topics, and who leads which partition.

use super::dispatch::{Call, Reply};
use super::refusal::{each, unexpected_reply};
use super::{Front, view};
use crate::controller::{
    ControllerReply, ControllerRequest, CreatableTopic, CreatedTopic, Refusal,
};
use crate::metadata::{MetadataImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    MetadataBroker, MetadataPartition, MetadataRequest, MetadataRequestTopic, MetadataResponse,
    MetadataTopic, OPERATIONS_OMITTED, Text,
};
use crate::types::random;

/// How long a topic that is created by asking for it may take.
const CREATE_TIMEOUT_MS: i32 = 5_000;

pub(super) async fn handle(call: Call, request: MetadataRequest) -> Reply<MetadataResponse> {
    let front = &*call.front;
    let asked = match request.topics {
        Some(topics) if topics.is_empty() && call.version == 0 => None,
        topics => topics,
    };
    let mut image = front.broker.image();
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
    let brokers = view::live_endpoints(&image).into_iter().map(|node| MetadataBroker {
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

/// Names that were asked for and that nobody has, each once.
fn missing_names(image: &MetadataImage, asked: &[MetadataRequestTopic]) -> Vec<Text> {
    let mut missing: Vec<Text> = Vec::new();
    for topic in asked.iter().filter(|topic| topic.topic_id.is_zero()) {
        if let Some(name) = &topic.name
            && image.topic(name).is_none()
            && !missing.contains(name)
        {
            missing.push(name.clone());
        }
    }
    missing
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
    let results: Vec<Result<CreatedTopic, Refusal>> = each(
        match front.admin(request, CREATE_TIMEOUT_MS).await {
            Ok(ControllerReply::CreateTopics { results, .. }) => Ok(results),
            Ok(_) => Err(unexpected_reply()),
            Err(refusal) => Err(refusal),
        },
        names.len(),
    );
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
        MetadataPartition {
            error_code: error.code(),
            partition_index,
            leader_id: leader.0,
            leader_epoch: partition.leader_epoch.0,
            replica_nodes: view::ids(&partition.replicas),
            isr_nodes: view::ids(&partition.isr),
            offline_replicas: view::offline(image, partition),
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
