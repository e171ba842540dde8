//! Moves of one partition of five brokers, step by step.

use super::super::test_support::World;
use super::super::{AlterPartition, AlterPartitionRequest, ControllerRequest};
use super::*;
use crate::metadata::test_support::{nodes, uuid};
use crate::types::{BrokerEpoch, LeaderEpoch, TopicIdPartition};

const PARTITION: i32 = 0;

fn id() -> TopicIdPartition {
    TopicIdPartition { topic_id: uuid(1), partition: PARTITION }
}

fn world() -> World {
    let mut world = World::new(5);
    world.create("a", 1, &[&[1, 2, 3]]);
    world
}

fn ask(world: &mut World, replicas: Option<&[i32]>) -> ErrorCode {
    let partitions = vec![Reassignment { partition: id(), replicas: replicas.map(nodes) }];
    match world.call(ControllerRequest::Reassign { partitions }).unwrap() {
        ControllerReply::Reassign { mut results, .. } => {
            results.remove(0).map_or_else(|refusal| refusal.code, |()| ErrorCode::None)
        }
        other => panic!("{other:?}"),
    }
}

/// The leader says who is in sync.
fn in_sync(world: &mut World, isr: &[i32], sequence: u64) {
    let current = world.partition(1, PARTITION);
    let node_id = current.leader;
    let proposal = AlterPartition {
        partition: id(),
        leader_epoch: current.leader_epoch,
        partition_epoch: current.partition_epoch,
        isr: isr.iter().map(|id| (NodeId(*id), BrokerEpoch::NONE)).collect(),
        recovered: true,
    };
    let request = AlterPartitionRequest {
        node_id,
        broker_epoch: world.epoch(node_id.0),
        sequence,
        partitions: vec![proposal],
    };
    world.call(ControllerRequest::AlterPartition(request)).unwrap();
}

/// Replicas, ISR, those being added, those being removed, leader.
fn shown(world: &World) -> (Vec<i32>, Vec<i32>, Vec<i32>, Vec<i32>, i32) {
    let state = world.partition(1, PARTITION);
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect();
    (
        ids(&state.replicas),
        ids(&state.isr),
        ids(&state.adding),
        ids(&state.removing),
        state.leader.0,
    )
}

#[test]
fn new_replicas_join_before_old_ones_leave() {
    let mut world = world();
    assert_eq!(ask(&mut world, Some(&[4, 5, 3])), ErrorCode::None);
    let moving = (vec![4, 5, 3, 1, 2], vec![1, 2, 3], vec![4, 5], vec![1, 2], 1);
    assert_eq!(shown(&world), moving);
    assert_eq!(world.partition(1, PARTITION).leader_epoch, LeaderEpoch(0), "nothing stops");

    in_sync(&mut world, &[1, 2, 3, 4], 1);
    assert_eq!(shown(&world).2, [4, 5], "5 is not in sync yet");
    in_sync(&mut world, &[1, 2, 3, 4, 5], 2);
    let (replicas, mut isr, adding, removing, leader) = shown(&world);
    isr.sort_unstable();
    assert_eq!((replicas, isr), (vec![4, 5, 3], vec![3, 4, 5]));
    assert_eq!((adding, removing), (vec![], vec![]));
    assert_eq!(leader, 4, "the old leader left");
    assert_eq!(world.partition(1, PARTITION).leader_epoch, LeaderEpoch(1));
}

#[test]
fn another_order_or_fewer_replicas_is_done_at_once() {
    let mut world = world();
    assert_eq!(ask(&mut world, Some(&[2, 3, 1])), ErrorCode::None);
    assert_eq!(shown(&world), (vec![2, 3, 1], vec![1, 2, 3], vec![], vec![], 1));
    assert_eq!(ask(&mut world, Some(&[2, 1])), ErrorCode::None);
    assert_eq!(shown(&world), (vec![2, 1], vec![1, 2], vec![], vec![], 1));
}

#[test]
fn a_second_move_replaces_the_first_and_a_cancel_ends_it() {
    let mut world = world();
    assert_eq!(ask(&mut world, None), ErrorCode::NoReassignmentInProgress);
    ask(&mut world, Some(&[1, 2, 4]));
    in_sync(&mut world, &[1, 2, 3], 1);
    ask(&mut world, Some(&[1, 2, 5]));
    assert_eq!(shown(&world), (vec![1, 2, 5, 3], vec![1, 2, 3], vec![5], vec![3], 1));
    assert_eq!(ask(&mut world, None), ErrorCode::None);
    assert_eq!(shown(&world), (vec![1, 2, 3], vec![1, 2, 3], vec![], vec![], 1));
}

#[test]
fn a_cancel_that_would_lose_records_is_refused() {
    let mut world = world();
    ask(&mut world, Some(&[4, 5]));
    in_sync(&mut world, &[1, 4], 1);
    world.fence(1);
    assert_eq!(shown(&world).1, [4]);
    assert_eq!(ask(&mut world, None), ErrorCode::InvalidReplicaAssignment);
}

#[test]
fn impossible_targets_are_refused() {
    let mut world = world();
    for target in [&[][..], &[1, 1], &[1, 9]] {
        assert_eq!(ask(&mut world, Some(target)), ErrorCode::InvalidReplicaAssignment);
    }
    let unknown = TopicIdPartition { topic_id: uuid(9), partition: 0 };
    let of = |partition| Reassignment { partition, replicas: Some(nodes(&[1])) };
    let partitions = vec![of(unknown), of(id()), of(id())];
    match world.call(ControllerRequest::Reassign { partitions }).unwrap() {
        ControllerReply::Reassign { results, .. } => {
            let codes: Vec<_> = results.into_iter().map(|r| r.err().map(|r| r.code)).collect();
            let expected = [ErrorCode::UnknownTopicOrPartition, ErrorCode::InvalidRequest];
            assert_eq!(codes, [Some(expected[0]), None, Some(expected[1])]);
        }
        other => panic!("{other:?}"),
    }
}
