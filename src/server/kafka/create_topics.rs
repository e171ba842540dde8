//! CreateTopics.

use std::collections::BTreeMap;

use super::dispatch::{Call, Reply};
use super::refusal::{each, outcome_of, unexpected_reply};
use super::{Front, describe_configs};
use crate::controller::{self, ControllerReply, ControllerRequest, Refusal};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    CreatableTopic, CreateTopicsRequest, CreateTopicsResponse, CreatedTopic, CreatedTopicConfig,
    Text,
};
use crate::types::{ConfigResource, NodeId, Uuid, random};

/// From here on, the response shows the configs.
const CONFIGS_FROM: i16 = 5;

pub(super) async fn handle(
    call: Call,
    request: CreateTopicsRequest,
) -> Reply<CreateTopicsResponse> {
    let CreateTopicsRequest { topics: asked, timeout_ms, validate_only } = request;
    let checked: Vec<_> = asked.iter().map(|topic| check(topic, &asked)).collect();
    let topics: Vec<_> = checked.iter().filter_map(|topic| topic.as_ref().ok().cloned()).collect();
    let count = topics.len();
    let results = if count == 0 {
        Vec::new()
    } else {
        let create = ControllerRequest::CreateTopics { topics, validate_only };
        let reply = match call.front.admin(create, timeout_ms).await {
            Ok(ControllerReply::CreateTopics { results, .. }) => Ok(results),
            Ok(_) => Err(unexpected_reply()),
            Err(refusal) => Err(refusal),
        };
        each(reply, count)
    };
    let mut results = results.into_iter();
    let topics = asked.into_iter().zip(checked).map(|(asked, checked)| {
        // As many results as topics that passed the check.
        let result =
            checked.and_then(|_| results.next().unwrap_or_else(|| Err(unexpected_reply())));
        created(&call.front, call.version, asked.name, result, validate_only)
    });
    CreateTopicsResponse { topics: topics.collect(), ..Default::default() }.into()
}

/// What the controller cannot be asked, because its words have no room for the contradiction.
fn check(
    topic: &CreatableTopic,
    all: &[CreatableTopic],
) -> Result<controller::CreatableTopic, Refusal> {
    let refuse = |code, message: &str| Err(Refusal::new(code, message));
    if all.iter().filter(|other| other.name == topic.name).count() > 1 {
        return refuse(ErrorCode::InvalidRequest, "the request names this topic more than once");
    }
    if !topic.assignments.is_empty() && (topic.num_partitions, topic.replication_factor) != (-1, -1)
    {
        let message = "with an assignment, the number of partitions and the factor must be -1";
        return refuse(ErrorCode::InvalidRequest, message);
    }
    let mut assignments = BTreeMap::new();
    for assignment in &topic.assignments {
        let brokers = assignment.broker_ids.iter().copied().map(NodeId).collect();
        if assignments.insert(assignment.partition_index, brokers).is_some() {
            let message = "a partition is assigned more than once";
            return refuse(ErrorCode::InvalidReplicaAssignment, message);
        }
    }
    let configs = topic.configs.iter();
    Ok(controller::CreatableTopic {
        name: topic.name.to_string(),
        topic_id: random::uuid(),
        partition_count: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments,
        configs: configs
            .map(|config| (config.name.to_string(), config.value.as_ref().map(Text::to_string)))
            .collect(),
    })
}

fn created(
    front: &Front,
    version: i16,
    name: Text,
    result: Result<controller::CreatedTopic, Refusal>,
    validate_only: bool,
) -> CreatedTopic {
    match result {
        Ok(topic) => CreatedTopic {
            topic_id: if validate_only { Uuid::ZERO } else { topic.topic_id },
            num_partitions: topic.partition_count,
            replication_factor: topic.replication_factor,
            configs: (version >= CONFIGS_FROM).then(|| configs(front, &topic.name)),
            name,
            ..Default::default()
        },
        Err(refusal) => {
            let (error_code, error_message) = outcome_of(&refusal);
            CreatedTopic { name, error_code, error_message, ..Default::default() }
        }
    }
}

/// All configs of the topic. None after a mere validation: there is nothing to describe.
fn configs(front: &Front, topic: &str) -> Vec<CreatedTopicConfig> {
    let resource = ConfigResource::Topic(topic.into());
    let views = front.broker.describe_configs(&resource).unwrap_or_default();
    let configs = views.into_iter().map(|view| CreatedTopicConfig {
        config_source: describe_configs::source(&view.source),
        name: view.name.into(),
        value: view.value.map(Text::from),
        read_only: view.read_only,
        is_sensitive: false,
    });
    configs.collect()
}
