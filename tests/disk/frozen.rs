//! A disk that does nothing for a while, under a process that is alive (reliability.md D17).

use std::time::Duration;

use kontiki::types::time;

use crate::disks::Disks;
use crate::volume::Volume;
use crate::workload::Load;

const TOPIC: &str = "orders";

async fn frozen(mut disks: Disks) {
    disks.cluster.create_topic(TOPIC, 3).await;
    let load = Load::start(&disks.cluster, TOPIC).await;
    let victim = disks.cluster.leader(TOPIC, 0).await;

    // A second is nothing special.
    disks.volume(victim).freeze();
    tokio::time::sleep(Duration::from_secs(1)).await;
    disks.volume(victim).thaw();
    load.progress().await;
    assert_eq!(disks.cluster.leader(TOPIC, 0).await, victim);

    disks.volume(victim).freeze();
    let since = time::now();
    for partition in 0..3 {
        disks.cluster.other_leader(TOPIC, partition, &[victim]).await;
    }
    load.progress().await;
    let resumed = since.elapsed();
    assert!(resumed < Duration::from_secs(20), "written again only after {resumed:?}");
    eprintln!("frozen disk: written again after {resumed:?}");
    disks.volume(victim).thaw();
    disks.cluster.node_ready(victim).await;
    disks.cluster.in_sync().await;
    load.progress().await;
    load.check(&disks.cluster).await;
    disks.cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_leave_a_frozen_log_disk_and_nothing_diverges() {
    frozen(Disks::logs(|_| Volume::new(256, "defaults"), &[]).await).await;
}
