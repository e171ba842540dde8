//! ElectLeaders: leadership goes back to first replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dispatch::{Call, Reply};
use super::refusal::{Outcome, outcome, refused, results_of};
use crate::controller::{ControllerRequest, Refusal};
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    ElectLeadersRequest, ElectLeadersResponse, ElectedTopic, ElectionResult,
    PartitionElectionResult,
};
use crate::types::TopicIdPartition;

const PREFERRED: i8 = 0;

/// By topic and partition.
type Outcomes = BTreeMap<(Arc<str>, i32), Outcome>;

pub(super) async fn handle(
    call: Call,
    request: ElectLeadersRequest,
) -> Reply<ElectLeadersResponse> {
    if request.election_type != PREFERRED {
        // It can lose records, so it is no matter of one flag in a request.
        let code = ErrorCode::InvalidRequest;
        let outcome = refused(code, "only preferred leaders are elected on request");
        return respond(code, same_for_all(request.topic_partitions, &outcome)).into();
    }
    let image = call.front.broker.image();
    let (mut outcomes, partitions) = match request.topic_partitions {
        None => (Outcomes::new(), None),
        Some(asked) => {
            let (unknown, known) = look_up(&image, asked);
            (unknown, Some(known))
        }
    };
    let elect = ControllerRequest::ElectLeaders { partitions: partitions.clone() };
    let results = results_of!(call.front.admin(elect, request.timeout_ms).await, ElectLeaders);
    let (code, results) = match results {
        Ok(results) => (ErrorCode::None, results),
        Err(refusal) => {
            let refused = |id| (id, Err::<(), Refusal>(refusal.clone()));
            (refusal.code, partitions.unwrap_or_default().into_iter().map(refused).collect())
        }
    };
    for (id, result) in results {
        if let Some(topic) = image.topic_by_id(id.topic_id) {
            outcomes.insert((topic.name.clone(), id.partition), outcome(result));
        }
    }
    respond(code, outcomes).into()
}

/// Those that nobody has, and the ids of the others.
fn look_up(image: &MetadataImage, asked: Vec<ElectedTopic>) -> (Outcomes, Vec<TopicIdPartition>) {
    let (mut unknown, mut known) = (Outcomes::new(), Vec::new());
    for ElectedTopic { topic: name, partitions } in asked {
        let topic = image.topic(&name);
        for partition in partitions {
            match topic.filter(|topic| topic.partition(partition).is_some()) {
                Some(topic) => {
                    known.push(TopicIdPartition { topic_id: topic.topic_id, partition });
                }
                None => {
                    let outcome = refused(ErrorCode::UnknownTopicOrPartition, "no such partition");
                    unknown.insert((name.as_str().into(), partition), outcome);
                }
            }
        }
    }
    (unknown, known)
}

fn same_for_all(asked: Option<Vec<ElectedTopic>>, outcome: &Outcome) -> Outcomes {
    let topics = asked.into_iter().flatten();
    topics
        .flat_map(|asked| {
            let name: Arc<str> = asked.topic.as_str().into();
            asked.partitions.into_iter().map(move |p| ((name.clone(), p), outcome.clone()))
        })
        .collect()
}

fn respond(code: ErrorCode, outcomes: Outcomes) -> ElectLeadersResponse {
    let mut results: Vec<ElectionResult> = Vec::new();
    for ((topic, partition_id), (error_code, error_message)) in outcomes {
        let result = PartitionElectionResult { partition_id, error_code, error_message };
        match results.last_mut().filter(|last| *last.topic == *topic) {
            Some(last) => last.partition_result.push(result),
            None => {
                let topic = topic.into();
                results.push(ElectionResult { topic, partition_result: vec![result] });
            }
        }
    }
    ElectLeadersResponse {
        error_code: code.code(),
        replica_election_results: results,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::refusal::DONE;
    use super::*;
    use crate::metadata::test_support::image_with_topic;

    #[test]
    fn partitions_are_grouped_by_topic_and_unknown_ones_are_said() {
        let image = image_with_topic("t", 2);
        let asked = |topic: &'static str, partitions: &[i32]| ElectedTopic {
            topic: topic.into(),
            partitions: partitions.to_vec(),
        };
        let (mut outcomes, known) = look_up(&image, vec![asked("t", &[1, 7]), asked("u", &[0])]);
        assert_eq!(known.iter().map(|id| id.partition).collect::<Vec<_>>(), [1]);
        outcomes.insert(("t".into(), 1), DONE);
        let response = respond(ErrorCode::None, outcomes);
        let shown: Vec<_> = (response.replica_election_results.iter())
            .flat_map(|topic| {
                topic.partition_result.iter().map(|p| (&*topic.topic, p.partition_id, p.error_code))
            })
            .collect();
        assert_eq!(shown, [("t", 1, 0), ("t", 7, 3), ("u", 0, 3)]);
        assert_eq!(response.replica_election_results.len(), 2);
    }
}
