//! AlterPartition: which proposals of leaders are taken, and what refuses the others.

use super::super::test_support::*;
use super::super::{ControllerRequest, DecisionRequest};
use super::*;
use crate::metadata::test_support::{nodes, uuid};
use crate::types::{LeaderEpoch, PartitionEpoch, TopicIdPartition};

/// Proposed by broker 1, which leads with the epochs of the image.
fn proposal(world: &World, isr: &[i32]) -> AlterPartition {
    let current = world.partition(1, 0);
    AlterPartition {
        partition: TopicIdPartition { topic_id: uuid(1), partition: 0 },
        leader_epoch: current.leader_epoch,
        partition_epoch: current.partition_epoch,
        isr: isr.iter().map(|id| (NodeId(*id), BrokerEpoch::NONE)).collect(),
        recovered: true,
    }
}

fn request(world: &World, sequence: u64, proposal: AlterPartition) -> AlterPartitionRequest {
    AlterPartitionRequest {
        node_id: NodeId(1),
        broker_epoch: world.epoch(1),
        sequence,
        partitions: vec![proposal],
    }
}

fn send(world: &mut World, request: AlterPartitionRequest) -> Result<Outcome, Refusal> {
    match world.call(ControllerRequest::AlterPartition(request))? {
        ControllerReply::AlterPartition { mut results } => Ok(results.remove(0)),
        other => panic!("not the reply to a proposal: {other:?}"),
    }
}

fn world() -> World {
    let mut world = World::new(4);
    world.create("a", 1, &[&[1, 2, 3]]);
    world
}

#[test]
fn an_isr_shrinks_and_grows() {
    let mut world = world();
    let shrink = request(&world, 1, proposal(&world, &[1, 2]));
    let state = send(&mut world, shrink).unwrap().unwrap();
    assert_eq!((state.isr.clone(), state.leader_epoch), (nodes(&[1, 2]), LeaderEpoch(0)));
    assert_eq!(state.partition_epoch, PartitionEpoch(1));
    assert_eq!(*world.partition(1, 0), state);
    assert_eq!(world.last_records().len(), 2, "the change and the stored reply");
    let grow = request(&world, 2, proposal(&world, &[1, 2, 3]));
    assert_eq!(send(&mut world, grow).unwrap().unwrap().isr, nodes(&[1, 2, 3]));
}

#[test]
fn proposals_are_checked_in_kafkas_order() {
    let current = world().partition(1, 0).clone();
    type Edit = fn(&mut AlterPartitionRequest);
    let cases: [(ErrorCode, Edit); 13] = [
        (ErrorCode::UnknownTopicId, |r| r.partitions[0].partition.topic_id = uuid(9)),
        (ErrorCode::UnknownTopicOrPartition, |r| r.partitions[0].partition.partition = 1),
        (ErrorCode::NotController, |r| r.partitions[0].leader_epoch = LeaderEpoch(1)),
        (ErrorCode::NotController, |r| r.partitions[0].partition_epoch = PartitionEpoch(1)),
        (ErrorCode::FencedLeaderEpoch, |r| r.partitions[0].leader_epoch = LeaderEpoch(-1)),
        (ErrorCode::InvalidUpdateVersion, |r| {
            r.partitions[0].partition_epoch = PartitionEpoch(-3);
        }),
        (ErrorCode::InvalidRequest, |r| r.partitions[0].isr.clear()),
        (ErrorCode::InvalidRequest, |r| r.partitions[0].isr = r.partitions[0].isr.split_off(1)),
        (ErrorCode::InvalidRequest, |r| r.partitions[0].isr[1] = r.partitions[0].isr[0]),
        (ErrorCode::InvalidRequest, |r| r.partitions[0].isr[1].0 = NodeId(4)),
        (ErrorCode::InvalidRequest, |r| r.partitions[0].recovered = false),
        (ErrorCode::IneligibleReplica, |r| r.partitions[0].isr[1].1 = BrokerEpoch(1)),
        (ErrorCode::InvalidRequest, |r| {
            // Everything is wrong with its sender, but not its epochs.
            r.node_id = NodeId(2);
            r.broker_epoch = BrokerEpoch(r.broker_epoch.0 + 2);
        }),
    ];
    for (i, (code, edit)) in cases.into_iter().enumerate() {
        let mut world = world();
        let mut request = request(&world, 1, proposal(&world, &[1, 2]));
        edit(&mut request);
        let refused = send(&mut world, request).unwrap().unwrap_err();
        assert_eq!(refused.code, code, "case {i}");
        if !matches!(code, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition) {
            assert_eq!(refused.current.as_deref(), Some(&current), "case {i}");
        }
        assert_eq!(*world.partition(1, 0), current, "case {i}");
    }
}

#[test]
fn brokers_that_are_away_or_leaving_or_unknown_are_not_eligible() {
    let mut world = world();
    let shrink = request(&world, 1, proposal(&world, &[1, 2]));
    send(&mut world, shrink).unwrap().unwrap();
    let grow = proposal(&world, &[1, 2, 3]);
    world.fence(3);
    let away = request(&world, 2, grow.clone());
    assert_eq!(send(&mut world, away).unwrap().unwrap_err().code, ErrorCode::IneligibleReplica);
    world.unfence(3).unwrap();
    let broker_epoch = world.epoch(3);
    world
        .run(DecisionRequest::BeginControlledShutdown { node_id: NodeId(3), broker_epoch })
        .unwrap();
    let leaving = request(&world, 3, grow);
    assert_eq!(send(&mut world, leaving).unwrap().unwrap_err().code, ErrorCode::IneligibleReplica);
}

#[test]
fn a_late_copy_gets_the_reply_of_the_first_and_changes_nothing() {
    // The race of replication.md 2.9: the first copy is refused, then the reason goes away.
    let mut world = world();
    let shrink = request(&world, 1, proposal(&world, &[1, 2]));
    send(&mut world, shrink.clone()).unwrap().unwrap();
    world.fence(3);
    let grow = request(&world, 2, proposal(&world, &[1, 2, 3]));
    let first = send(&mut world, grow.clone()).unwrap();
    assert_eq!(first.as_ref().unwrap_err().code, ErrorCode::IneligibleReplica);
    world.unfence(3).unwrap();
    assert_eq!(send(&mut world, grow.clone()), Ok(first));
    assert_eq!(world.partition(1, 0).isr, nodes(&[1, 2]));
    let older = send(&mut world, shrink).unwrap_err();
    assert_eq!(older.code, ErrorCode::InvalidRequest);
    let again = AlterPartitionRequest { sequence: 3, ..grow };
    assert_eq!(send(&mut world, again).unwrap().unwrap().isr, nodes(&[1, 2, 3]));
}

#[test]
fn a_retry_under_another_number_of_what_was_done_is_fine() {
    let mut world = world();
    let shrink = request(&world, 1, proposal(&world, &[1, 2]));
    let done = send(&mut world, shrink.clone()).unwrap();
    let retry = AlterPartitionRequest { sequence: 2, ..shrink };
    assert_eq!(send(&mut world, retry), Ok(done));
    assert_eq!(world.partition(1, 0).partition_epoch, PartitionEpoch(1));
}

#[test]
fn an_older_life_has_no_say() {
    let mut world = world();
    let shrink = request(&world, 1, proposal(&world, &[1, 2]));
    let previous = world.epoch(1);
    world.register(1, 1, previous).unwrap();
    assert_eq!(send(&mut world, shrink).unwrap_err().code, ErrorCode::StaleBrokerEpoch);
}

#[test]
fn a_partition_appears_once_in_a_request() {
    let mut world = world();
    let mut twice = request(&world, 1, proposal(&world, &[1, 2]));
    twice.partitions.push(proposal(&world, &[1]));
    let reply = world.call(ControllerRequest::AlterPartition(twice)).unwrap();
    let ControllerReply::AlterPartition { results } = reply else { panic!("{reply:?}") };
    assert!(results[0].is_ok());
    assert_eq!(results[1].as_ref().unwrap_err().code, ErrorCode::InvalidRequest);
}
