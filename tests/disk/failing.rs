//! A disk that fails under one node: its replicas move, everybody else goes on (reliability.md D2, D12, D14, D15).

use serde_json::Value;

use crate::disks::Disks;
use crate::harness::{Cluster, eventually};
use crate::volume::Volume;
use crate::workload::Load;

const TOPIC: &str = "orders";

/// The directory that a node says is offline, as another node shows it.
async fn offline_directory(cluster: &Cluster, asked: i32, failed: i32) -> String {
    eventually(&format!("node {failed} says that its directory is offline"), || async {
        let view = cluster.get(asked, &format!("/v1/brokers/{failed}"))?.json();
        let directories = view["offline_directories"].as_object().cloned().unwrap_or_default();
        let reason = directories.values().next().and_then(Value::as_str);
        reason.map(str::to_owned).ok_or_else(|| view.to_string())
    })
    .await
}

/// Breaks the disk of the node that leads, and expects that nothing but its replicas is concerned.
async fn fails(mut disks: Disks, break_it: impl AsyncFn(&Disks, i32), reasons: &[&str]) -> Disks {
    let cluster = &mut disks.cluster;
    cluster.expect_errors("log directory goes offline");
    cluster.create_topic(TOPIC, 3).await;
    let load = Load::start(cluster, TOPIC).await;
    let victim = disks.cluster.leader(TOPIC, 0).await;
    break_it(&disks, victim).await;
    for partition in 0..3 {
        disks.cluster.other_leader(TOPIC, partition, &[victim]).await;
    }
    let other = if victim == 1 { 2 } else { 1 };
    let shown = offline_directory(&disks.cluster, other, victim).await;
    let says_why = reasons.iter().any(|reason| shown.contains(reason));
    assert!(says_why, "{shown:?} says none of {reasons:?}");
    load.progress().await;
    // It is alive, and a voter, but no replica.
    assert!(disks.cluster.node(victim).is_running());
    disks.cluster.create_topic("later", 1).await;
    load.progress().await;

    disks.cluster.kill(victim);
    load.progress().await;
    load.check(&disks.cluster).await;
    disks
}

/// `errors=remount-ro`, and an error: files that are open stay open (D14).
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_became_read_only_moves_leaders_away() {
    let disks = Disks::logs(|_| Volume::new(256, "errors=remount-ro"), &[]).await;
    let break_it = async |disks: &Disks, id: i32| disks.volume(id).make_read_only();
    // A sync that was under way in that moment ends with the error that made it read-only.
    let reasons = ["Read-only file system", "Input/output error"];
    let mut disks = fails(disks, break_it, &reasons).await;

    // It stays so over a restart, and refuses: this node has no other directory (D15).
    let id = disks.down();
    disks.cluster.launch(id);
    let exit = disks.cluster.node(id).exit().await;
    assert!(!exit.status.success());
    let last = exit.log.lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("Read-only file system"), "{last}");
    disks.volume(id).unmount();
    disks.volume(id).mount();
    disks.cluster.restart(id).await;
    disks.cluster.in_sync().await;
    disks.cluster.finish();
}

/// The disk has promised more than it has: writing back fails, and `fsync` tells once, or twice, and then not any more
/// (D2). This broker vouches for nothing after the first time (D12), and has everything from before when it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_sync_that_fails_is_the_last_one() {
    let disks = Disks::logs(|_| Volume::overcommitted(256, 40, "errors=continue"), &[]).await;
    let break_it = async |disks: &Disks, id: i32| disks.volume(id).exhaust();
    let mut disks = fails(disks, break_it, &["sync"]).await;
    let id = disks.down();
    disks.volume(id).relieve();
    disks.volume(id).unmount();
    disks.volume(id).mount();
    disks.cluster.restart(id).await;
    disks.cluster.in_sync().await;
    disks.cluster.finish();
}
