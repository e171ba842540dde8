//! Disks without room (reliability.md D11).

use std::time::Duration;

use kontiki::client::{Client, NewTopic, OffsetQuery, ProducerConfig, Record};
use kontiki::protocol::ErrorCode;
use kontiki::types::time;

use crate::disks::Disks;
use crate::harness::{DEADLINE, eventually};
use crate::volume::Volume;

const TOPIC: &str = "orders";

/// One record, tried for a moment only.
async fn write(client: &Client, topic: &str, size: usize) -> Result<i64, String> {
    let config =
        ProducerConfig { delivery_timeout: Duration::from_secs(2), ..ProducerConfig::default() };
    let producer = client.producer(config);
    let record = Record::to(topic).partition(0).value(vec![7; size]);
    let delivery = producer.send(record).await.map_err(|error| error.to_string())?;
    delivery.await.map(|delivered| delivered.offset).map_err(|error| error.to_string())
}

/// The disk is looked at once in a while. How many records it took.
async fn write_until_refused(client: &Client) -> i64 {
    for written in 0..100 {
        if let Err(refused) = write(client, TOPIC, 200_000).await {
            assert!(refused.contains("KAFKA_STORAGE_ERROR"), "{refused}");
            return written;
        }
    }
    panic!("clients are never refused");
}

/// Everything of the nodes is on disks that somebody else fills to the last byte, while topics are made and written.
/// Nodes may stop, and start on the full disk; what was acknowledged is there, and once there is room all goes on.
#[tokio::test(flavor = "multi_thread")]
async fn full_disks_refuse_clients_and_lose_nothing() {
    let mut disks = Disks::whole(|_| Volume::new(256, "defaults"), &[]).await;
    disks.cluster.expect_errors("");
    disks.cluster.create_topic(TOPIC, 1).await;
    let client = disks.cluster.client().await;
    for _ in 0..20 {
        write(&client, TOPIC, 1_000).await.expect("there is room");
    }
    for id in disks.cluster.ids() {
        disks.volume(id).fill(6 << 20);
    }
    let mut written = 20 + write_until_refused(&client).await;
    // Reading goes on, and so does the metadata log.
    let ends = client.offsets(TOPIC, OffsetQuery::Latest).await.expect("readable");
    assert_eq!(ends[&0].offset, written);
    disks.cluster.create_topic("while-full", 1).await;

    for id in disks.cluster.ids() {
        disks.volume(id).fill(256 << 10);
    }
    let mut made = 0;
    let start = time::now();
    while disks.all_run() && start.elapsed() < Duration::from_secs(10) {
        let topic = NewTopic::new(format!("full-{made}")).partitions(20).replication_factor(3);
        let admin = client.admin();
        let made_it = tokio::time::timeout(Duration::from_secs(3), admin.create_topic(topic));
        match made_it.await {
            Ok(Ok(_)) => made += 1,
            _ => break,
        }
    }
    eprintln!("full disks: {made} topics were made on them; all nodes run: {}", disks.all_run());
    for id in disks.cluster.ids() {
        disks.cluster.kill(id);
    }
    for id in disks.cluster.ids() {
        disks.cluster.launch(id);
    }
    disks.cluster.ready().await;
    disks.cluster.in_sync().await;
    let client = disks.cluster.client().await;
    for number in 0..made {
        client.topic(&format!("full-{number}")).await.expect("it was made");
    }
    let ends = client.offsets(TOPIC, OffsetQuery::Latest).await.expect("readable");
    assert_eq!(ends[&0].offset, written);
    // What was kept for the start is a little more than the floor.
    written += write_until_refused(&client).await;
    // Room comes from deleting, too.
    disks.cluster.delete_topic("while-full").await;

    for id in disks.cluster.ids() {
        disks.volume(id).empty();
    }
    let offset = eventually("it is written again", || write(&client, TOPIC, 1_000)).await;
    assert!(offset >= written, "{offset} after {written} records");
    disks.cluster.in_sync().await;
    let processes: Vec<bool> = disks.cluster.ids().iter().map(|_| disks.all_run()).collect();
    assert!(processes.iter().all(|runs| *runs), "nobody was restarted for it");
}

/// Only the logs are on the small disks, and no floor is kept: appends meet the end of the disk itself. The batch that
/// does not fit is taken back, the directory stays in service, and the log goes on where it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_does_not_fit_leaves_no_trace() {
    let floor = [("log.dirs.min.free", "0")];
    let mut disks = Disks::logs(|_| Volume::new(64, "defaults"), &floor).await;
    disks.cluster.create_topic(TOPIC, 1).await;
    let client = disks.cluster.client().await;
    for id in disks.cluster.ids() {
        disks.volume(id).fill(2 << 20);
    }
    let mut acknowledged = 0;
    let mut refused = 0;
    while refused < 3 {
        match write(&client, TOPIC, 300_000).await {
            Ok(offset) => {
                assert_eq!(offset, acknowledged);
                acknowledged += 1;
            }
            Err(_) => refused += 1,
        }
        assert!(acknowledged < 100, "the disk is never full");
    }
    for id in disks.cluster.ids() {
        disks.volume(id).empty();
    }
    eventually("it is written again", || write(&client, TOPIC, 300_000)).await;
    disks.cluster.in_sync().await;
    for id in disks.cluster.ids() {
        let view = disks.cluster.get(id, &format!("/v1/brokers/{id}")).expect("answered").json();
        assert_eq!(view["offline_directories"], serde_json::json!({}), "node {id}: {view}");
        disks.cluster.kill(id);
    }
    for id in disks.cluster.ids() {
        disks.cluster.launch(id);
    }
    disks.cluster.ready().await;
    let client = disks.cluster.client().await;
    let end = eventually("readable", || async {
        let ends = client.offsets(TOPIC, OffsetQuery::Latest).await;
        ends.map(|ends| ends[&0].offset).map_err(|error| error.to_string())
    });
    assert!(end.await > acknowledged);
    disks.cluster.finish();
}
