//! AlterPartitionReassignments: starts and cancels moves of replicas.

use super::dispatch::{Call, Reply};
use super::refusal::{each, outcome, refused, results_of};
use crate::controller::{ControllerRequest, Reassignment};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ReassignedPartitionResult, ReassignedTopicResult,
};
use crate::types::{NodeId, TopicIdPartition, Uuid};

pub(super) async fn handle(
    call: Call,
    request: AlterPartitionReassignmentsRequest,
) -> Reply<AlterPartitionReassignmentsResponse> {
    let image = call.front.broker.image();
    let mut asked = Vec::new();
    let mut changes_factor = false;
    for topic in &request.topics {
        let found = image.topic(&topic.name);
        for partition in &topic.partitions {
            let id = TopicIdPartition {
                // Nobody has the id of a topic that does not exist.
                topic_id: found.map_or(Uuid::ZERO, |topic| topic.topic_id),
                partition: partition.partition_index,
            };
            let replicas = partition.replicas.as_ref();
            let replicas = replicas.map(|ids| ids.iter().copied().map(NodeId).collect::<Vec<_>>());
            let state = image.partition(id);
            let settled = state.map(|state| state.replicas.len() - state.adding.len());
            changes_factor |=
                replicas.as_ref().is_some_and(|new| settled.is_some_and(|old| old != new.len()));
            asked.push(Reassignment { partition: id, replicas });
        }
    }
    let count = asked.len();
    let results = if request.allow_replication_factor_change || !changes_factor {
        let reassign = ControllerRequest::Reassign { partitions: asked };
        each(results_of!(call.front.admin(reassign, request.timeout_ms).await, Reassign), count)
            .into_iter()
            .map(outcome)
            .collect::<Vec<_>>()
    } else {
        let sentence = "the request forbids to change the number of replicas; nothing was moved";
        vec![refused(ErrorCode::InvalidReplicationFactor, sentence); count]
    };
    let mut results = results.into_iter();
    let responses = request.topics.into_iter().map(|topic| ReassignedTopicResult {
        partitions: (topic.partitions.iter().zip(&mut results))
            .map(|(partition, (error_code, error_message))| ReassignedPartitionResult {
                partition_index: partition.partition_index,
                error_code,
                error_message,
            })
            .collect(),
        name: topic.name,
    });
    AlterPartitionReassignmentsResponse { responses: responses.collect(), ..Default::default() }
        .into()
}
