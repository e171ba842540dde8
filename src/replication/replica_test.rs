//! Role changes by image, and the follower's rules.

use std::sync::Arc;

use super::*;
use crate::metadata::{LeaderRecovery, PartitionImage};
use crate::types::{LeaderEpoch, PartitionEpoch, TopicIdPartition, Uuid, time};

const ENDS: LogEnds = LogEnds { start: 0, end: 10, durable: 10 };

fn image(leader: i32, leader_epoch: i32, partition_epoch: i32) -> PartitionImage {
    PartitionImage {
        replicas: vec![NodeId(1), NodeId(2)],
        isr: vec![NodeId(1), NodeId(2)],
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        leader: NodeId(leader),
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        adding: Vec::new(),
        removing: Vec::new(),
        recovery: LeaderRecovery::Recovered,
    }
}

fn replica() -> Replica {
    let settings = Settings { topic: Arc::new(TopicConfig::default()), timing: Timing::default() };
    let partition = TopicIdPartition { topic_id: Uuid([1; 16]), partition: 0 };
    Replica::new(NodeId(1), partition, 8, settings)
}

fn apply(replica: &mut Replica, leader: i32, epochs: (i32, i32)) -> (RoleChange, bool) {
    let context = Context { now: time::now(), active: &|_| None };
    let applied = replica.apply_image(&image(leader, epochs.0, epochs.1), ENDS, context);
    (applied.change, applied.lost_leadership)
}

fn leads(epoch: i32, new_epoch: bool) -> RoleChange {
    RoleChange::Leader { epoch: LeaderEpoch(epoch), new_epoch }
}

fn follows(epoch: i32, new_epoch: bool) -> RoleChange {
    RoleChange::Follower { leader: NodeId(2), epoch: LeaderEpoch(epoch), new_epoch }
}

#[test]
fn roles_follow_the_image_and_old_images_are_ignored() {
    let mut replica = replica();
    assert_eq!(apply(&mut replica, 2, (3, 5)), (follows(3, true), false));
    assert_eq!(apply(&mut replica, 2, (3, 5)), (RoleChange::Ignored, false));
    assert_eq!(apply(&mut replica, 1, (2, 4)), (RoleChange::Ignored, false));
    assert_eq!(apply(&mut replica, 2, (3, 6)), (follows(3, false), false));
    assert_eq!(apply(&mut replica, 1, (4, 7)), (leads(4, true), true));
    assert_eq!(apply(&mut replica, 1, (4, 8)), (leads(4, false), false));
    assert_eq!(apply(&mut replica, 1, (5, 9)), (leads(5, true), false), "nobody was in between");
    assert_eq!(apply(&mut replica, 1, (7, 12)), (leads(7, true), true), "somebody may have been");
    assert_eq!(apply(&mut replica, -1, (8, 13)), (RoleChange::NoLeader, true));
    assert_eq!(replica.current_leader(), None);
    assert_eq!(apply(&mut replica, 2, (9, 14)), (follows(9, true), false));
    assert_eq!(replica.current_leader(), Some((NodeId(2), LeaderEpoch(9))));
}

#[test]
fn the_high_watermark_survives_role_changes_and_never_starts_at_the_end() {
    let mut replica = replica();
    let _ = apply(&mut replica, 1, (0, 0));
    assert_eq!(replica.high_watermark(), 8);
    let _ = apply(&mut replica, 2, (1, 1));
    assert_eq!(replica.high_watermark(), 8);
    let follower = replica.follower_mut().expect("it follows");
    assert_eq!(follower.on_high_watermark(20, ENDS), Some(10), "not beyond the own log");
    assert_eq!(follower.on_high_watermark(9, ENDS), None, "a new leader may know less");
}

#[test]
fn a_follower_listens_to_its_current_slot_only() {
    let mut follower = Follower::new(Some(NodeId(2)), LeaderEpoch(3), 8);
    assert_eq!(follower.on_push(1, 10, ENDS), Err(FollowerRefusal::StaleSlot));
    follower.subscribe(1);
    follower.subscribe(2);
    assert_eq!(follower.on_push(1, 10, ENDS), Err(FollowerRefusal::StaleSlot));
    assert_eq!(follower.on_push(2, 10, ENDS), Ok(()));
    let gap = Err(FollowerRefusal::Gap { offset: 12, end_offset: 10 });
    assert_eq!(follower.on_push(2, 12, ENDS), gap);
    follower.unsubscribe(1);
    assert_eq!(follower.slot(), Some(2));
}

#[test]
fn divergence_truncates_to_the_common_prefix() {
    let diverging = |epoch: i32, end: Offset, own: Option<(i32, Offset)>| {
        let mut follower = Follower::new(Some(NodeId(2)), LeaderEpoch(9), 4);
        follower.subscribe(1);
        let own = own.map(|(epoch, end)| (LeaderEpoch(epoch), end));
        let reset = follower.on_diverging(1, LeaderEpoch(epoch), end, own, ENDS);
        assert_eq!(follower.slot(), None, "it has to subscribe again");
        reset
    };
    // Both have the epoch: the shorter of the two.
    assert_eq!(diverging(5, 7, Some((5, 9))), Ok(Reset::TruncateTo(7)));
    assert_eq!(diverging(5, 9, Some((5, 6))), Ok(Reset::TruncateTo(6)));
    // Only the leader has it: to where the own epoch before it ends, and ask again.
    assert_eq!(diverging(5, 9, Some((3, 5))), Ok(Reset::TruncateTo(5)));
    assert_eq!(diverging(5, 6, None), Ok(Reset::TruncateTo(6)));
    let below = FollowerRefusal::BelowHighWatermark { offset: 3, high_watermark: 4 };
    assert_eq!(diverging(5, 3, Some((5, 9))), Err(below));
}

#[test]
fn a_follower_out_of_the_leaders_range_starts_over_where_it_can() {
    let out_of_range = |start, end| {
        let mut follower = Follower::new(Some(NodeId(2)), LeaderEpoch(9), 4);
        follower.subscribe(1);
        (follower.on_out_of_range(1, start, end, ENDS), follower.high_watermark())
    };
    assert_eq!(out_of_range(0, 7), (Ok(Reset::TruncateTo(7)), 4));
    assert_eq!(out_of_range(20, 30), (Ok(Reset::RestartAt(20)), 20));
    assert_eq!(out_of_range(5, 30), (Ok(Reset::Nothing), 4));
}
