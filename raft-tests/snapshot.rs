//! Snapshots: made, shipped, loaded, and refused.

use crate::cluster::{Cluster, eventually};

async fn written(cluster: &Cluster, node: i32, count: usize) {
    for _ in 0..count {
        cluster.node(node).allocated().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_missed_too_much_gets_a_snapshot() {
    let mut cluster = Cluster::of(3);
    cluster.snapshot_entries = 20;
    for node in 1..=3 {
        cluster.open(node).await;
    }
    cluster.join_all().await;
    let leader = cluster.leader().await;
    cluster.node(leader).register().await;
    let follower = cluster.follower().await;
    let log = cluster.node(follower).status().last_log_index;
    cluster.kill(follower).await;
    written(&cluster, leader, 100).await;
    cluster.start(follower).await;
    let image = cluster.converged().await;
    assert!(image.index >= log + 100);
    cluster.leader().await;
    written(&cluster, leader, 5).await;
    cluster.converged().await;

    // A learner that starts from nothing gets it too, and then everybody starts from theirs.
    cluster.start(4).await;
    cluster.converged().await;
    for node in 1..=4 {
        cluster.kill(node).await;
    }
    for node in 1..=4 {
        cluster.open(node).await;
    }
    cluster.join_all().await;
    cluster.leader().await;
    let again = cluster.converged().await;
    assert!(again.next_producer_id >= image.next_producer_id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_snapshot_stops_the_node_before_it_takes_part() {
    let mut cluster = Cluster::of(1);
    cluster.snapshot_entries = 10;
    cluster.open(1).await;
    cluster.join_all().await;
    cluster.leader().await;
    cluster.node(1).register().await;
    written(&cluster, 1, 60).await;
    let path = cluster.directory.path().join("1/snapshots/metadata.snapshot");
    eventually("a snapshot", async || path.exists().then_some(())).await;
    cluster.kill(1).await;
    let sound = std::fs::read(&path).expect("a snapshot");
    for position in (0..sound.len()).step_by(64) {
        let mut damaged = sound.clone();
        damaged[position] ^= 1;
        std::fs::write(&path, &damaged).expect("written");
        let refused = cluster.try_open(1).await.expect_err("damaged").to_string();
        let is_sentence = refused.contains("restore the metadata") || refused.contains("upgrade");
        assert!(is_sentence, "byte {position}: {refused}");
    }
    // Without any snapshot the log has a gap before it.
    std::fs::remove_file(&path).expect("removed");
    if let Err(refused) = cluster.try_open(1).await {
        assert!(refused.to_string().contains("after the last snapshot"), "{refused}");
    } else {
        panic!("a log that begins after its snapshot was opened");
    }
}
