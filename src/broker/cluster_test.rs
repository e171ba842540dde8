//! Brokers together: real logs and sockets, and the real decisions on metadata in memory.

use std::time::Duration;

use super::testing::{Nodes, batch, until};
use crate::controller::{ControllerReply, ControllerRequest, TopicSelector};
use crate::metadata::config::Durability;
use crate::protocol::ErrorCode;
use crate::types::{NodeId, TopicId, TopicIdPartition, time};

const LONG: Duration = Duration::from_secs(30);

fn first_of(topic_id: TopicId) -> TopicIdPartition {
    TopicIdPartition { topic_id, partition: 0 }
}

async fn replicates(durability: Durability) {
    let nodes = Nodes::start(3, durability).await;
    let topic_id = nodes.create_topic(NodeId(2), "t", 3, 3).await;
    for partition in 0..3 {
        let id = TopicIdPartition { topic_id, partition };
        for broker in nodes.brokers() {
            assert!(broker.partition(id).is_some(), "visible everywhere once it is answered");
        }
        for (number, acks) in [-1, 1, 0, -1].into_iter().enumerate() {
            let produced = nodes.produce(id, &format!("{partition}-{number}"), acks).await;
            assert_eq!(produced.expect("acknowledged").base_offset, number as i64);
        }
        let expected: Vec<_> = (0..4).map(|number| format!("{partition}-{number}")).collect();
        assert_eq!(nodes.values(id).await, expected);
        for broker in nodes.brokers() {
            let replica = broker.partition(id).expect("held");
            until("every replica has it all, and knows that it is committed", || {
                replica.log().end_offset() == 4 && replica.high_watermark() == 4
            })
            .await;
        }
    }
}

#[tokio::test]
async fn records_reach_every_replica_with_fsync() {
    replicates(Durability::Fsync).await;
}

#[tokio::test]
async fn records_reach_every_replica_through_the_page_cache() {
    replicates(Durability::PageCache).await;
}

#[tokio::test]
async fn after_a_leader_dies_its_acknowledged_records_are_there_and_more_follow() {
    let mut nodes = Nodes::start(3, Durability::Fsync).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 3).await);
    for number in 0..20 {
        nodes.produce(id, &number.to_string(), -1).await.expect("acknowledged");
    }
    let old_leader = nodes.leader(id);
    let killed_at = time::now();
    nodes.kill(old_leader);
    assert_ne!(nodes.leader(id), old_leader);
    nodes.produce_surely(id, "after").await;
    let gap = time::now().duration_since(killed_at);
    assert!(gap < Duration::from_secs(5), "the next acknowledgement came after {gap:?}");
    let values = nodes.values(id).await;
    let before: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(values[..20], before);
    assert!(values[20..].iter().all(|value| value == "after") && values.len() > 20);
}

#[tokio::test]
async fn two_followers_that_die_leave_the_partition_read_only() {
    let mut nodes = Nodes::start(3, Durability::PageCache).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 3).await);
    nodes.produce(id, "a", -1).await.expect("acknowledged");
    let leader = nodes.leader(id);
    for follower in (1..=3).map(NodeId).filter(|node| *node != leader) {
        nodes.kill(follower);
    }
    until("the leader knows that it is alone", || {
        let partition = nodes.broker(leader).partition(id).expect("held");
        partition.status().leading.is_some_and(|leading| leading.isr == [leader])
    })
    .await;
    let refused = nodes.produce(id, "b", -1).await.expect_err("one replica is not enough");
    assert_eq!(refused.code, ErrorCode::NotEnoughReplicas);
    assert_eq!(nodes.values(id).await, ["a"]);
}

#[tokio::test]
async fn a_silent_follower_leaves_the_isr_though_answers_are_lost() {
    let mut nodes = Nodes::start(3, Durability::PageCache).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 3).await);
    nodes.produce(id, "a", -1).await.expect("acknowledged");
    let leader = nodes.leader(id);
    let silent = (1..=3).map(NodeId).find(|node| *node != leader).expect("three brokers");
    nodes.controller.lose_answers(2);
    nodes.silence(silent);
    // Acknowledged once the ISR has shrunk: the record waits for that.
    nodes.produce(id, "b", -1).await.expect("acknowledged");
    let isr = nodes.partition(id).isr.clone();
    assert!(isr.len() == 2 && !isr.contains(&silent), "{isr:?}");
    // The image may tell the leader sooner than the answer; it asks on until there is one.
    until("it was answered, under its number", || nodes.controller.sequences() == [1, 1, 1]).await;
}

#[tokio::test]
async fn a_shutdown_moves_the_leaderships_first() {
    let mut nodes = Nodes::start(3, Durability::Fsync).await;
    let topic_id = nodes.create_topic(NodeId(1), "t", 6, 3).await;
    let ids: Vec<_> = (0..6).map(|partition| TopicIdPartition { topic_id, partition }).collect();
    for id in &ids {
        nodes.produce(*id, "before", -1).await.expect("acknowledged");
    }
    let stopped = NodeId(2);
    let started = time::now();
    nodes.broker(stopped).shut_down().await;
    let took = time::now().duration_since(started);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(ids.iter().all(|id| nodes.leader(*id) != stopped));
    assert!(nodes.broker(stopped).readiness().is_err());
    for id in &ids {
        nodes.produce_surely(*id, "after").await;
        let values = nodes.values(*id).await;
        assert_eq!(values[0], "before");
    }
    let refused = nodes.broker(stopped).produce(vec![(ids[0], batch("late"))], 1, LONG).await;
    let refused = refused[0].as_ref().expect_err("nothing is served after the end");
    assert_eq!(refused.code, ErrorCode::NotLeaderOrFollower);
    nodes.kill(stopped);
}

#[tokio::test]
async fn a_thousand_partitions_are_there_at_once_and_add_no_connection() {
    let nodes = Nodes::start(3, Durability::Fsync).await;
    let before = open_sockets();
    let started = time::now();
    let topic_id = nodes.create_topic(NodeId(1), "wide", 1000, 3).await;
    let took = time::now().duration_since(started);
    assert!(took < Duration::from_secs(5), "{took:?}");
    let id = TopicIdPartition { topic_id, partition: 999 };
    nodes.produce(id, "x", -1).await.expect("acknowledged");
    // Tests run side by side in this process, so this is only a bound.
    assert!(open_sockets() < before + 500);
    assert!(nodes.brokers().all(|broker| broker.partition(id).is_some()));
}

fn open_sockets() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let is_socket = |entry: std::io::Result<std::fs::DirEntry>| {
        let target = entry.ok().and_then(|entry| std::fs::read_link(entry.path()).ok());
        target.is_some_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    descriptors.map(is_socket).filter(|is_socket| *is_socket).count()
}

#[tokio::test]
async fn a_deleted_topic_is_gone_everywhere() {
    let nodes = Nodes::start(2, Durability::PageCache).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 2).await);
    nodes.produce(id, "x", -1).await.expect("acknowledged");
    let topics = vec![TopicSelector::Name("t".to_owned())];
    let request = ControllerRequest::DeleteTopics { topics };
    let reply = nodes.broker(NodeId(2)).admin("test", request, LONG).await.expect("decided");
    assert!(matches!(reply, ControllerReply::DeleteTopics { results, .. } if results[0].is_ok()));
    for broker in nodes.brokers() {
        assert!(broker.partition(id).is_none() && broker.image().topic("t").is_none());
        let refused = broker.produce(vec![(id, batch("late"))], -1, LONG).await;
        let refused = refused[0].as_ref().expect_err("it is gone");
        assert_eq!(refused.code, ErrorCode::UnknownTopicId);
    }
    // The name is free at once.
    let again = first_of(nodes.create_topic(NodeId(1), "t", 1, 2).await);
    nodes.produce(again, "y", -1).await.expect("acknowledged");
    assert_eq!(nodes.values(again).await, ["y"]);
}

#[tokio::test]
async fn a_fetch_waits_for_the_next_record() {
    let nodes = Nodes::start(3, Durability::Fsync).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 3).await);
    let query = super::FetchQuery {
        wait: LONG,
        bytes_min: 1,
        bytes_max: 1 << 20,
        entries: vec![super::FetchPartition {
            partition: id,
            leader_epoch: crate::types::LeaderEpoch::NONE,
            last_fetched_epoch: crate::types::LeaderEpoch::NONE,
            fetch_offset: 0,
            bytes_max: 1 << 20,
        }],
    };
    let leader = nodes.broker(nodes.leader(id)).clone();
    let waiting = tokio::spawn(async move { leader.fetch(query).await });
    nodes.produce(id, "x", -1).await.expect("acknowledged");
    let fetched = waiting.await.expect("no panic").pop().expect("one result").expect("readable");
    assert_eq!((fetched.high_watermark, fetched.slice.next_offset), (1, 1));
}

#[tokio::test]
async fn producer_ids_are_unique_over_brokers() {
    let nodes = Nodes::start(3, Durability::PageCache).await;
    let mut ids = Vec::new();
    for broker in nodes.brokers() {
        for _ in 0..3 {
            ids.push(broker.init_producer_id().await.expect("a block").0);
        }
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 9);
}

/// The partitions of a topic that a broker holds in one of its directories.
fn lying_in(nodes: &Nodes, broker: NodeId, topic_id: TopicId, count: i32, dir: &str) -> Vec<i32> {
    let prefix = nodes.log_dir(broker, dir);
    let lies_there = |partition: &i32| {
        let id = TopicIdPartition { topic_id, partition: *partition };
        prefix.join(format!("t-{partition}")).exists()
            && nodes.broker(broker).partition(id).is_some()
    };
    (0..count).filter(lies_there).collect()
}

#[tokio::test]
async fn an_offline_directory_takes_its_replicas_out_of_service_and_no_others() {
    const PARTITIONS: i32 = 4;
    let broken = NodeId(1);
    let mut nodes = Nodes::start(3, Durability::Fsync).await;
    let topic_id = nodes.create_topic(NodeId(2), "t", PARTITIONS, 3).await;
    let id = |partition| TopicIdPartition { topic_id, partition };
    for partition in 0..PARTITIONS {
        nodes.produce_surely(id(partition), "before").await;
    }
    let in_sync = |nodes: &Nodes, partition| nodes.partition(id(partition)).isr.contains(&broken);
    until("all are in sync", || (0..PARTITIONS).all(|p| in_sync(&nodes, p))).await;
    let [in_a, in_b] = ["a", "b"].map(|dir| lying_in(&nodes, broken, topic_id, PARTITIONS, dir));
    assert_eq!((in_a.len(), in_b.len()), (2, 2), "placed evenly");

    // A file where a directory was: not even a restart can use it.
    let (dir, away) = (nodes.log_dir(broken, "a"), nodes.log_dir(broken, "away"));
    std::fs::rename(&dir, &away).expect("renamed");
    std::fs::write(&dir, "").expect("written");
    let other = nodes.create_topic(NodeId(2), "u", 2, 3).await;
    for partition in 0..2 {
        // The first record makes a directory, so one of the two notices.
        nodes.produce_surely(TopicIdPartition { topic_id: other, partition }, "u").await;
    }
    let served = |nodes: &Nodes| {
        in_a.iter().all(|p| !in_sync(nodes, *p) && nodes.leader(id(*p)).known().is_some())
            && in_b.iter().all(|p| in_sync(nodes, *p))
    };
    until("what lies in it is served by others", || served(&nodes)).await;
    for partition in 0..PARTITIONS {
        nodes.produce_surely(id(partition), "after").await;
        let values = nodes.values(id(partition)).await;
        assert!(values.starts_with(&["before".to_owned(), "after".to_owned()]), "{values:?}");
    }
    let image = nodes.controller.image();
    let offline = image.offline.get(&broken).expect("reported");
    assert!(in_a.iter().all(|p| offline.replicas.contains(&id(*p))));
    assert_eq!(offline.directories.len(), 1);
    assert!(nodes.broker(broken).readiness().is_ok());

    nodes.kill(broken);
    nodes.restart(broken).await;
    until("it runs with the other one", || nodes.broker(broken).readiness().is_ok()).await;
    until("what lies there is in sync again", || served(&nodes)).await;
    for partition in &in_a {
        assert!(nodes.broker(broken).partition(id(*partition)).is_none());
        assert!(
            !nodes.log_dir(broken, "b").join(format!("t-{partition}")).exists(),
            "no second home"
        );
    }

    nodes.kill(broken);
    std::fs::remove_file(&dir).expect("removed");
    std::fs::rename(&away, &dir).expect("renamed");
    nodes.restart(broken).await;
    until("all are in sync", || (0..PARTITIONS).all(|p| in_sync(&nodes, p))).await;
    assert!(nodes.controller.image().offline.is_empty());
}

#[tokio::test]
async fn deleted_records_stay_deleted_when_the_leader_dies() {
    let mut nodes = Nodes::start(3, Durability::Fsync).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 3).await);
    for number in 0..5 {
        nodes.produce(id, &number.to_string(), -1).await.expect("acknowledged");
    }
    let old_leader = nodes.leader(id);
    let trimmed = nodes.broker(old_leader).delete_records(vec![(id, 3)], LONG).await;
    assert_eq!(trimmed, [Ok(3)]);
    for broker in nodes.brokers() {
        assert_eq!(broker.partition(id).expect("held").log().durable_start_offset(), 3);
    }
    nodes.kill(old_leader);
    let leader = nodes.leader(id);
    assert_ne!(leader, old_leader);
    nodes.produce_surely(id, "after").await;
    let partition = nodes.broker(leader).partition(id).expect("held");
    assert_eq!(partition.log().start_offset(), 3);
    // Who is dead is not waited for.
    let trimmed = nodes.broker(leader).delete_records(vec![(id, 5), (id, 99)], LONG).await;
    assert_eq!(trimmed[0], Ok(5));
    assert_eq!(trimmed[1].as_ref().unwrap_err().code, ErrorCode::OffsetOutOfRange);
}

/// Everything in the log of a replica.
fn bytes_of(nodes: &Nodes, broker: NodeId, id: TopicIdPartition) -> Vec<u8> {
    let replica = nodes.broker(broker).partition(id).expect("held");
    let (mut bytes, mut next) = (Vec::new(), 0);
    while next < replica.log().end_offset() {
        let slice = replica.log().read(next, i64::MAX, 1 << 20, true).expect("readable");
        slice.read_into(&mut bytes).expect("readable");
        next = slice.next_offset;
    }
    bytes
}

#[tokio::test]
async fn a_damaged_replica_is_repaired_from_the_leader() {
    let mut nodes = Nodes::start(3, Durability::Fsync).await;
    let id = first_of(nodes.create_topic(NodeId(1), "t", 1, 3).await);
    for number in 0..20 {
        nodes.produce(id, &number.to_string(), -1).await.expect("acknowledged");
    }
    let damaged = nodes.leader(id);
    nodes.kill(damaged);
    until("another one leads", || nodes.leader(id) != damaged).await;
    let dirs = ["a", "b"].map(|name| nodes.log_dir(damaged, name));
    let dir = dirs.iter().find(|dir| dir.join("t-0").exists()).expect("held");
    let path = dir.join("t-0/00000000000000000000.log");
    let mut content = std::fs::read(&path).expect("readable");
    let batches = crate::record::batches(&content).map(|batch| batch.expect("whole"));
    let at: usize = batches.take(9).map(|batch| batch.bytes.len()).sum();
    // No checksum covers the base offset.
    content[at + 7] ^= 4;
    std::fs::write(&path, &content).expect("writable");
    std::fs::write(dir.join("recovery-point-offset-checkpoint"), "0\n1\nt 0 20\n")
        .expect("writable");

    nodes.restart(damaged).await;
    until("it is repaired and in sync", || {
        nodes.broker(damaged).logs.damages().found_and_repaired() == (1, 1)
            && nodes.partition(id).isr.contains(&damaged)
    })
    .await;
    nodes.produce_surely(id, "after").await;
    let replica = nodes.broker(damaged).partition(id).expect("held");
    until("it has it all", || replica.log().end_offset() == 21).await;
    let leader = nodes.leader(id);
    assert!(bytes_of(&nodes, damaged, id) == bytes_of(&nodes, leader, id));
    until("nothing is reported", || nodes.controller.image().offline.is_empty()).await;
}
