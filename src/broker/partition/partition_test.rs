//! Partitions of two or three brokers on real logs; the test carries the messages between them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;

use super::*;
use crate::broker::outbox::Outbox;
use crate::broker::purgatory::{FetchWaiter, ProduceResult, ProduceWaiter};
use crate::controller::AlterPartitionRefusal;
use crate::metadata::LeaderRecovery;
use crate::metadata::config::{CleanupPolicy, Durability};
use crate::protocol::ErrorCode;
use crate::protocol::native::{OffsetQuery, PushEvent, Subscription};
use crate::record::{BatchBuilder, Compression};
use crate::storage::{CompactionConfig, LogDirs, StorageConfig};
use crate::types::{BrokerEpoch, PartitionEpoch, Uuid};

/// Generous: for what another thread does.
const SOON: Duration = Duration::from_secs(20);

/// Remembers what partitions ask for. Every broker is active, with epoch 10 times its id.
#[derive(Default)]
struct Asked {
    isr_changes: Mutex<usize>,
    ticks: Mutex<usize>,
}

impl PartitionEvents for Asked {
    fn active_broker_epoch(&self, node: NodeId) -> Option<BrokerEpoch> {
        Some(epoch_of(node))
    }
    fn isr_change_wanted(&self, _: TopicIdPartition) {
        *self.isr_changes.lock() += 1;
    }
    fn tick_wanted(&self, _: TopicIdPartition) {
        *self.ticks.lock() += 1;
    }
}

fn epoch_of(node: NodeId) -> BrokerEpoch {
    BrokerEpoch(i64::from(node.0) * 10)
}

struct Broker {
    id: NodeId,
    partition: Arc<Partition>,
    asked: Arc<Asked>,
    acks: Arc<Outbox>,
    slot: Mutex<u32>,
    _dirs: LogDirs,
    _temp: tempfile::TempDir,
}

impl Broker {
    fn new(id: i32, durability: Durability) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let config = StorageConfig {
            dirs: vec![temp.path().to_path_buf()],
            durability,
            retention_check_interval: std::time::Duration::from_secs(300),
            recovery_threads: 1,
            compaction: CompactionConfig::default(),
            min_free: Some(0),
            progress: std::sync::Arc::default(),
            on_trouble: Arc::new(|| panic!("trouble with a log directory")),
        };
        let registered: Arc<OnceLock<Arc<Partition>>> = Arc::default();
        let on_durable = {
            let registered = registered.clone();
            move |_: &PartitionLog| registered.get().into_iter().for_each(|it| it.on_durable())
        };
        let (dirs, _) = LogDirs::open(config, Arc::new(on_durable)).unwrap();
        let name = TopicPartition { topic: "orders".into(), partition: 0 };
        let log = dirs.create(&name, Uuid([5; 16]), Arc::default()).unwrap();
        let asked = Arc::new(Asked::default());
        let partition = Partition::new(NodeId(id), log, Timing::default(), asked.clone());
        assert!(registered.set(partition.clone()).is_ok());
        let (acks, slot) = (Arc::default(), Mutex::default());
        Self { id: NodeId(id), partition, asked, acks, slot, _dirs: dirs, _temp: temp }
    }

    fn produce(&self, values: &[&str], acks: i16) -> ProduceOutcome {
        self.partition.produce(batch(values), acks, time::now() + SOON)
    }

    fn wait(&self, values: &[&str]) -> ProduceWaiter {
        match self.produce(values, -1) {
            ProduceOutcome::Wait(waiter) => waiter,
            ProduceOutcome::Done(result) => panic!("done already: {result:?}"),
        }
    }

    fn refusal(&self, values: &[&str], acks: i16) -> ErrorCode {
        match self.produce(values, acks) {
            ProduceOutcome::Done(Err(error)) => error.code,
            other => panic!("{other:?}"),
        }
    }

    /// What a client reads from an offset on.
    fn fetch(&self, offset: Offset) -> Result<FetchedSlice, ErrorCode> {
        let none = LeaderEpoch::NONE;
        let fetched = self.partition.fetch_read(offset, none, none, 1 << 20, true);
        fetched.map_err(|error| error.code)
    }

    /// Everything in the log, committed or not.
    fn log_bytes(&self) -> Vec<u8> {
        let (log, mut bytes) = (self.partition.log(), Vec::new());
        let slice = log.read(log.start_offset(), log.end_offset(), 1 << 20, true).unwrap();
        slice.read_into(&mut bytes).unwrap();
        bytes
    }

    fn next_subscription(&self) -> Subscription {
        let slot = {
            let mut slot = self.slot.lock();
            *slot += 1;
            *slot
        };
        self.partition.follower_subscription(slot, &self.acks).expect("somebody to follow").1
    }
}

fn batch(values: &[&str]) -> BytesMut {
    batch_of(values, None)
}

fn batch_of(values: &[&str], sequence: Option<i32>) -> BytesMut {
    let mut builder = BatchBuilder::new(Compression::None);
    if let Some(sequence) = sequence {
        builder.set_producer(77, 0, sequence);
    }
    for value in values {
        builder.push(1_000, None, Some(value.as_bytes()), &[]);
    }
    BytesMut::from(&builder.build()[..])
}

/// The stream from a leader to a follower.
struct Stream<'a> {
    leader: &'a Broker,
    follower: &'a Broker,
    slot: u32,
    outbox: Arc<Outbox>,
}

fn subscribe<'a>(leader: &'a Broker, follower: &'a Broker) -> Result<Stream<'a>, (u32, PushEvent)> {
    let (subscription, outbox) = (follower.next_subscription(), Arc::default());
    let slot = subscription.slot;
    leader
        .partition
        .subscribe(follower.id, epoch_of(follower.id), &subscription, &outbox)
        .map_err(|event| (slot, event))?;
    Ok(Stream { leader, follower, slot, outbox })
}

fn stream<'a>(leader: &'a Broker, follower: &'a Broker) -> Stream<'a> {
    subscribe(leader, follower).unwrap_or_else(|(_, event)| panic!("{event:?}"))
}

impl Stream<'_> {
    /// One push, if there is something to push; its acknowledgement reaches the leader if it comes at once.
    fn push(&self) -> bool {
        let read = self.leader.partition.read_for_follower(self.follower.id, self.slot, 1 << 20);
        let Some(read) = read.unwrap() else { return false };
        let mut batches = Vec::new();
        read.slice.read_into(&mut batches).unwrap();
        let (high_watermark, start) = (read.high_watermark, read.log_start_offset);
        let acked = self
            .follower
            .partition
            .append_from_leader(self.slot, read.fetch_offset, &batches, high_watermark, start)
            .unwrap();
        if let Some(acked) = acked {
            self.leader.partition.on_ack(self.follower.id, &acked);
        }
        true
    }

    fn catch_up(&self) {
        while self.push() {}
    }
}

fn image(isr: &[i32], leader: i32, leader_epoch: i32, partition_epoch: i32) -> PartitionImage {
    PartitionImage {
        replicas: vec![NodeId(1), NodeId(2), NodeId(3)],
        isr: isr.iter().copied().map(NodeId).collect(),
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

fn brokers<const N: usize>(durability: Durability, image: &PartitionImage) -> [Broker; N] {
    let mut id = 0;
    [(); N].map(|()| {
        id += 1;
        let broker = Broker::new(id, durability);
        broker.partition.apply_image(image);
        broker
    })
}

async fn answer(waiter: ProduceWaiter) -> ProduceResult {
    tokio::time::timeout(SOON, waiter).await.expect("an answer")
}

/// Whether a waiter has its answer already.
async fn is_done(waiter: &mut ProduceWaiter) -> bool {
    tokio::select! {
        biased;
        _ = waiter => true,
        () = std::future::ready(()) => false,
    }
}

#[tokio::test]
async fn acks_of_all_completes_and_consumers_read_once_every_member_has_it() {
    let [one, two, three] = brokers(Durability::PageCache, &image(&[1, 2, 3], 1, 0, 0));
    let (to_two, to_three) = (stream(&one, &two), stream(&one, &three));
    let mut waiter = one.wait(&["a", "b"]);
    to_two.catch_up();
    assert!(!is_done(&mut waiter).await);
    assert!(one.fetch(0).unwrap().slice.is_empty(), "not committed");
    to_three.catch_up();
    assert_eq!(answer(waiter).await.unwrap().base_offset, 0);
    assert_eq!(one.fetch(0).unwrap().slice.next_offset, 2);
    assert_eq!(one.fetch(3).unwrap_err(), ErrorCode::OffsetOutOfRange);

    // The followers learn the high watermark too, and have the same bytes.
    to_two.catch_up();
    to_three.catch_up();
    for follower in [&two, &three] {
        assert_eq!(follower.partition.high_watermark(), 2);
        assert_eq!(follower.log_bytes(), one.log_bytes());
        assert_eq!(follower.fetch(0).unwrap_err(), ErrorCode::NotLeaderOrFollower);
    }
}

#[tokio::test]
async fn below_the_minimum_isr_only_weaker_acks_are_taken() {
    let [one] = brokers(Durability::PageCache, &image(&[1], 1, 0, 0));
    assert_eq!(one.refusal(&["a"], -1), ErrorCode::NotEnoughReplicas);
    assert_eq!(one.partition.log().end_offset(), 0, "nothing was appended");
    assert!(matches!(one.produce(&["a"], 1), ProduceOutcome::Done(Ok(_))));
    assert!(matches!(one.produce(&["b"], 0), ProduceOutcome::Done(Ok(_))));
    assert_eq!(one.partition.high_watermark(), 0, "but it is not committed");
}

#[tokio::test]
async fn a_duplicate_counts_when_its_first_copy_does() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    let to_two = stream(&one, &two);
    let produce = |sequence: i32| {
        let batch = batch_of(&["x"], Some(sequence));
        match one.partition.produce(batch, -1, time::now() + SOON) {
            ProduceOutcome::Wait(waiter) => waiter,
            ProduceOutcome::Done(result) => panic!("done already: {result:?}"),
        }
    };
    let (first, second) = (produce(0), produce(1));
    let mut again = produce(0);
    assert!(!is_done(&mut again).await, "its first copy is not committed");
    assert_eq!(one.partition.log().end_offset(), 2);
    to_two.catch_up();
    for (waiter, base_offset) in [(first, 0), (second, 1), (again, 0)] {
        assert_eq!(answer(waiter).await.unwrap().base_offset, base_offset);
    }
    let last = one.partition.produce(batch_of(&["x"], Some(1)), -1, time::now() + SOON);
    assert!(matches!(last, ProduceOutcome::Done(Ok(produced)) if produced.base_offset == 1));
}

#[tokio::test]
async fn whoever_waits_hears_of_a_lost_leadership_and_of_the_deadline() {
    let [one] = brokers(Durability::PageCache, &image(&[1, 2, 3], 1, 0, 0));
    let late = one.wait(&["a"]);
    assert_eq!(*one.asked.ticks.lock(), 1);
    assert!(one.partition.on_tick(time::now()));
    assert!(one.partition.on_tick(time::now() + SOON), "followers are still behind");
    assert_eq!(answer(late).await.unwrap_err().code, ErrorCode::RequestTimedOut);

    let lost = one.wait(&["b"]);
    one.partition.apply_image(&image(&[2, 3], 2, 1, 1));
    let error = answer(lost).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::NotLeaderOrFollower);
    assert_eq!(error.leader, Some((NodeId(2), LeaderEpoch(1))));
    assert_eq!(one.refusal(&["c"], 1), ErrorCode::NotLeaderOrFollower);
    assert!(!one.partition.on_tick(time::now()), "a follower needs no ticks");
}

#[tokio::test]
async fn a_deposed_leader_gives_up_what_was_not_committed() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    drop(one.wait(&["committed"]));
    stream(&one, &two).catch_up();
    // One goes on alone for a while, and so does its successor.
    drop(one.wait(&["only", "here"]));
    two.partition.apply_image(&image(&[2], 2, 1, 1));
    assert!(matches!(two.produce(&["new"], 1), ProduceOutcome::Done(Ok(_))));
    one.partition.apply_image(&image(&[2], 2, 1, 1));
    assert_ne!(one.log_bytes(), two.log_bytes());

    let (slot, event) = subscribe(&two, &one).map(|_| ()).unwrap_err();
    let PushEvent::Diverging { epoch, end_offset } = event else { panic!("{event:?}") };
    assert_eq!((epoch, end_offset), (LeaderEpoch(0), 1));
    one.partition.on_diverging(slot, epoch, end_offset).unwrap();
    assert_eq!(one.partition.log().end_offset(), 1);
    stream(&two, &one).catch_up();
    assert_eq!(one.log_bytes(), two.log_bytes());
}

#[tokio::test]
async fn a_leader_that_wrote_nothing_follows_its_successor() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    drop(one.wait(&["a"]));
    stream(&one, &two).catch_up();
    // Epoch 1 was one's, and left no record.
    one.partition.apply_image(&image(&[1, 2], 1, 1, 1));
    two.partition.apply_image(&image(&[1, 2], 2, 2, 2));
    one.partition.apply_image(&image(&[1, 2], 2, 2, 2));
    for _ in 0..3 {
        match subscribe(&two, &one) {
            Ok(stream) => {
                stream.catch_up();
                assert_eq!(one.log_bytes(), two.log_bytes());
                return;
            }
            Err((slot, PushEvent::Diverging { epoch, end_offset })) => {
                one.partition.on_diverging(slot, epoch, end_offset).unwrap();
            }
            Err((_, event)) => panic!("{event:?}"),
        }
    }
    panic!("it diverges for ever");
}

#[tokio::test]
async fn in_fsync_mode_records_count_when_they_are_on_disk() {
    let [one, two] = brokers(Durability::Fsync, &image(&[1, 2], 1, 0, 0));
    let to_two = stream(&one, &two);
    let mine = match one.produce(&["a"], 1) {
        ProduceOutcome::Wait(waiter) => answer(waiter).await,
        ProduceOutcome::Done(result) => result,
    };
    assert_eq!(mine.unwrap().base_offset, 0);
    assert!(one.partition.log().durable_end_offset() >= 1);

    let all = one.wait(&["b"]);
    to_two.catch_up();
    // Its flusher says when there is something to acknowledge.
    while two.partition.log().durable_end_offset() < 2 || one.partition.high_watermark() < 2 {
        let marked = tokio::time::timeout(SOON, two.acks.take_dirty()).await.expect("a mark");
        assert_eq!(marked, [to_two.slot]);
        let acked = two.partition.take_ack(to_two.slot).unwrap();
        one.partition.on_ack(two.id, &acked);
        if acked.durable_offset == 2 {
            break;
        }
    }
    assert_eq!(answer(all).await.unwrap().base_offset, 1);
}

#[tokio::test]
async fn appends_and_high_watermarks_mark_the_stream_once() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    let to_two = stream(&one, &two);
    let slots = to_two.outbox.take_dirty().await;
    assert_eq!(slots, [to_two.slot], "a new subscription has something to hear");
    to_two.catch_up();
    for _ in 0..3 {
        drop(one.produce(&["a"], 1));
    }
    assert_eq!(to_two.outbox.take_dirty().await, [to_two.slot]);
    to_two.push();
    assert_eq!(one.partition.high_watermark(), 3);
    assert_eq!(two.partition.high_watermark(), 0);
    assert_eq!(to_two.outbox.take_dirty().await, [to_two.slot], "the news, alone");
    assert!(to_two.push());
    assert!(!to_two.push());
    assert_eq!(two.partition.high_watermark(), 3);
}

#[tokio::test]
async fn what_is_under_way_when_a_subscription_ends_is_dropped() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    let first = stream(&one, &two);
    drop(one.produce(&["a"], 1));
    let second = stream(&one, &two);
    assert!(!first.push(), "the leader serves the later slot only");
    let late = two.partition.append_from_leader(first.slot, 0, &one.log_bytes(), 0, 0);
    assert_eq!(late.unwrap_err().next_step(), NextStep::Ignore);
    assert!(two.partition.take_ack(first.slot).is_none());
    let retry = two.partition.on_refused(second.slot, ErrorCode::UnknownLeaderEpoch, -1, -1);
    assert!(matches!(retry, Ok(NextStep::SubscribeAfter(_))));
    second.follower.partition.end_subscription(second.slot);
    stream(&one, &two).catch_up();
    assert_eq!(one.partition.high_watermark(), 1);

    // Foreign bytes are refused, whatever the slot.
    let last = stream(&one, &two);
    let garbage = two.partition.append_from_leader(last.slot, 1, &[0; 80], 0, 0);
    assert!(matches!(garbage, Err(FollowerError::Malformed(_))));
}

#[tokio::test]
async fn an_isr_grows_through_the_controller() {
    let [one, two, three] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    stream(&one, &two).catch_up();
    drop(one.produce(&["a"], 1));
    let to_three = stream(&one, &three);
    assert_eq!(*one.asked.isr_changes.lock(), 0, "it is behind");
    to_three.catch_up();
    assert_eq!(*one.asked.isr_changes.lock(), 1);
    let sent = one.partition.pending_alter().unwrap();
    let members: BTreeMap<_, _> = sent.isr.iter().copied().collect();
    assert_eq!(members, [1, 2, 3].map(|id| (NodeId(id), epoch_of(NodeId(id)))).into());

    one.partition.on_alter_reply(&sent, None);
    assert_eq!(*one.asked.isr_changes.lock(), 2, "lost, so it is sent again");
    one.partition.on_alter_reply(&sent, Some(Ok(image(&[1, 2, 3], 1, 0, 1))));
    assert_eq!(one.partition.status().leading.unwrap().isr, [1, 2, 3].map(NodeId));
    let refused = AlterPartitionRefusal { code: ErrorCode::IneligibleReplica, current: None };
    one.partition.on_alter_reply(&sent, Some(Err(refused)));
    assert_eq!(one.partition.status().leading.unwrap().isr.len(), 3, "a late answer");
    assert!(one.partition.pending_alter().is_none());
}

#[tokio::test]
async fn fetches_are_checked_against_the_leader_epoch() {
    let [one] = brokers(Durability::PageCache, &image(&[1, 2, 3], 1, 4, 0));
    drop(one.wait(&["a"]));
    let fetch = |offset, leader_epoch, last_fetched_epoch| {
        let (leader_epoch, last) = (LeaderEpoch(leader_epoch), LeaderEpoch(last_fetched_epoch));
        one.partition.fetch_read(offset, leader_epoch, last, 1 << 20, true)
    };
    assert_eq!(fetch(0, 3, -1).unwrap_err().code, ErrorCode::FencedLeaderEpoch);
    assert_eq!(fetch(0, 5, -1).unwrap_err().code, ErrorCode::UnknownLeaderEpoch);
    assert_eq!(fetch(2, 4, -1).unwrap_err().code, ErrorCode::OffsetOutOfRange);
    let above = fetch(1, 4, 4).unwrap();
    assert!(above.slice.is_empty() && above.diverging.is_none(), "above the high watermark");
    assert_eq!(fetch(1, 4, 3).unwrap().diverging.map(|(_, end)| end), Some(0));
}

#[tokio::test]
async fn latest_has_no_answer_until_the_new_leader_knows_it() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    drop(one.wait(&["a"]));
    stream(&one, &two).push();
    assert_eq!((one.partition.high_watermark(), two.partition.high_watermark()), (1, 0));
    for broker in [&one, &two] {
        broker.partition.apply_image(&image(&[1, 2], 2, 1, 1));
    }
    let list = |query| two.partition.list_offset(query, LeaderEpoch::NONE);
    for query in [OffsetQuery::Latest, OffsetQuery::MaxTimestamp, OffsetQuery::Timestamp(9)] {
        assert_eq!(list(query).unwrap_err().code, ErrorCode::OffsetNotAvailable, "{query:?}");
    }
    assert_eq!(list(OffsetQuery::Earliest).unwrap().offset, 0);
    stream(&two, &one).catch_up();
    let latest = list(OffsetQuery::Latest).unwrap();
    assert_eq!((latest.offset, latest.leader_epoch), (1, LeaderEpoch(1)));
    let found = list(OffsetQuery::Timestamp(9)).unwrap();
    assert_eq!((found.offset, found.timestamp, found.leader_epoch), (0, 1_000, LeaderEpoch(0)));
    assert_eq!(list(OffsetQuery::Timestamp(2_000)).unwrap().offset, -1);
}

#[tokio::test]
async fn a_long_poll_wakes_when_there_is_something_to_read() {
    let [one, two] = brokers(Durability::PageCache, &image(&[1, 2], 1, 0, 0));
    let to_two = stream(&one, &two);
    let waiter = Arc::new(FetchWaiter::default());
    assert!(one.partition.register_fetch_waiter(&waiter, 0));
    drop(one.produce(&["a"], 1));
    to_two.catch_up();
    tokio::time::timeout(SOON, waiter.woken()).await.expect("a wake-up");
    assert!(!one.partition.register_fetch_waiter(&waiter, 0), "it has moved since");
    assert!(one.partition.register_fetch_waiter(&waiter, 1));
    one.partition.apply_image(&image(&[2], 2, 1, 1));
    tokio::time::timeout(SOON, waiter.woken()).await.expect("a wake-up");
    assert!(!one.partition.register_fetch_waiter(&waiter, 1), "there is nothing to wait for here");
}

#[tokio::test]
async fn records_are_deleted_once_every_live_replica_has_the_log_start() {
    let [one, two, three] = brokers(Durability::PageCache, &image(&[1, 2, 3], 1, 0, 0));
    let (to_two, to_three) = (stream(&one, &two), stream(&one, &three));
    drop(one.wait(&["a", "b", "c"]));
    to_two.catch_up();
    to_three.catch_up();
    let trim = |offset| one.partition.trim(offset, time::now() + SOON);
    for outside in [-2, 4] {
        assert_eq!(trim(Some(outside)).unwrap_err().code, ErrorCode::OffsetOutOfRange);
    }
    assert_eq!(
        two.partition.trim(Some(0), time::now()).unwrap_err().code,
        ErrorCode::NotLeaderOrFollower
    );

    let mut low_watermark = trim(Some(2)).unwrap();
    assert_eq!(one.partition.log().start_offset(), 2);
    assert_eq!(one.fetch(1).unwrap_err(), ErrorCode::OffsetOutOfRange);
    to_two.catch_up();
    assert_eq!(two.partition.log().start_offset(), 2);
    let ack = |stream: &Stream<'_>| {
        let deadline = time::now() + SOON;
        let follower = &stream.follower.partition;
        while follower.log().durable_start_offset() < follower.log().start_offset() {
            assert!(time::now() < deadline, "the log start is never on disk");
            std::thread::sleep(Duration::from_millis(1));
        }
        let acked = follower.take_ack(stream.slot).expect("a subscription");
        one.partition.on_ack(stream.follower.id, &acked);
    };
    ack(&to_two);
    assert!(low_watermark.try_recv().is_err(), "three has not heard of it");
    to_three.catch_up();
    ack(&to_three);
    let low_watermark = tokio::time::timeout(SOON, low_watermark).await.expect("an answer");
    assert_eq!(low_watermark.unwrap(), Ok(2));

    // All that is committed; nobody answers in time; it is done all the same.
    let late = trim(None).unwrap();
    one.partition.on_tick(time::now() + 2 * SOON);
    assert_eq!(late.await.unwrap().unwrap_err().code, ErrorCode::RequestTimedOut);
    assert_eq!(one.partition.log().start_offset(), 3);

    let policy = CleanupPolicy { compact: true, delete: false };
    let config = TopicConfig { cleanup_policy: policy, ..TopicConfig::default() };
    one.partition.update_config(Arc::new(config));
    assert_eq!(trim(None).unwrap_err().code, ErrorCode::PolicyViolation);
}
