//! CreateTopics.

use std::collections::{BTreeMap, HashMap};

use super::dispatch::{Call, Reply};
use super::refusal::{each, filled_in, outcome_of, results_of};
use super::{Front, describe_configs};
use crate::controller::{self, ControllerRequest, Refusal};
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
    let checked: Vec<_> = {
        let names = count_names(&asked);
        asked.iter().map(|topic| check(topic, &names)).collect()
    };
    let topics: Vec<_> = checked.iter().filter_map(|topic| topic.as_ref().ok().cloned()).collect();
    let count = topics.len();
    let results = if count == 0 {
        Vec::new()
    } else {
        let create = ControllerRequest::CreateTopics { topics, validate_only };
        let reply = results_of!(call.front.admin(create, timeout_ms).await, CreateTopics);
        each(reply, count)
    };
    let topics = asked.into_iter().zip(filled_in(checked, results)).map(|(asked, result)| {
        created(&call.front, call.version, asked.name, result, validate_only)
    });
    CreateTopicsResponse { topics: topics.collect(), ..Default::default() }.into()
}

/// How often each name stands in the request.
fn count_names(topics: &[CreatableTopic]) -> HashMap<&str, usize> {
    let mut names = HashMap::new();
    for topic in topics {
        *names.entry(topic.name.as_str()).or_default() += 1;
    }
    names
}

/// What the controller cannot be asked, because its words have no room for the contradiction.
fn check(
    topic: &CreatableTopic,
    names: &HashMap<&str, usize>,
) -> Result<controller::CreatableTopic, Refusal> {
    let refuse = |code, message: &str| Err(Refusal::new(code, message));
    if names.get(topic.name.as_str()).is_some_and(|count| *count > 1) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::kafka::CreatableAssignment;

    fn topic(name: &'static str, count: i32, assigned: &[(i32, i32)]) -> CreatableTopic {
        let assignments = assigned.iter().map(|(partition_index, broker)| CreatableAssignment {
            partition_index: *partition_index,
            broker_ids: vec![*broker],
        });
        CreatableTopic {
            name: name.into(),
            num_partitions: count,
            replication_factor: -1,
            assignments: assignments.collect(),
            configs: Vec::new(),
        }
    }

    fn code(topic: &CreatableTopic, all: &[CreatableTopic]) -> Option<ErrorCode> {
        check(topic, &count_names(all)).err().map(|refusal| refusal.code)
    }

    #[test]
    fn contradictions_are_refused_before_the_controller_is_asked() {
        let all = [topic("a", 1, &[]), topic("b", 1, &[]), topic("a", 2, &[])];
        assert_eq!(code(&all[0], &all), Some(ErrorCode::InvalidRequest));
        assert_eq!(code(&all[1], &all), None);
        assert_eq!(code(&topic("c", -1, &[(0, 1), (1, 2)]), &[]), None);
        assert_eq!(code(&topic("c", 2, &[(0, 1)]), &[]), Some(ErrorCode::InvalidRequest));
        assert_eq!(
            code(&topic("c", -1, &[(0, 1), (0, 2)]), &[]),
            Some(ErrorCode::InvalidReplicaAssignment)
        );
    }

    #[test]
    fn every_topic_gets_an_id_of_its_own() {
        let (a, b) = (topic("a", 1, &[]), topic("b", 1, &[]));
        let ids = [&a, &b].map(|topic| check(topic, &HashMap::new()).expect("fine").topic_id);
        assert!(ids[0] != ids[1] && !ids[0].is_zero());
    }
}
