//! Power loss of all nodes at once, under load (reliability.md D1, D3). `make power-loss ROUNDS=50` is the long one.

use std::time::Duration;

use kontiki::client::{NewTopic, OffsetQuery, ProducerConfig, Record};
use kontiki::types::time;

use crate::disks::Disks;
use crate::harness::eventually;
use crate::volume::Volume;
use crate::workload::Load;

const TOPIC: &str = "orders";

/// The kernel writes nothing back by itself within a round.
const LAZY: &str = "commit=600";

fn rounds() -> u32 {
    let text = std::env::var("KONTIKI_POWER_ROUNDS").unwrap_or_default();
    if text.is_empty() { 1 } else { text.parse().expect("KONTIKI_POWER_ROUNDS is a number") }
}

/// Segments end all the time, and each round makes a topic just before the power goes.
#[tokio::test(flavor = "multi_thread")]
async fn power_loss_loses_nothing_that_was_acknowledged() {
    let mut disks = Disks::whole(|_| Volume::new(1024, LAZY), &[]).await;
    let topic = NewTopic::new(TOPIC).partitions(6).replication_factor(3);
    let topic = topic.config("segment.ms", "500");
    let client = disks.cluster.client().await;
    client.admin().create_topic(topic).await.expect("created");
    let load = Load::start(&disks.cluster, TOPIC).await;
    for round in 1..=rounds() {
        let started = time::now();
        let name = format!("round-{round}");
        disks.cluster.create_topic(&name, 1).await;
        let producer = client.producer(ProducerConfig::default());
        let sent = producer.send(Record::to(&name).value("kept")).await.expect("taken");
        sent.await.expect("acknowledged");
        disks.power_cycle().await;
        load.progress().await;
        let ends = eventually("the topic of this round is there", || async {
            client.offsets(&name, OffsetQuery::Latest).await.map_err(|error| error.to_string())
        });
        assert_eq!(ends.await[&0].offset, 1, "{name}");
        disks.cluster.in_sync().await;
        eprintln!("power loss {round}: everything is back after {:?}", started.elapsed());
    }
    let ledger = load.check(&disks.cluster).await;
    eprintln!("{} power losses: {ledger}", rounds());
}

/// The same disks, and the mode that says so: this test can see loss.
#[tokio::test(flavor = "multi_thread")]
async fn power_loss_loses_what_only_the_page_cache_has() {
    let durability = [("log.durability", "page-cache")];
    let mut disks = Disks::whole(|_| Volume::new(256, LAZY), &durability).await;
    disks.cluster.create_topic(TOPIC, 1).await;
    let client = disks.cluster.client().await;
    let producer = client.producer(ProducerConfig::default());
    let mut acknowledged = 0;
    for _ in 0..200 {
        let sent = producer.send(Record::to(TOPIC).partition(0).value(vec![7; 500])).await;
        sent.expect("taken").await.expect("acknowledged");
        acknowledged += 1;
    }
    disks.power_cycle().await;
    let end = eventually("the partition has a leader", || async {
        let ends = client.offsets(TOPIC, OffsetQuery::Latest).await;
        ends.map(|ends| ends[&0].offset).map_err(|error| error.to_string())
    });
    let end = end.await;
    assert!(end < acknowledged, "nothing was lost: {end} of {acknowledged}");
    eprintln!("page-cache: {end} of {acknowledged} acknowledged records are left");
    // What follows is written and read as ever.
    let sent = producer.send(Record::to(TOPIC).partition(0).value("after")).await.expect("taken");
    let delivered = tokio::time::timeout(Duration::from_secs(60), sent).await.expect("in time");
    assert!(delivered.is_ok() || end == 0, "{delivered:?}");
}
