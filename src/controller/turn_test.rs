//! What one turn of the controller loop makes of the requests that wait.

use super::super::test_support::*;
use super::*;
use crate::metadata::test_support::{registration, uuid};
use crate::types::NodeId;

fn context(world: &World) -> DecisionContext<'_> {
    DecisionContext { now_ms: 5, seed: 1, liveness: &world.liveness, defaults: &world.defaults }
}

fn create(name: &str, id: u8) -> DecisionRequest {
    DecisionRequest::Call(ControllerCall {
        principal: "User:me".to_owned(),
        request: ControllerRequest::CreateTopics {
            topics: vec![creatable(name, id)],
            validate_only: false,
        },
    })
}

#[test]
fn requests_of_one_turn_see_each_other_and_make_one_batch() {
    let world = World::new(3);
    let mut turn = Turn::begin(&world.image, context(&world));
    turn.decide(&create("a", 1));
    let again = turn.decide(&create("a", 2));
    let fence = DecisionRequest::Fence {
        node_id: NodeId(1),
        broker_epoch: world.epoch(1),
        cause: "no heartbeat for 700 ms".to_owned(),
    };
    turn.decide(&fence);
    assert_eq!(turn.record_count(), 4);
    let batch = turn.finish(7).unwrap();
    let causes: Vec<_> = batch
        .causes
        .iter()
        .map(|cause| (cause.principal.as_str(), cause.request.as_str(), cause.record_count))
        .collect();
    let expected = [
        ("User:me", "create topics a", 2),
        ("controller", "fence broker 1: no heartbeat for 700 ms", 2),
    ];
    assert_eq!(causes, expected);
    assert_eq!((batch.basis, batch.controller_epoch), (world.image.batch_index, 7));
    assert_eq!(batch.time_ms, 1000, "time does not go back");
    let mut image = world.image.clone();
    image.replay(100, &batch).unwrap();
    let Ok(ControllerReply::CreateTopics { results, index }) = again.settled_at(100) else {
        panic!("not the reply to a creation")
    };
    assert_eq!(results[0].as_ref().unwrap_err().code, ErrorCode::TopicAlreadyExists);
    assert_eq!(index, 100);
}

#[test]
fn a_registration_is_told_the_epoch_that_it_got() {
    let mut world = World::new(1);
    let request = crate::controller::RegisterBrokerRequest {
        cluster_id: uuid(CLUSTER),
        registration: registration(2, 0),
        previous_broker_epoch: BrokerEpoch::NONE,
        supersede: false,
    };
    let before = world.image.clone();
    let mut turn = Turn::begin(&before, context(&world));
    let pending = turn.decide(&DecisionRequest::Call(ControllerCall {
        principal: "broker-2".to_owned(),
        request: ControllerRequest::RegisterBroker(request),
    }));
    let batch = turn.finish(1).unwrap();
    // A blank entry came in between.
    let index = world.image.index + 3;
    world.image.replay(index, &batch).unwrap();
    let broker_epoch = world.epoch(2);
    assert_eq!(u64::try_from(broker_epoch.0), Ok(index));
    assert_eq!(pending.settled_at(index), Ok(ControllerReply::RegisterBroker { broker_epoch }));
}

#[test]
fn nothing_decided_makes_no_batch() {
    let world = World::new(1);
    let mut turn = Turn::begin(&world.image, context(&world));
    turn.decide(&create("..", 1));
    assert_eq!(turn.finish(1), None);
}

#[test]
fn every_256th_batch_tells_the_digest_before_it() {
    let mut world = World::new(1);
    let mut told = Vec::new();
    while world.image.batch_count < 600 {
        let before = (world.image.batch_index, world.image.digest);
        let node_id = NodeId(1);
        let broker_epoch = world.epoch(1);
        world.call(ControllerRequest::AllocateProducerIds { node_id, broker_epoch }).unwrap();
        if let Some(MetadataRecord::Digest { index, digest }) = world.last_records().last() {
            assert_eq!((*index, *digest), before);
            told.push(world.image.batch_count);
        }
    }
    assert_eq!(told, [256, 512]);
}

#[test]
fn long_causes_are_cut() {
    let topics = vec![creatable(&"ä".repeat(300), 1)];
    let request = ControllerRequest::CreateTopics { topics, validate_only: false };
    let call = ControllerCall { principal: "p".to_owned(), request };
    let cause = cause(&DecisionRequest::Call(call), 1);
    assert!(cause.request.len() < 210 && cause.request.ends_with('…'), "{}", cause.request);
}
