//! Which configs can be set, and that a refused change changes nothing.

use super::super::ControllerRequest;
use super::super::test_support::*;
use super::*;
use crate::metadata::test_support::nodes;
use crate::types::NodeId;

fn topic(name: &str) -> ConfigResource {
    ConfigResource::Topic(name.into())
}

fn set(value: &str) -> ConfigOperation {
    ConfigOperation::Set(value.to_owned())
}

fn alter(
    world: &mut World,
    resource: ConfigResource,
    operations: &[(&str, ConfigOperation)],
) -> Result<(), Refusal> {
    let operations =
        operations.iter().map(|(key, operation)| ((*key).to_owned(), operation.clone())).collect();
    let changes = vec![ConfigChange { resource, operations }];
    match world.call(ControllerRequest::AlterConfigs { changes, validate_only: false })? {
        ControllerReply::AlterConfigs { mut results, .. } => results.remove(0),
        other => panic!("not the reply to a change: {other:?}"),
    }
}

fn world() -> World {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3]]);
    world
}

#[test]
fn configs_are_set_and_deleted() {
    let mut world = world();
    alter(&mut world, topic("a"), &[("segment.bytes", set("2000000")), ("segment.ms", set("9"))])
        .unwrap();
    let config = world.image.topic_config("a", NodeId(1));
    assert_eq!((config.segment_bytes, config.segment_ms), (2_000_000, 9));
    let batches = world.log.len();
    alter(&mut world, topic("a"), &[("segment.ms", set(" 9 "))]).unwrap();
    assert_eq!(world.log.len(), batches, "what is so already makes no record");
    alter(&mut world, topic("a"), &[("segment.ms", ConfigOperation::Delete)]).unwrap();
    let expected =
        MetadataRecord::Config { resource: topic("a"), key: "segment.ms".to_owned(), value: None };
    assert_eq!(world.last_records(), [expected]);
    alter(&mut world, ConfigResource::Cluster, &[("log.roll.ms", set("8"))]).unwrap();
    assert_eq!(world.image.topic_config("a", NodeId(1)).segment_ms, 8);
    alter(&mut world, ConfigResource::Broker(NodeId(2)), &[("log.roll.ms", set("7"))]).unwrap();
    assert_eq!(world.image.topic_config("a", NodeId(1)).segment_ms, 8);
    assert_eq!(world.image.topic_config("a", NodeId(2)).segment_ms, 7);
}

#[test]
fn what_cannot_be_set_is_refused_whole() {
    let mut world = world();
    let broker = |id| ConfigResource::Broker(NodeId(id));
    for (resource, key, operation, expected) in [
        (topic("b"), "segment.ms", set("1"), ErrorCode::UnknownTopicOrPartition),
        (broker(9), "log.roll.ms", set("1"), ErrorCode::BrokerIdNotRegistered),
        (broker(1), "segment.ms", set("1"), ErrorCode::InvalidConfig),
        (broker(1), "min.insync.replicas", set("1"), ErrorCode::InvalidConfig),
        (topic("a"), "segment.mss", set("1"), ErrorCode::InvalidConfig),
        (topic("a"), "segment.mss", ConfigOperation::Delete, ErrorCode::InvalidConfig),
        (topic("a"), "segment.bytes", set("1"), ErrorCode::InvalidConfig),
        (
            topic("a"),
            "segment.bytes",
            ConfigOperation::Append("1".into()),
            ErrorCode::InvalidConfig,
        ),
        (
            topic("a"),
            "cleanup.policy",
            ConfigOperation::Append("destroy".into()),
            ErrorCode::InvalidConfig,
        ),
        (ConfigResource::Cluster, "segment.ms", set("1"), ErrorCode::InvalidConfig),
    ] {
        let operations = [("segment.index.bytes", set("4096")), (key, operation)];
        let refusal = alter(&mut world, resource.clone(), &operations).unwrap_err();
        assert_eq!(refusal.code, expected, "{resource:?} {refusal}");
    }
    let twice = [("segment.ms", set("1")), ("segment.ms", set("2"))];
    let refusal = alter(&mut world, topic("a"), &twice).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::InvalidRequest);
    assert!(world.image.configs.is_empty());
    assert!(
        alter(&mut world, topic("a"), &[("segment.mss", ConfigOperation::Delete)])
            .unwrap_err()
            .message
            .contains("segment.ms")
    );
}

#[test]
fn lists_are_appended_to_and_subtracted_from() {
    let mut world = world();
    let append = ConfigOperation::Append("delete".to_owned());
    alter(&mut world, topic("a"), &[("cleanup.policy", append)]).unwrap();
    let subtract = ConfigOperation::Subtract("compact".to_owned());
    alter(&mut world, topic("a"), &[("cleanup.policy", subtract)]).unwrap();
    let configs = world.image.topic_configs("a").unwrap();
    assert_eq!(configs.get("cleanup.policy").map(String::as_str), Some("delete"));
}

#[test]
fn eligible_leaders_follow_the_minimum_isr() {
    let mut world = world();
    world.fence(3);
    world.fence(2);
    assert_eq!(world.partition(1, 0).elr, nodes(&[2]));
    alter(&mut world, topic("a"), &[("min.insync.replicas", set("1"))]).unwrap();
    assert_eq!(world.partition(1, 0).elr, nodes(&[]), "1 commits alone from now on");
    assert_eq!(world.last_records().len(), 2);
    let batches = world.log.len();
    alter(&mut world, ConfigResource::Cluster, &[("min.insync.replicas", set("3"))]).unwrap();
    assert_eq!(world.log.len(), batches + 1);
    assert_eq!(world.last_records().len(), 1, "the topic has its own");
}

#[test]
fn validation_changes_nothing() {
    let mut world = world();
    let batches = world.log.len();
    let operations = vec![("segment.ms".to_owned(), set("1"))];
    let changes = vec![ConfigChange { resource: topic("a"), operations }];
    let reply = world.call(ControllerRequest::AlterConfigs { changes, validate_only: true });
    let index = world.image.index;
    assert_eq!(reply, Ok(ControllerReply::AlterConfigs { results: vec![Ok(())], index }));
    assert_eq!(world.log.len(), batches);
}
