//! Nodes that are stopped properly and come back.

use super::harness::Cluster;
use super::workload::{Load, TOPIC, under_load};

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_disturbs_nobody() {
    let (mut cluster, load) = under_load(3).await;

    for id in cluster.ids() {
        cluster.stop(id).await;
        load.progress().await;
        cluster.restart(id).await;
        cluster.in_sync().await;
    }

    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_was_stopped_is_the_same_cluster_afterwards() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 3).await;
    let ledger = Load::start(&cluster, TOPIC).await.check(&cluster).await;
    let before = cluster.get(1, "/v1/cluster").expect("answered").json();
    let topic_before = cluster.get(1, &format!("/v1/topics/{TOPIC}")).expect("answered").json();

    for _ in 0..2 {
        // One after the other: the last one has nobody left to hand anything to, and must end all the same.
        for id in cluster.ids() {
            cluster.stop(id).await;
        }
        for id in cluster.ids() {
            cluster.launch(id);
        }
        cluster.ready().await;
    }

    cluster.in_sync().await;
    let after = cluster.get(1, "/v1/cluster").expect("answered").json();
    assert_eq!(after["cluster_id"], before["cluster_id"]);
    let topic_after = cluster.get(1, &format!("/v1/topics/{TOPIC}")).expect("answered").json();
    assert_eq!(topic_after["topic_id"], topic_before["topic_id"]);
    ledger.check(&cluster).await;
    cluster.finish();
}
