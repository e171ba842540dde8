//! What reports of offline replicas do to leaders and ISRs.

use std::collections::BTreeSet;

use super::super::test_support::World;
use super::super::{AlterPartition, AlterPartitionRequest, ControllerReply, ControllerRequest};
use super::*;
use crate::metadata::test_support::{nodes, uuid};
use crate::protocol::ErrorCode;
use crate::types::BrokerEpoch;

fn id(partition: i32) -> TopicIdPartition {
    TopicIdPartition { topic_id: uuid(1), partition }
}

fn report(world: &mut World, node: i32, partitions: &[i32], lossy: bool) {
    let replicas: BTreeSet<_> = partitions.iter().map(|partition| id(*partition)).collect();
    let directories = partitions.iter().map(|_| ("/b".to_owned(), "EIO".to_owned())).collect();
    let request = ReportOfflineRequest {
        node_id: NodeId(node),
        broker_epoch: world.epoch(node),
        lossy: if lossy { replicas.clone() } else { BTreeSet::new() },
        offline: Arc::new(OfflineImage { directories, replicas }),
    };
    assert_eq!(world.call(ControllerRequest::ReportOffline(request)), Ok(ControllerReply::Done));
}

/// Leader, ISR and eligible leaders.
fn shown(world: &World, partition: i32) -> (i32, Vec<NodeId>, Vec<NodeId>) {
    let state = world.partition(1, partition);
    (state.leader.0, state.isr.clone(), state.elr.clone())
}

#[test]
fn only_what_is_offline_moves() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3], &[1, 2, 3], &[2, 1, 3]]);
    report(&mut world, 1, &[0, 2], false);
    assert_eq!(shown(&world, 0), (2, nodes(&[2, 3]), nodes(&[])));
    assert_eq!(shown(&world, 1), (1, nodes(&[1, 2, 3]), nodes(&[])));
    assert_eq!(shown(&world, 2), (2, nodes(&[2, 3]), nodes(&[])));
    let directories = &world.image.offline.get(&NodeId(1)).unwrap().directories;
    assert_eq!(directories.get("/b").map(String::as_str), Some("EIO"));

    let before = world.log.len();
    report(&mut world, 1, &[0, 2], false);
    assert_eq!(world.log.len(), before, "nothing new, no batch");
}

#[test]
fn the_last_one_stays_eligible_and_leads_when_it_is_back() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3]]);
    world.fence(3);
    world.fence(2);
    assert_eq!(shown(&world, 0), (1, nodes(&[1]), nodes(&[2])));
    report(&mut world, 1, &[0], false);
    // Broker 2 left when the ISR fell below its minimum, so it has everything as well.
    assert_eq!(shown(&world, 0), (-1, nodes(&[]), nodes(&[2, 1])));
    report(&mut world, 1, &[], false);
    assert_eq!(shown(&world, 0).0, 1);
    assert!(world.image.offline.is_empty());
}

#[test]
fn what_may_have_lost_records_is_not_eligible() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3]]);
    world.fence(3);
    world.fence(2);
    report(&mut world, 1, &[0], true);
    assert_eq!(shown(&world, 0), (-1, nodes(&[]), nodes(&[2])));
    report(&mut world, 1, &[], false);
    assert_eq!(shown(&world, 0).0, -1);
    world.unfence(2).unwrap();
    assert_eq!(shown(&world, 0).0, 2);
}

#[test]
fn nobody_puts_it_back_while_it_is_offline() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3]]);
    report(&mut world, 3, &[0], false);
    let mut sequence = 0;
    let mut expand = |world: &mut World| {
        sequence += 1;
        let state = world.partition(1, 0);
        let proposal = AlterPartition {
            partition: id(0),
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr: [1, 2, 3].map(|node| (NodeId(node), BrokerEpoch::NONE)).to_vec(),
            recovered: true,
        };
        let (node_id, broker_epoch) = (NodeId(1), world.epoch(1));
        let partitions = vec![proposal];
        let request = AlterPartitionRequest { node_id, broker_epoch, sequence, partitions };
        match world.call(ControllerRequest::AlterPartition(request)) {
            Ok(ControllerReply::AlterPartition { mut results }) => results.remove(0),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(expand(&mut world).unwrap_err().code, ErrorCode::IneligibleReplica);
    world.fence(1);
    world.fence(2);
    assert_eq!(world.partition(1, 0).leader, NodeId::NONE, "3 is alive, but not complete");
    world.unfence(1).unwrap();
    report(&mut world, 3, &[], false);
    assert!(expand(&mut world).is_err(), "2 is still fenced");
}

#[test]
fn a_new_life_says_it_anew_and_strangers_are_forgotten() {
    let mut world = World::new(3);
    world.create("a", 1, &[&[1, 2, 3], &[2, 3]]);
    report(&mut world, 1, &[0, 1, 7], false);
    assert_eq!(world.image.offline.get(&NodeId(1)).unwrap().replicas, BTreeSet::from([id(0)]));
    let epoch = world.epoch(1);
    world.register(1, 1, epoch).unwrap();
    assert!(world.image.offline.is_empty());
    let stale = ReportOfflineRequest {
        node_id: NodeId(1),
        broker_epoch: epoch,
        offline: Arc::default(),
        lossy: BTreeSet::new(),
    };
    assert_eq!(world.refused(ControllerRequest::ReportOffline(stale)), ErrorCode::StaleBrokerEpoch);
}
