//! DeleteTopics: by name, or by id from version 6 on.

use super::dispatch::{Call, Reply};
use super::refusal::{each, outcome_of, results_of};
use crate::controller::{ControllerRequest, TopicSelector};
use crate::protocol::kafka::{DeleteTopicsRequest, DeleteTopicsResponse, DeletedTopic, Text};
use crate::types::Uuid;

/// From here on, a request may name topics by id.
const IDS_FROM: i16 = 6;

pub(super) async fn handle(
    call: Call,
    request: DeleteTopicsRequest,
) -> Reply<DeleteTopicsResponse> {
    let topics: Vec<TopicSelector> = if call.version >= IDS_FROM {
        request.topics.into_iter().map(|topic| selector(topic.name, topic.topic_id)).collect()
    } else {
        request.topic_names.into_iter().map(|name| selector(Some(name), Uuid::ZERO)).collect()
    };
    let asked = topics.clone();
    let delete = ControllerRequest::DeleteTopics { topics };
    let results = results_of!(call.front.admin(delete, request.timeout_ms).await, DeleteTopics);
    let results = each(results, asked.len());
    let responses = asked.into_iter().zip(results).map(|(asked, result)| match result {
        Ok(deleted) => DeletedTopic {
            name: Some(deleted.name.into()),
            topic_id: deleted.topic_id,
            ..Default::default()
        },
        Err(refusal) => {
            let (error_code, error_message) = outcome_of(&refusal);
            let (name, topic_id) = match asked {
                TopicSelector::Name(name) => (Some(name.into()), Uuid::ZERO),
                TopicSelector::Id(id) => (None, id),
            };
            DeletedTopic { name, topic_id, error_code, error_message }
        }
    });
    DeleteTopicsResponse { responses: responses.collect(), ..Default::default() }.into()
}

fn selector(name: Option<Text>, id: Uuid) -> TopicSelector {
    match name {
        Some(name) => TopicSelector::Name(name.to_string()),
        None => TopicSelector::Id(id),
    }
}
