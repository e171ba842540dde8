//! Creating and deleting topics: every refusal, and what is recorded.

use super::super::ControllerRequest;
use super::super::test_support::*;
use super::*;
use crate::metadata::test_support::{nodes, uuid};

type Results = Vec<Result<CreatedTopic, Refusal>>;

fn create(world: &mut World, topics: Vec<CreatableTopic>) -> Results {
    match world.call(ControllerRequest::CreateTopics { topics, validate_only: false }) {
        Ok(ControllerReply::CreateTopics { results, .. }) => results,
        other => panic!("not the reply to a creation: {other:?}"),
    }
}

fn code(world: &mut World, topic: CreatableTopic) -> ErrorCode {
    let results = create(world, vec![topic]);
    results[0].as_ref().unwrap_err().code
}

fn sized(id: u8, partition_count: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic { partition_count, replication_factor, ..creatable("a", id) }
}

fn assigned(replicas: &[(i32, &[i32])]) -> CreatableTopic {
    let assignments = replicas.iter().map(|(partition, ids)| (*partition, nodes(ids))).collect();
    CreatableTopic { assignments, ..creatable("a", 1) }
}

#[test]
fn a_topic_is_topic_configs_and_partitions_in_that_order() {
    let mut world = World::new(3);
    let mut topic = assigned(&[(0, &[3, 1]), (1, &[1, 2])]);
    topic.configs = vec![("segment.bytes".to_owned(), Some("2000000".to_owned()))];
    world.fence(3);
    let result = create(&mut world, vec![topic]).remove(0);
    let created = CreatedTopic {
        name: "a".to_owned(),
        topic_id: uuid(1),
        partition_count: 2,
        replication_factor: 2,
    };
    assert_eq!(result, Ok(created));
    let partition = |partition, replicas: &[i32], isr: &[i32]| {
        let state = PartitionImage {
            replicas: nodes(replicas),
            isr: nodes(isr),
            ..crate::metadata::test_support::partition(isr)
        };
        let state = state.into();
        MetadataRecord::Partition(PartitionRecord { topic_id: uuid(1), partition, state })
    };
    let expected = [
        MetadataRecord::Topic(TopicRecord { topic_id: uuid(1), name: "a".into() }),
        MetadataRecord::Config {
            resource: ConfigResource::Topic("a".into()),
            key: "segment.bytes".to_owned(),
            value: Some("2000000".to_owned()),
        },
        partition(0, &[3, 1], &[1]),
        partition(1, &[1, 2], &[1, 2]),
    ];
    assert_eq!(world.last_records(), expected);
}

#[test]
fn defaults_are_three_replicas_or_as_many_as_there_are_brokers() {
    for (brokers, expected) in [(1, 1), (2, 2), (3, 3), (5, 3)] {
        let mut world = World::new(brokers);
        let created = create(&mut world, vec![creatable("a", 1)]).remove(0).unwrap();
        assert_eq!((created.partition_count, created.replication_factor), (1, expected));
    }
    let mut world = World::new(3);
    world.defaults.replication_factor = Some(2);
    world.defaults.partition_count = 4;
    let created = create(&mut world, vec![creatable("a", 1)]).remove(0).unwrap();
    assert_eq!((created.partition_count, created.replication_factor), (4, 2));
}

#[test]
fn a_broker_that_is_away_still_counts_for_the_default() {
    let mut world = World::new(3);
    world.fence(2);
    let created = create(&mut world, vec![creatable("a", 1)]).remove(0).unwrap();
    assert_eq!(created.replication_factor, 3);
    assert_eq!(world.partition(1, 0).isr.len(), 2);
}

#[test]
fn names_are_checked() {
    let mut world = World::new(1);
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a b", "ä", "a/b", long.as_str()] {
        assert_eq!(
            code(&mut world, creatable(name, 1)),
            ErrorCode::InvalidTopicException,
            "{name}"
        );
    }
    assert!(create(&mut world, vec![creatable(&long[1..], 1)])[0].is_ok());
    assert!(create(&mut world, vec![creatable("a.b", 2)])[0].is_ok());
    assert_eq!(code(&mut world, creatable("a.b", 3)), ErrorCode::TopicAlreadyExists);
    assert_eq!(code(&mut world, creatable("a_b", 3)), ErrorCode::InvalidTopicException);
    let results = create(&mut world, vec![creatable("c.d", 4), creatable("c_d", 5)]);
    assert!(results[0].is_ok());
    assert_eq!(results[1].as_ref().unwrap_err().code, ErrorCode::InvalidTopicException);
}

#[test]
fn one_bad_topic_does_not_fail_the_others() {
    let mut world = World::new(1);
    let topics = vec![creatable("a", 1), sized(2, 0, -1), creatable("b", 3), creatable("b", 4)];
    let results = create(&mut world, topics);
    let codes: Vec<_> =
        results.iter().map(|result| result.as_ref().map(drop).map_err(|r| r.code)).collect();
    // "a" and "b" appear twice.
    assert_eq!(codes, [Err(ErrorCode::InvalidRequest); 4]);
    let results = create(&mut world, vec![creatable("a", 1), creatable(".", 2), creatable("b", 3)]);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(world.image.topics.len(), 2);
}

#[test]
fn counts_are_checked() {
    let mut world = World::new(3);
    for (topic, expected) in [
        (sized(1, 0, 1), ErrorCode::InvalidPartitions),
        (sized(1, -2, 1), ErrorCode::InvalidPartitions),
        (sized(1, 1, 0), ErrorCode::InvalidReplicationFactor),
        (sized(1, 1, -2), ErrorCode::InvalidReplicationFactor),
        (sized(1, 1, 4), ErrorCode::InvalidReplicationFactor),
        (sized(1, 10_000, 1), ErrorCode::PolicyViolation),
        (sized(1, i32::MAX, 3), ErrorCode::PolicyViolation),
        (sized(0, 1, 1), ErrorCode::InvalidRequest),
    ] {
        assert_eq!(code(&mut world, topic), expected);
    }
    let largest = create(
        &mut world,
        vec![sized(1, 9_999, 3), CreatableTopic { name: "b".to_owned(), ..sized(2, 1, 1) }],
    );
    assert!(largest[0].is_ok());
    assert_eq!(largest[1].as_ref().unwrap_err().code, ErrorCode::PolicyViolation);
}

#[test]
fn manual_assignments_are_checked() {
    let mut world = World::new(3);
    world.fence(3);
    let with_count = CreatableTopic { partition_count: 1, ..assigned(&[(0, &[1])]) };
    assert_eq!(code(&mut world, with_count), ErrorCode::InvalidRequest);
    let assignments: [&[(i32, &[i32])]; 6] = [
        &[(1, &[1])],
        &[(0, &[])],
        &[(0, &[1]), (1, &[1, 2])],
        &[(0, &[1, 1])],
        &[(0, &[1, 9])],
        &[(0, &[3])],
    ];
    for replicas in assignments {
        let found = code(&mut world, assigned(replicas));
        assert_eq!(found, ErrorCode::InvalidReplicaAssignment, "{replicas:?}");
    }
}

#[test]
fn configs_are_checked() {
    let mut world = World::new(1);
    let pair = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
    for configs in [
        vec![pair("segment.bytes", None)],
        vec![pair("segment.bytes", Some("x"))],
        vec![pair("segment.byte", Some("2000000"))],
        vec![pair("remote.storage.enable", Some("true"))],
        vec![pair("segment.ms", Some("1")), pair("segment.ms", Some("1"))],
    ] {
        let topic = CreatableTopic { configs, ..creatable("a", 1) };
        assert_eq!(code(&mut world, topic), ErrorCode::InvalidConfig);
    }
}

#[test]
fn validation_changes_nothing() {
    let mut world = World::new(1);
    let batches = world.log.len();
    let topics = vec![creatable("a", 1), creatable("..", 2)];
    let reply = world.call(ControllerRequest::CreateTopics { topics, validate_only: true });
    let Ok(ControllerReply::CreateTopics { results, .. }) = reply else { panic!("{reply:?}") };
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    assert_eq!(world.log.len(), batches);
}

#[test]
fn topics_are_deleted_by_name_or_id() {
    let mut world = World::new(1);
    create(&mut world, vec![creatable("a", 1), creatable("b", 2)]);
    let topics = vec![
        TopicSelector::Name("a".to_owned()),
        TopicSelector::Id(uuid(1)),
        TopicSelector::Id(uuid(2)),
        TopicSelector::Id(uuid(3)),
        TopicSelector::Name("c".to_owned()),
    ];
    let reply = world.call(ControllerRequest::DeleteTopics { topics });
    let Ok(ControllerReply::DeleteTopics { results, index }) = reply else { panic!("{reply:?}") };
    let codes: Vec<_> =
        results.into_iter().map(|r| r.map(|t| t.topic_id).map_err(|r| r.code)).collect();
    let expected = [
        Ok(uuid(1)),
        Err(ErrorCode::InvalidRequest),
        Ok(uuid(2)),
        Err(ErrorCode::UnknownTopicId),
        Err(ErrorCode::UnknownTopicOrPartition),
    ];
    assert_eq!(codes, expected);
    assert_eq!(index, world.image.index, "where it can be seen");
    assert!(world.image.topics.is_empty());
}
