//! Leaders under given events: the exact effects, and the ISR and high watermark after each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;
use crate::controller::{AlterPartition, AlterPartitionRefusal};
use crate::metadata::{LeaderRecovery, PartitionImage};
use crate::protocol::ErrorCode;
use crate::types::{LeaderEpoch, PartitionEpoch, TopicIdPartition, Uuid, time};

const ME: NodeId = NodeId(1);
const NONE: Effects = Effects::NONE;
const PROPOSE: Effects = Effects { propose: true, high_watermark: None };

fn moved(high_watermark: Offset) -> Effects {
    Effects { high_watermark: Some(high_watermark), propose: false }
}

fn image(isr: &[i32], partition_epoch: i32) -> PartitionImage {
    PartitionImage {
        replicas: vec![NodeId(1), NodeId(2), NodeId(3)],
        isr: isr.iter().copied().map(NodeId).collect(),
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        leader: ME,
        leader_epoch: LeaderEpoch(5),
        partition_epoch: PartitionEpoch(partition_epoch),
        adding: Vec::new(),
        removing: Vec::new(),
        recovery: LeaderRecovery::Recovered,
    }
}

/// A leader of epoch 5 since offset 10, with high watermark 8; brokers 2 and 3 are active with epochs 20 and 30.
struct Case {
    leader: Leader,
    now: Instant,
    fenced: Vec<NodeId>,
}

impl Case {
    fn new(isr: &[i32]) -> Self {
        let settings =
            Settings { topic: Arc::new(TopicConfig::default()), timing: Timing::default() };
        let partition = TopicIdPartition { topic_id: Uuid([1; 16]), partition: 0 };
        let ends = LogEnds { start: 0, end: 10, durable: 10 };
        let now = time::now();
        let context = Context { now, active: &|_| None };
        let leader = Leader::new(ME, partition, &image(isr, 7), ends, 8, settings, context);
        Self { leader, now, fenced: Vec::new() }
    }

    fn event<R>(&mut self, event: impl FnOnce(&mut Leader, Context<'_>) -> R) -> R {
        let fenced = &self.fenced;
        let active =
            |node: NodeId| (!fenced.contains(&node)).then(|| BrokerEpoch(i64::from(node.0) * 10));
        event(&mut self.leader, Context { now: self.now, active: &active })
    }

    fn log(&mut self, end: Offset, durable: Offset) -> Effects {
        self.event(|leader, context| leader.on_log(LogEnds { start: 0, end, durable }, context))
    }

    fn subscribe_with(
        &mut self,
        node: i32,
        change: impl FnOnce(&mut FollowerFetch),
    ) -> Result<Effects, SubscribeRefusal> {
        let mut fetch = FollowerFetch {
            node: NodeId(node),
            session: Session { slot: 1, broker_epoch: BrokerEpoch(i64::from(node) * 10) },
            leader_epoch: LeaderEpoch(5),
            ends: LogEnds { start: 0, end: 10, durable: 10 },
            last_fetched_epoch: LeaderEpoch(4),
        };
        change(&mut fetch);
        // Epochs 3 and 4 end at 6 and 10, epoch 5 has begun there.
        let epoch_end = |epoch: LeaderEpoch| match epoch.0 {
            3 => Some((epoch, 6)),
            4 => Some((epoch, 10)),
            5 => Some((epoch, 10)),
            _ => None,
        };
        self.event(|leader, context| leader.on_subscribe(&fetch, epoch_end, context))
    }

    fn subscribe(&mut self, node: i32, end: Offset) -> Effects {
        self.subscribe_with(node, |fetch| {
            fetch.ends = LogEnds { start: 0, end, durable: end };
            if end < 10 {
                fetch.last_fetched_epoch = LeaderEpoch::NONE;
            }
        })
        .expect("a good subscription")
    }

    fn ack(&mut self, node: i32, end: Offset, durable: Offset) -> Effects {
        let ends = LogEnds { start: 0, end, durable };
        self.event(|leader, context| leader.on_ack(NodeId(node), 1, ends, context))
    }

    fn tick_after(&mut self, milliseconds: u64) -> Effects {
        self.now += Duration::from_millis(milliseconds);
        self.event(Leader::on_tick)
    }

    fn reply(&mut self, reply: Option<Result<PartitionImage, ErrorCode>>) -> Effects {
        let sent = self.leader.pending_alter().expect("there is a proposal").clone();
        self.reply_to(&sent, reply)
    }

    fn reply_to(
        &mut self,
        sent: &AlterPartition,
        reply: Option<Result<PartitionImage, ErrorCode>>,
    ) -> Effects {
        let refused = |code| AlterPartitionRefusal { code, current: None };
        let reply = reply.map(|result| result.map_err(refused));
        self.event(|leader, context| leader.on_alter_reply(sent, reply, context))
    }

    fn proposed(&self) -> Vec<(i32, i64)> {
        let sent = self.leader.pending_alter().expect("there is a proposal");
        assert_eq!(sent.leader_epoch, LeaderEpoch(5));
        sent.isr.iter().map(|(node, epoch)| (node.0, epoch.0)).collect()
    }

    fn isr(&self) -> Vec<i32> {
        self.leader.isr().committed().iter().map(|node| node.0).collect()
    }
}

/// All three in the ISR and caught up to 10.
fn in_step() -> Case {
    let mut case = Case::new(&[1, 2, 3]);
    assert_eq!(case.subscribe(2, 10), NONE);
    assert_eq!(case.subscribe(3, 10), moved(10));
    case
}

#[test]
fn the_high_watermark_is_the_least_of_what_the_isr_vouches_for() {
    let mut case = in_step();
    assert_eq!(case.log(15, 15), NONE);
    assert_eq!(case.ack(2, 15, 15), NONE);
    assert_eq!(case.ack(3, 12, 12), moved(12));
    assert_eq!(case.ack(3, 15, 15), moved(15));
    assert_eq!(case.ack(3, 15, 15), NONE, "it has moved already");
    assert!(!case.leader.needs_tick(), "an idle partition costs nothing");
}

#[test]
fn what_is_not_durable_does_not_count_at_either_side() {
    let mut case = in_step();
    assert_eq!(case.log(15, 10), NONE);
    assert_eq!(case.ack(2, 15, 15), NONE);
    assert_eq!(case.ack(3, 15, 13), NONE);
    assert_eq!(case.log(15, 15), moved(13));
    assert_eq!(case.ack(3, 15, 15), moved(15));
}

#[test]
fn latest_is_not_settled_until_the_high_watermark_reaches_the_start_of_the_epoch() {
    let mut case = Case::new(&[1, 2, 3]);
    assert!(!case.leader.is_high_watermark_settled());
    assert_eq!(case.subscribe(2, 10), NONE, "broker 3 is unknown yet");
    assert_eq!(case.subscribe(3, 9), moved(9));
    assert!(!case.leader.is_high_watermark_settled());
    assert_eq!(case.ack(3, 10, 10), moved(10));
    assert!(case.leader.is_high_watermark_settled());
}

#[test]
fn below_the_minimum_isr_the_high_watermark_stands_still() {
    let mut case = Case::new(&[1]);
    assert!(!case.leader.has_enough_replicas());
    assert_eq!(case.log(12, 12), NONE);
    let topic = TopicConfig { min_insync_replicas: Some(1), ..TopicConfig::default() };
    let settings = Settings { topic: Arc::new(topic), timing: Timing::default() };
    let effects = case.event(|leader, context| leader.set_settings(settings, context));
    assert_eq!(effects, moved(12));
    assert!(case.leader.has_enough_replicas());
}

#[test]
fn a_replica_that_has_everything_is_proposed_and_counts_from_then_on() {
    let mut case = Case::new(&[1, 2]);
    assert_eq!(case.subscribe(2, 10), moved(10));
    assert_eq!(case.subscribe(3, 4), NONE);
    assert_eq!(case.ack(3, 9, 9), NONE, "below the high watermark");
    assert_eq!(case.ack(3, 10, 10), PROPOSE);
    assert_eq!(case.proposed(), [(1, 10), (2, 20), (3, 30)]);
    assert_eq!(case.isr(), [1, 2]);

    // It may be in the controller's ISR already.
    assert_eq!(case.log(12, 12), NONE);
    assert_eq!(case.ack(2, 12, 12), NONE);
    assert_eq!(case.ack(3, 11, 11), moved(11));
    assert_eq!(case.reply(Some(Ok(image(&[1, 2, 3], 8)))), NONE);
    assert_eq!(case.isr(), [1, 2, 3]);
    assert_eq!(case.ack(3, 12, 12), moved(12));
}

#[test]
fn nobody_joins_without_the_past_of_this_leadership() {
    // The high watermark, 8, is behind the start of the epoch, 10.
    let mut case = Case::new(&[1, 2]);
    assert_eq!(case.subscribe(3, 9), NONE);
    assert_eq!(case.ack(3, 10, 9), NONE, "not durable");
    assert_eq!(case.ack(3, 10, 10), PROPOSE);
}

#[test]
fn a_fenced_or_renewed_broker_does_not_join() {
    let mut case = Case::new(&[1, 2]);
    case.fenced = vec![NodeId(3)];
    assert_eq!(case.subscribe(3, 10), NONE);
    case.fenced.clear();
    assert!(case.leader.needs_tick());
    assert_eq!(case.tick_after(100), PROPOSE);

    let mut case = Case::new(&[1, 2]);
    let subscribed = case.subscribe_with(3, |fetch| fetch.session.broker_epoch = BrokerEpoch(31));
    assert_eq!(subscribed, Ok(NONE), "the image does not know this registration yet");
}

#[test]
fn a_replica_about_to_join_holds_the_high_watermark() {
    let mut case = Case::new(&[1, 2]);
    let _ = case.subscribe(2, 10);
    let _ = case.subscribe(3, 10);
    assert_eq!(case.reply(Some(Err(ErrorCode::IneligibleReplica))), NONE);
    assert_eq!(case.isr(), [1, 2]);
    // Quiet after the refusal; but it keeps up, so it will be proposed again.
    let _ = case.log(12, 12);
    assert_eq!(case.ack(2, 12, 12), NONE);
    assert_eq!(case.ack(3, 11, 11), moved(11));
    case.now += Duration::from_millis(60);
    let effects = case.ack(3, 12, 12);
    assert_eq!(effects, Effects { propose: true, high_watermark: Some(12) });
}

#[test]
fn a_refused_joiner_that_falls_behind_holds_nothing() {
    let mut case = Case::new(&[1, 2]);
    let _ = case.subscribe(2, 10);
    let _ = case.subscribe(3, 10);
    assert_eq!(case.reply(Some(Err(ErrorCode::IneligibleReplica))), NONE);
    let _ = case.log(12, 12);
    assert_eq!(case.ack(2, 12, 12), NONE);
    assert_eq!(case.tick_after(600), moved(12));
}

#[test]
fn a_silent_member_is_proposed_for_removal_and_counts_until_it_is_out() {
    let mut case = in_step();
    let _ = case.log(15, 15);
    let _ = case.ack(2, 15, 15);
    assert_eq!(case.tick_after(1400), NONE);
    assert_eq!(case.tick_after(200), PROPOSE);
    assert_eq!(case.proposed(), [(1, 10), (2, 20)]);
    assert_eq!(case.tick_after(100), NONE, "one proposal at a time");
    assert_eq!(case.reply(Some(Ok(image(&[1, 2], 8)))), moved(15));
    assert_eq!(case.isr(), [1, 2]);
}

#[test]
fn while_the_high_watermark_stands_still_the_silent_are_not_taken_back() {
    let mut case = Case::new(&[1]);
    let _ = case.subscribe(3, 10);
    assert_eq!(case.reply(Some(Err(ErrorCode::IneligibleReplica))), NONE);
    let _ = case.log(15, 15);
    assert_eq!(case.tick_after(1600), NONE);
    assert_eq!(case.ack(3, 10, 10), PROPOSE, "it lives");
}

#[test]
fn silence_of_an_idle_partition_is_no_fault() {
    let mut case = in_step();
    assert_eq!(case.tick_after(3_600_000), NONE);
    let _ = case.log(15, 15);
    assert_eq!(case.tick_after(100), NONE, "the clocks have only begun");
    assert!(case.leader.needs_tick());
}

#[test]
fn a_member_with_a_long_pipeline_keeps_its_place_and_one_that_stands_still_does_not() {
    let mut case = in_step();
    let mut end = 10;
    for _ in 0..300 {
        // Broker 2 is always 50 records behind, broker 3 repeats itself.
        end += 10;
        let _ = case.log(end, end);
        let _ = case.ack(2, (end - 50).max(10), (end - 50).max(10));
        let _ = case.ack(3, 10, 10);
        let _ = case.tick_after(50);
    }
    assert_eq!(case.proposed(), [(1, 10), (2, 20)]);
}

#[test]
fn refusals_that_leave_doubt_keep_the_proposal() {
    for code in [
        ErrorCode::FencedLeaderEpoch,
        ErrorCode::InvalidUpdateVersion,
        ErrorCode::InvalidRequest,
        ErrorCode::UnknownTopicId,
        ErrorCode::NewLeaderElected,
    ] {
        let mut case = Case::new(&[1, 2]);
        let _ = case.subscribe(3, 10);
        assert_eq!(case.reply(Some(Err(code))), NONE);
        assert!(case.leader.isr().maximal_contains(NodeId(3)), "{code:?}");
    }
    for reply in [None, Some(Err(ErrorCode::NotController))] {
        let mut case = Case::new(&[1, 2]);
        let _ = case.subscribe(3, 10);
        let sent = case.leader.pending_alter().cloned();
        assert_eq!(case.reply(reply), PROPOSE, "to be sent again");
        assert_eq!(case.leader.pending_alter().cloned(), sent);
    }
}

#[test]
fn an_image_settles_a_proposal_and_late_replies_are_ignored() {
    let mut case = Case::new(&[1, 2]);
    let _ = case.subscribe(3, 10);
    let sent = case.leader.pending_alter().expect("proposed").clone();
    let effects = case.event(|leader, context| leader.update(&image(&[1], 9), context));
    assert_eq!(effects, PROPOSE, "broker 3 is still worth proposing, on the new state");
    assert_eq!(case.isr(), [1]);
    assert_eq!(case.reply_to(&sent, Some(Ok(image(&[1, 2, 3], 8)))), NONE);
    assert_eq!(case.isr(), [1]);
}

#[test]
fn subscriptions_are_checked_like_fetches() {
    type Change = fn(&mut FollowerFetch);
    let code = |code| Err(SubscribeRefusal::Code(code));
    let diverging = |epoch, end_offset| {
        Err(SubscribeRefusal::Diverging { epoch: LeaderEpoch(epoch), end_offset })
    };
    let cases: [(Change, Result<Effects, SubscribeRefusal>); 8] = [
        (|fetch| fetch.leader_epoch = LeaderEpoch(4), code(ErrorCode::FencedLeaderEpoch)),
        (|fetch| fetch.leader_epoch = LeaderEpoch(6), code(ErrorCode::UnknownLeaderEpoch)),
        (|fetch| fetch.node = NodeId(9), code(ErrorCode::UnknownLeaderEpoch)),
        (|fetch| fetch.session.broker_epoch = BrokerEpoch(19), code(ErrorCode::StaleBrokerEpoch)),
        (|fetch| fetch.last_fetched_epoch = LeaderEpoch(3), diverging(3, 6)),
        (|fetch| fetch.ends.end = 11, diverging(4, 10)),
        (|fetch| fetch.last_fetched_epoch = LeaderEpoch(9), code(ErrorCode::OffsetOutOfRange)),
        (|_| {}, Ok(NONE)),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        let mut case = Case::new(&[1, 2, 3]);
        assert_eq!(case.subscribe_with(2, change), expected, "case {at}");
        let is_known = case.leader.remotes()[0].end_offset().is_some();
        assert_eq!(is_known, expected.is_ok(), "case {at}: a refused fetch is no progress");
    }
}

#[test]
fn only_the_last_session_of_a_follower_reports_progress() {
    let mut case = Case::new(&[1, 2]);
    let _ = case.subscribe(2, 9);
    let second = case.subscribe_with(2, |fetch| {
        fetch.session.slot = 2;
        fetch.ends = LogEnds { start: 0, end: 10, durable: 9 };
    });
    assert_eq!(second, Ok(NONE));
    assert_eq!(case.ack(2, 10, 10), NONE, "of slot 1");
    let first = case.subscribe_with(2, |_| {});
    assert_eq!(first, Err(SubscribeRefusal::Superseded));

    let ends = LogEnds { start: 0, end: 10, durable: 10 };
    let ack = |case: &mut Case, ends| {
        case.event(|leader, context| leader.on_ack(NodeId(2), 2, ends, context))
    };
    assert_eq!(ack(&mut case, LogEnds { end: 99, durable: 99, start: 0 }), NONE, "absurd");
    assert_eq!(ack(&mut case, ends), moved(10));
    case.leader.on_unsubscribe(NodeId(2), 1);
    assert!(case.leader.remotes()[0].session.is_some(), "another session ended");
    case.leader.on_unsubscribe(NodeId(2), 2);
    assert_eq!(ack(&mut case, ends), NONE);
    assert_eq!(case.leader.remotes()[0].end_offset(), Some(10), "what it has, it still has");
}
