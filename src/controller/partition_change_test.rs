//! The one function of every partition change, case by case.

use super::*;
use crate::metadata::test_support::{nodes, partition};
use crate::types::{LeaderEpoch, PartitionEpoch};

/// `leader isr elr last_known`, of replicas 1, 2, 3.
fn state(leader: i32, isr: &[i32], elr: &[i32], last_known: &[i32]) -> PartitionImage {
    PartitionImage {
        leader: NodeId(leader),
        isr: nodes(isr),
        elr: nodes(elr),
        last_known_elr: nodes(last_known),
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(7),
        ..partition(&[1, 2, 3])
    }
}

struct Case<'a> {
    old: PartitionImage,
    wanted_isr: &'a [i32],
    acceptable: &'a [i32],
    unclean: Option<i32>,
    min_isr: u32,
    /// Without its epochs; `None`: no change.
    expected: Option<PartitionImage>,
    leader_epoch_grows: bool,
}

fn check(name: &str, case: Case<'_>) {
    let acceptable = nodes(case.acceptable);
    let rules = Rules {
        acceptable: &|node| acceptable.contains(&node),
        unclean_shutdown: case.unclean.map(NodeId),
        prefers_first: false,
        min_isr: MinIsr(Some(case.min_isr)),
    };
    let wanted = PartitionImage { isr: nodes(case.wanted_isr), ..case.old.clone() };
    let found = partition_change(&case.old, wanted, &rules);
    let expected = case.expected.map(|state| PartitionImage {
        leader_epoch: LeaderEpoch(5 + i32::from(case.leader_epoch_grows)),
        partition_epoch: PartitionEpoch(8),
        ..state
    });
    assert_eq!(found, expected, "{name}");
    if let Some(state) = found {
        assert_eq!(state.check_follows(&case.old), Ok(()), "{name}");
    }
}

#[test]
fn a_follower_leaves_the_isr() {
    check(
        "the minimum holds: only the partition epoch grows",
        Case {
            old: state(1, &[1, 2, 3], &[], &[]),
            wanted_isr: &[1, 2],
            acceptable: &[1, 2],
            unclean: None,
            min_isr: 2,
            expected: Some(state(1, &[1, 2], &[], &[])),
            leader_epoch_grows: false,
        },
    );
    check(
        "below the minimum it stays an eligible leader",
        Case {
            old: state(1, &[1, 2], &[], &[]),
            wanted_isr: &[1],
            acceptable: &[1],
            unclean: None,
            min_isr: 2,
            expected: Some(state(1, &[1], &[2], &[])),
            leader_epoch_grows: false,
        },
    );
    check(
        "unless it may have lost something",
        Case {
            old: state(1, &[1, 2], &[], &[]),
            wanted_isr: &[1],
            acceptable: &[1],
            unclean: Some(2),
            min_isr: 2,
            expected: Some(state(1, &[1], &[], &[])),
            leader_epoch_grows: false,
        },
    );
}

#[test]
fn the_leader_leaves() {
    check(
        "the first of the replicas that is in sync leads",
        Case {
            old: state(1, &[3, 1, 2], &[], &[]),
            wanted_isr: &[3, 2],
            acceptable: &[2, 3],
            unclean: None,
            min_isr: 2,
            expected: Some(state(2, &[3, 2], &[], &[])),
            leader_epoch_grows: true,
        },
    );
    check(
        "nobody is left: all who were complete are eligible, and the last leader is remembered",
        Case {
            old: state(1, &[1], &[2], &[]),
            wanted_isr: &[],
            acceptable: &[3],
            unclean: None,
            min_isr: 2,
            expected: Some(state(-1, &[], &[2, 1], &[1])),
            leader_epoch_grows: true,
        },
    );
    check(
        "an eligible replica that lives takes over at once",
        Case {
            old: state(1, &[1], &[2], &[]),
            wanted_isr: &[],
            acceptable: &[2, 3],
            unclean: None,
            min_isr: 2,
            expected: Some(state(2, &[2], &[1], &[])),
            leader_epoch_grows: true,
        },
    );
    check(
        "a replica that is not complete never does",
        Case {
            old: state(1, &[1], &[], &[]),
            wanted_isr: &[],
            acceptable: &[2, 3],
            unclean: Some(1),
            min_isr: 2,
            expected: Some(state(-1, &[], &[], &[1])),
            leader_epoch_grows: true,
        },
    );
}

#[test]
fn a_broker_comes_back_to_a_leaderless_partition() {
    check(
        "eligible: it leads, the others stay eligible while the high watermark is frozen",
        Case {
            old: state(-1, &[], &[2, 1], &[1]),
            wanted_isr: &[],
            acceptable: &[2],
            unclean: None,
            min_isr: 2,
            expected: Some(state(2, &[2], &[1], &[])),
            leader_epoch_grows: true,
        },
    );
    check(
        "it commits alone, so nobody else is eligible any more",
        Case {
            old: state(-1, &[], &[2, 1], &[1]),
            wanted_isr: &[],
            acceptable: &[2],
            unclean: None,
            min_isr: 1,
            expected: Some(state(2, &[2], &[], &[])),
            leader_epoch_grows: true,
        },
    );
    check(
        "not eligible: nothing happens",
        Case {
            old: state(-1, &[], &[2, 1], &[1]),
            wanted_isr: &[],
            acceptable: &[3],
            unclean: None,
            min_isr: 2,
            expected: None,
            leader_epoch_grows: false,
        },
    );
    let recovering =
        PartitionImage { recovery: LeaderRecovery::Recovering, ..state(3, &[3], &[], &[]) };
    check(
        "nobody is eligible, and it led last: it leads, uncleanly",
        Case {
            old: state(-1, &[], &[], &[3]),
            wanted_isr: &[],
            acceptable: &[2, 3],
            unclean: None,
            min_isr: 2,
            expected: Some(recovering),
            leader_epoch_grows: true,
        },
    );
    check(
        "somebody who is away is eligible: the last leader waits for it",
        Case {
            old: state(-1, &[], &[1], &[3]),
            wanted_isr: &[],
            acceptable: &[2, 3],
            unclean: None,
            min_isr: 2,
            expected: None,
            leader_epoch_grows: false,
        },
    );
}

#[test]
fn the_leader_stays_where_it_can() {
    let expected = state(2, &[2, 1], &[], &[]);
    check(
        "an ISR that grows moves no leader, and nobody else is eligible any more",
        Case {
            old: state(2, &[2], &[1], &[]),
            wanted_isr: &[2, 1],
            acceptable: &[1, 2, 3],
            unclean: None,
            min_isr: 2,
            expected: Some(expected),
            leader_epoch_grows: false,
        },
    );
}

#[test]
fn a_reassignment_completes_when_enough_of_the_wanted_are_in_sync() {
    let rules = Rules {
        acceptable: &|_| true,
        unclean_shutdown: None,
        prefers_first: false,
        min_isr: MinIsr(Some(2)),
    };
    let old = PartitionImage {
        replicas: nodes(&[3, 4, 1]),
        adding: nodes(&[3, 4]),
        removing: nodes(&[1]),
        isr: nodes(&[1, 3]),
        ..state(1, &[], &[], &[])
    };
    let grown = |isr: &[i32]| PartitionImage { isr: nodes(isr), ..old.clone() };
    let early = partition_change(&old, grown(&[1, 3]), &rules);
    assert_eq!(early, None);
    let done = partition_change(&old, grown(&[1, 3, 4]), &rules).unwrap();
    assert_eq!((done.replicas, done.isr), (nodes(&[3, 4]), nodes(&[3, 4])));
    assert_eq!((done.leader, done.leader_epoch), (NodeId(3), LeaderEpoch(6)));
    assert!(done.adding.is_empty() && done.removing.is_empty());
}
