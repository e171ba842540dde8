//! More partitions for topics that exist (replication.md 1.6). Fewer there cannot be.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::placement::place;
use super::request::refuse;
use super::topics::{check_replicas, new_partition};
use super::{ControllerReply, Decision, DecisionContext, MorePartitions, RECORDS_MAX, Refusal};
use crate::metadata::{MetadataImage, MetadataRecord, PartitionRecord};
use crate::protocol::ErrorCode;
use crate::types::NodeId;
use crate::types::random::Seeded;

pub(super) fn create(
    image: &MetadataImage,
    context: &DecisionContext<'_>,
    topics: &[MorePartitions],
    validate_only: bool,
) -> Decision {
    let mut random = Seeded(context.seed);
    let (mut names, mut records) = (BTreeSet::new(), Vec::new());
    let results = topics.iter().map(|asked| {
        if !names.insert(asked.name.as_str()) {
            return refuse(
                ErrorCode::InvalidRequest,
                format!("topic {} appears twice", asked.name),
            );
        }
        let made = grow(image, asked, RECORDS_MAX - records.len(), random.number())?;
        records.extend(made);
        Ok(())
    });
    let results = results.collect();
    if validate_only {
        records.clear();
    }
    Decision {
        records,
        reply: Ok(ControllerReply::CreatePartitions { results, index: image.index }),
    }
}

/// At most `records_max` records.
fn grow(
    image: &MetadataImage,
    asked: &MorePartitions,
    records_max: usize,
    seed: u64,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let name = &asked.name;
    let Some(topic) = image.topic(name) else {
        return refuse(ErrorCode::UnknownTopicOrPartition, format!("there is no topic {name}"));
    };
    let current = topic.partitions.len();
    let added = usize::try_from(asked.count).ok().and_then(|count| count.checked_sub(current));
    let added = match added {
        Some(added) if added > 0 => added,
        _ => {
            let count = asked.count;
            let message =
                format!("topic {name} has {current} partitions; {count} would not be more");
            return refuse(ErrorCode::InvalidPartitions, message);
        }
    };
    if added > records_max {
        let message =
            format!("with topic {name} the request would make too many records; split it");
        return refuse(ErrorCode::PolicyViolation, message);
    }
    let replication_factor = topic.replication_factor();
    let assignments = match &asked.assignments {
        None => place(image, added, replication_factor, seed)?,
        Some(assignments) => {
            check_assignments(image, assignments, current, added, replication_factor)?;
            assignments.clone()
        }
    };
    let first = i32::try_from(current).expect("a topic has fewer partitions");
    let records = (first..).zip(assignments).map(|(partition, replicas)| {
        let state = Arc::new(new_partition(image, replicas));
        let topic_id = topic.topic_id;
        MetadataRecord::Partition(PartitionRecord { topic_id, partition, state })
    });
    Ok(records.collect())
}

fn check_assignments(
    image: &MetadataImage,
    assignments: &[Vec<NodeId>],
    current: usize,
    added: usize,
    replication_factor: usize,
) -> Result<(), Refusal> {
    let invalid = |reason: String| refuse(ErrorCode::InvalidReplicaAssignment, reason);
    if assignments.len() != added {
        return invalid(format!("{added} partitions are new, {} are assigned", assignments.len()));
    }
    for (partition, replicas) in (current..).zip(assignments) {
        if replicas.len() != replication_factor {
            return invalid(format!(
                "partition {partition} would have {} replicas; the others have {replication_factor}",
                replicas.len()
            ));
        }
        check_replicas(image, partition, replicas)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::ControllerRequest;
    use super::super::test_support::*;
    use super::*;
    use crate::metadata::test_support::nodes;

    fn more(name: &str, count: i32, assignments: Option<&[&[i32]]>) -> MorePartitions {
        let assignments = assignments.map(|all| all.iter().map(|ids| nodes(ids)).collect());
        MorePartitions { name: name.to_owned(), count, assignments }
    }

    fn ask(
        world: &mut World,
        topics: Vec<MorePartitions>,
        validate_only: bool,
    ) -> Vec<Result<(), ErrorCode>> {
        let request = ControllerRequest::CreatePartitions { topics, validate_only };
        let Ok(ControllerReply::CreatePartitions { results, .. }) = world.call(request) else {
            panic!("another reply");
        };
        results.into_iter().map(|result| result.map_err(|refusal| refusal.code)).collect()
    }

    #[test]
    fn partitions_are_added_behind_those_that_are_there() {
        let mut world = World::new(3);
        world.create("a", 1, &[&[1, 2]]);
        world.fence(3);
        assert_eq!(ask(&mut world, vec![more("a", 3, None)], true), [Ok(())]);
        assert_eq!(world.image.topic("a").unwrap().partitions.len(), 1);
        assert_eq!(ask(&mut world, vec![more("a", 3, None)], false), [Ok(())]);
        for partition in [1, 2] {
            let made = world.partition(1, partition);
            assert_eq!((made.replicas.len(), made.leader), (2, made.isr[0]));
        }
        let assigned = more("a", 4, Some(&[&[3, 2]]));
        assert_eq!(ask(&mut world, vec![assigned], false), [Ok(())]);
        let made = world.partition(1, 3);
        assert_eq!((&made.replicas, &made.isr), (&nodes(&[3, 2]), &nodes(&[2])));
    }

    #[test]
    fn what_would_not_be_more_is_refused() {
        use ErrorCode::{
            InvalidPartitions, InvalidReplicaAssignment, InvalidRequest, PolicyViolation,
            UnknownTopicOrPartition,
        };
        let mut world = World::new(3);
        world.create("a", 1, &[&[1, 2], &[2, 3]]);
        for (asked, expected) in [
            (more("b", 3, None), UnknownTopicOrPartition),
            (more("a", 2, None), InvalidPartitions),
            (more("a", 1, None), InvalidPartitions),
            (more("a", -1, None), InvalidPartitions),
            (more("a", i32::MAX, None), PolicyViolation),
            (more("a", 4, Some(&[&[1, 2]])), InvalidReplicaAssignment),
            (more("a", 3, Some(&[&[1]])), InvalidReplicaAssignment),
            (more("a", 3, Some(&[&[1, 1]])), InvalidReplicaAssignment),
            (more("a", 3, Some(&[&[1, 9]])), InvalidReplicaAssignment),
        ] {
            assert_eq!(ask(&mut world, vec![asked], false), [Err(expected)]);
        }
        let twice = vec![more("a", 3, None), more("a", 4, None)];
        assert_eq!(ask(&mut world, twice, false), [Ok(()), Err(InvalidRequest)]);
        assert_eq!(world.image.topic("a").unwrap().partitions.len(), 3);
    }
}
