//! Nodes die or freeze while records are written: it ends every time, and nothing is lost (INV-25).

use super::harness::{Cluster, eventually};
use super::workload::{Load, TOPIC, under_load};

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_leader_loses_nothing() {
    let (mut cluster, load) = under_load(1).await;

    let leader = cluster.leader(TOPIC, 0).await;
    cluster.kill(leader);
    cluster.other_leader(TOPIC, 0, &[leader]).await;
    load.progress().await;
    cluster.restart(leader).await;
    cluster.in_sync().await;
    load.progress().await;

    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_a_follower_loses_nothing_and_it_comes_back_into_sync() {
    let (mut cluster, load) = under_load(1).await;

    let leader = cluster.leader(TOPIC, 0).await;
    let follower = cluster.ids().into_iter().find(|id| *id != leader).expect("two of them");
    cluster.kill(follower);
    load.progress().await;
    cluster.restart(follower).await;
    cluster.in_sync().await;
    // It has all of it: the two others may go, one after the other.
    for id in cluster.ids().into_iter().filter(|id| *id != follower) {
        cluster.kill(id);
        load.progress().await;
        cluster.restart(id).await;
        cluster.in_sync().await;
    }

    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_the_active_controller_loses_nothing() {
    let (mut cluster, load) = under_load(3).await;

    // With three partitions on three nodes, it leads one of them too.
    let controller = cluster.controller().await;
    cluster.kill(controller);
    let next = cluster.other_controller(&[controller]).await;
    load.progress().await;
    cluster.create_topic("made-by-the-next-controller", 1).await;
    cluster.restart(controller).await;
    cluster.in_sync().await;
    cluster.kill(next);
    cluster.other_controller(&[next]).await;
    load.progress().await;
    cluster.restart(next).await;

    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn killing_all_three_at_once_loses_nothing() {
    let (mut cluster, load) = under_load(3).await;

    for id in cluster.ids() {
        cluster.kill(id);
    }
    for id in cluster.ids() {
        cluster.launch(id);
    }
    cluster.ready().await;
    load.progress().await;
    cluster.in_sync().await;

    load.check(&cluster).await;
    cluster.finish();
}

/// INV-18 and INV-3.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_wakes_up_deposed_is_harmless() {
    let (mut cluster, load) = under_load(1).await;

    for _ in 0..2 {
        let deposed = cluster.leader(TOPIC, 0).await;
        cluster.pause(deposed);
        cluster.other_leader(TOPIC, 0, &[deposed]).await;
        load.progress().await;
        // Whatever waits in its sockets and timers now happens at once, to a leader that is none.
        cluster.resume(deposed);
        cluster.node_ready(deposed).await;
        cluster.in_sync().await;
        load.progress().await;
    }

    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_nothing_is_acknowledged_and_with_it_everything_goes_on() {
    let (mut cluster, load) = under_load(1).await;

    let leader = cluster.leader(TOPIC, 0).await;
    let others: Vec<i32> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    for id in &others {
        cluster.pause(*id);
    }
    // The survivor alone is neither a quorum nor enough replicas. It must say so.
    cluster.node_not_ready(leader).await;
    for id in &others {
        cluster.resume(*id);
    }
    cluster.ready().await;
    load.progress().await;
    cluster.in_sync().await;

    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_goes_back_to_a_node_that_is_back_for_a_while() {
    let interval = ("leader.imbalance.check.interval.seconds", "1");
    let mut cluster = Cluster::start_with(&[interval]).await;
    cluster.create_topic(TOPIC, 3).await;
    let load = Load::start(&cluster, TOPIC).await;

    let first = cluster.leader(TOPIC, 0).await;
    cluster.kill(first);
    cluster.other_leader(TOPIC, 0, &[first]).await;
    cluster.restart(first).await;
    eventually("the first replica leads again", || async {
        let leader = cluster.leader(TOPIC, 0).await;
        if leader == first { Ok(()) } else { Err(format!("node {leader} leads")) }
    })
    .await;
    load.progress().await;

    load.check(&cluster).await;
    cluster.finish();
}
