//! CreatePartitions.

use super::dispatch::{Call, Reply};
use super::refusal::{each, outcome, results_of};
use crate::controller::{ControllerRequest, MorePartitions};
use crate::protocol::kafka::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use crate::types::NodeId;

pub(super) async fn handle(
    call: Call,
    request: CreatePartitionsRequest,
) -> Reply<CreatePartitionsResponse> {
    let CreatePartitionsRequest { topics: asked, timeout_ms, validate_only } = request;
    let topics = asked.iter().map(|topic| MorePartitions {
        name: topic.name.to_string(),
        count: topic.count,
        assignments: topic.assignments.as_ref().map(|all| {
            let replicas = |ids: &[i32]| ids.iter().copied().map(NodeId).collect();
            all.iter().map(|assignment| replicas(&assignment.broker_ids)).collect()
        }),
    });
    let create = ControllerRequest::CreatePartitions { topics: topics.collect(), validate_only };
    let results = results_of!(call.front.admin(create, timeout_ms).await, CreatePartitions);
    let results = each(results, asked.len());
    let results = asked.into_iter().zip(results).map(|(topic, result)| {
        let (error_code, error_message) = outcome(result);
        CreatePartitionsTopicResult { name: topic.name, error_code, error_message }
    });
    CreatePartitionsResponse { results: results.collect(), ..Default::default() }.into()
}
