//! Fencing, unfencing and new lives of brokers: what becomes of the partitions.

use std::time::Duration;

use super::super::test_support::*;
use super::super::{ControllerRequest, DecisionRequest, HeartbeatRequest};
use super::*;
use crate::metadata::test_support::{nodes, registration, uuid};
use crate::metadata::{LeaderRecovery, PartitionChangeRecord, PartitionImage};
use crate::types::{LeaderEpoch, PartitionEpoch};

fn broker_change(
    world: &World,
    node_id: i32,
    fenced: Option<bool>,
    shutdown: Option<bool>,
) -> MetadataRecord {
    change(NodeId(node_id), world.epoch(node_id), fenced, shutdown)
}

fn summary(partition: &PartitionImage) -> (i32, Vec<i32>, Vec<i32>, i32, i32) {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|node| node.0).collect::<Vec<_>>();
    (
        partition.leader.0,
        ids(&partition.isr),
        ids(&partition.elr),
        partition.leader_epoch.0,
        partition.partition_epoch.0,
    )
}

#[test]
fn fencing_removes_a_broker_from_every_isr_in_one_batch() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3], &[2, 1], &[3, 2]]);
    let fenced = broker_change(&world, 1, Some(true), None);
    let before = world.partition(1, 1).clone();
    world.fence(1);
    let state = |leader, leader_epoch, isr: &[i32], old: &PartitionImage| PartitionImage {
        leader: NodeId(leader),
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(1),
        isr: nodes(isr),
        ..old.clone()
    };
    let changed = |partition, state: PartitionImage| {
        let (topic_id, state) = (uuid(1), state.into());
        MetadataRecord::PartitionChange(PartitionChangeRecord { topic_id, partition, state })
    };
    let first = PartitionImage { replicas: nodes(&[1, 2, 3]), ..before.clone() };
    let expected =
        [changed(0, state(2, 1, &[2, 3], &first)), changed(1, state(2, 0, &[2], &before)), fenced];
    assert_eq!(world.last_records(), expected);
    let batches = world.log.len();
    world.fence(1);
    assert_eq!(world.log.len(), batches, "a second time it is nothing");
}

#[test]
fn fencing_another_life_is_nothing() {
    let mut world = World::new(1);
    let broker_epoch = BrokerEpoch(world.epoch(1).0 - 1);
    let cause = String::new();
    let request = DecisionRequest::Fence { node_id: NodeId(1), broker_epoch, cause };
    assert_eq!(world.run(request), Ok(ControllerReply::Done));
    assert!(world.image.is_active(NodeId(1)));
}

#[test]
fn all_die_and_come_back_cleanly() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3]]);
    for node_id in [1, 2, 3] {
        world.fence(node_id);
    }
    assert_eq!(summary(world.partition(1, 0)), (-1, vec![], vec![2, 3], 3, 3));
    for node_id in [1, 2, 3] {
        let previous = world.epoch(node_id);
        world.register(node_id, 1, previous).unwrap();
    }
    world.unfence(1).unwrap();
    assert_eq!(world.partition(1, 0).leader, NodeId::NONE, "it misses what 2 and 3 committed");
    world.unfence(3).unwrap();
    assert_eq!(summary(world.partition(1, 0)), (3, vec![3], vec![2], 4, 4));
    world.unfence(2).unwrap();
    assert_eq!(world.partition(1, 0).leader, NodeId(3), "leaders do not move needlessly");
}

#[test]
fn all_die_uncleanly_and_the_last_leader_leads() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3]]);
    for node_id in [3, 2, 1] {
        world.fence(node_id);
    }
    for node_id in [1, 2, 3] {
        world.register(node_id, 1, BrokerEpoch::NONE).unwrap();
    }
    for node_id in [3, 2, 1] {
        world.unfence(node_id).unwrap();
    }
    let partition = world.partition(1, 0);
    assert_eq!((partition.leader, partition.recovery), (NodeId(1), LeaderRecovery::Recovering));
    assert_eq!(partition.isr, nodes(&[1]));
}

#[test]
fn another_incarnation_is_a_failure_even_of_the_last_in_sync() {
    let mut world = World::new(2);
    world.create("a", 1, &[&[1, 2], &[1]]);
    let previous = world.epoch(1);
    let epoch = world.register(1, 1, previous).unwrap();
    assert_eq!(u64::try_from(epoch.0), Ok(world.image.index));
    assert_eq!(summary(world.partition(1, 0)), (2, vec![2], vec![], 1, 1));
    assert_eq!(summary(world.partition(1, 1)), (-1, vec![], vec![1], 1, 1));
    assert!(world.image.broker(NodeId(1)).unwrap().fenced);
    world.unfence(1).unwrap();
    assert_eq!(summary(world.partition(1, 1)), (1, vec![1], vec![], 2, 2));
}

#[test]
fn the_same_incarnation_keeps_its_epoch() {
    let mut world = World::new(1);
    let (epoch, batches) = (world.epoch(1), world.log.len());
    assert_eq!(world.register(1, 0, BrokerEpoch::NONE), Ok(epoch));
    assert_eq!(world.log.len(), batches);
    assert!(world.image.is_active(NodeId(1)));
}

#[test]
fn a_node_id_is_taken_while_its_process_lives() {
    let mut world = World::new(1);
    let request = RegisterBrokerRequest {
        cluster_id: uuid(CLUSTER),
        registration: registration(1, 1),
        previous_broker_epoch: BrokerEpoch::NONE,
        supersede: false,
    };
    let register = ControllerRequest::RegisterBroker(request);
    assert_eq!(world.refused(register.clone()), ErrorCode::DuplicateBrokerRegistration);

    // Fenced, but it still sends heartbeats.
    world.liveness.on_elected(&world.image, Duration::ZERO);
    let heartbeat = HeartbeatRequest {
        node_id: NodeId(1),
        broker_epoch: world.epoch(1),
        applied_index: 0,
        want_fence: true,
        want_shutdown: false,
        disk_stall_ms: 0,
    };
    world.liveness.on_heartbeat(&heartbeat, Duration::ZERO);
    world.fence(1);
    assert_eq!(world.refused(register.clone()), ErrorCode::DuplicateBrokerRegistration);
    for tick in 1..10 {
        world.liveness.on_tick(&world.image, Duration::from_millis(100 * tick));
    }
    assert!(world.call(register).is_ok());
}

#[test]
fn registrations_are_checked() {
    let mut world = World::new(2);
    let code = |world: &mut World, edit: fn(&mut RegisterBrokerRequest)| {
        let mut request = RegisterBrokerRequest {
            cluster_id: uuid(CLUSTER),
            registration: registration(3, 0),
            previous_broker_epoch: BrokerEpoch::NONE,
            supersede: true,
        };
        edit(&mut request);
        world.refused(ControllerRequest::RegisterBroker(request))
    };
    let foreign_cluster = code(&mut world, |r| r.cluster_id = uuid(1));
    assert_eq!(foreign_cluster, ErrorCode::InconsistentClusterId);
    for edit in [
        (|r| r.registration.directory_ids.clear()) as fn(&mut RegisterBrokerRequest),
        |r| r.registration.directory_ids = vec![uuid(0)],
        |r| r.registration.directory_ids = vec![uuid(9), uuid(9)],
        |r| r.registration.directory_ids = registration(1, 0).directory_ids,
        |r| r.registration.node_id = NodeId(-1),
    ] {
        assert_eq!(code(&mut world, edit), ErrorCode::InvalidRegistration);
    }
    world.image.features.insert("metadata.version".to_owned(), 3);
    assert_eq!(code(&mut world, |_| ()), ErrorCode::UnsupportedVersion);
    let too_old = code(&mut world, |r| {
        r.registration.features.insert("metadata.version".to_owned(), (1, 2));
    });
    assert_eq!(too_old, ErrorCode::UnsupportedVersion);
}

#[test]
fn unfencing_asks_for_the_present_life_and_for_its_registration_to_be_applied() {
    let mut world = World::new(1);
    world.fence(1);
    let broker_epoch = world.epoch(1);
    let unfence = |broker_epoch: BrokerEpoch, applied_index| DecisionRequest::Unfence {
        node_id: NodeId(1),
        broker_epoch,
        applied_index,
    };
    let stale = world.run(unfence(BrokerEpoch(broker_epoch.0 - 1), 99)).unwrap_err();
    assert_eq!(stale.code, ErrorCode::StaleBrokerEpoch);
    let behind = world.run(unfence(broker_epoch, broker_epoch.0 as u64 - 1)).unwrap_err();
    assert_eq!(behind.code, ErrorCode::OperationNotAttempted);
    world.run(unfence(broker_epoch, broker_epoch.0 as u64)).unwrap();
    assert_eq!(world.last_records(), [broker_change(&world, 1, Some(false), None)]);
}

#[test]
fn a_controlled_shutdown_moves_leaders_first() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3], &[1]]);
    let broker_epoch = world.epoch(1);
    let begin = DecisionRequest::BeginControlledShutdown { node_id: NodeId(1), broker_epoch };
    world.run(begin.clone()).unwrap();
    assert_eq!(summary(world.partition(1, 0)), (2, vec![2, 3], vec![], 1, 1));
    assert_eq!(summary(world.partition(1, 1)), (-1, vec![], vec![1], 1, 1));
    let broker = world.image.broker(NodeId(1)).unwrap();
    assert_eq!((broker.in_controlled_shutdown, broker.fenced), (true, false));
    assert_eq!(broker.shutdown_index, world.image.index);
    let batches = world.log.len();
    world.run(begin).unwrap();
    assert_eq!(world.log.len(), batches);
}

#[test]
fn a_drain_lasts_until_the_broker_registers_again_and_stops_nothing() {
    let mut world = World::new(2);
    world.create("a", 1, &[&[1, 2]]);
    let drain = ControllerRequest::Drain { node_id: NodeId(1) };
    world.call(drain.clone()).unwrap();
    assert_eq!(world.partition(1, 0).leader, NodeId(2));
    let other = ControllerRequest::Drain { node_id: NodeId(2) };
    let refusal = world.call(other).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::PolicyViolation);
    assert!(refusal.message.contains("a-0"), "{refusal}");
    world.fence(1);
    world.unfence(1).unwrap();
    assert!(!world.image.is_active(NodeId(1)));
    let previous = world.epoch(1);
    world.register(1, 1, previous).unwrap();
    world.unfence(1).unwrap();
    assert!(world.image.is_active(NodeId(1)));
    let unknown = world.refused(ControllerRequest::Drain { node_id: NodeId(9) });
    assert_eq!(unknown, ErrorCode::BrokerIdNotRegistered);
}

#[test]
fn an_unregistered_broker_is_forgotten() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3], &[1]]);
    let unregister = ControllerRequest::UnregisterBroker { node_id: NodeId(1) };
    world.call(unregister.clone()).unwrap();
    assert_eq!(world.image.broker(NodeId(1)), None);
    assert_eq!(summary(world.partition(1, 0)), (2, vec![2, 3], vec![], 1, 1));
    assert_eq!(summary(world.partition(1, 1)), (-1, vec![], vec![], 1, 1));
    assert_eq!(world.refused(unregister), ErrorCode::BrokerIdNotRegistered);
}

#[test]
fn leaders_leave_a_stuck_disk_for_one_that_is_not() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3], &[1], &[3, 1, 2]]);
    world.liveness.on_elected(&world.image, Duration::ZERO);
    let beat = |world: &World, node: i32, disk_stall_ms| HeartbeatRequest {
        node_id: NodeId(node),
        broker_epoch: world.epoch(node),
        applied_index: world.image.index,
        want_fence: false,
        want_shutdown: false,
        disk_stall_ms,
    };
    let asked = |world: &mut World, node, stall| {
        let request = beat(world, node, stall);
        world.liveness.on_heartbeat(&request, Duration::ZERO);
        crate::controller::heartbeat_reply(&world.image, &world.liveness, &request).unwrap().1
    };
    assert_eq!(asked(&mut world, 1, 1_000), None, "a busy disk");
    assert!(asked(&mut world, 2, 4_000).is_some());
    let relieve = asked(&mut world, 1, 3_000).expect("a stuck one");
    world.run(relieve.clone()).unwrap();
    // Broker 2 is stuck as well.
    assert_eq!(summary(world.partition(1, 0)), (3, vec![2, 3], vec![], 1, 1));
    assert_eq!(world.partition(1, 1).leader, NodeId(1), "slow is better than nobody");
    assert_eq!(world.partition(1, 2).isr.len(), 3, "its leader knows who keeps up");
    let batches = world.log.len();
    world.run(relieve).unwrap();
    assert_eq!(world.log.len(), batches);
}
