//! A disk that does nothing for a while, under a process that is alive (reliability.md D17).

use std::time::Duration;

use kontiki::types::time;

use crate::disks::Disks;
use crate::volume::Volume;
use crate::workload::Load;

const TOPIC: &str = "orders";

/// The victim leads partition 0, or is the active controller.
async fn frozen(mut disks: Disks, controller: bool) {
    disks.cluster.create_topic(TOPIC, 3).await;
    let load = Load::start(&disks.cluster, TOPIC).await;
    let led = disks.cluster.leader(TOPIC, 0).await;
    let victim = if controller { disks.cluster.controller().await } else { led };

    // A second is nothing special.
    disks.volume(victim).freeze();
    tokio::time::sleep(Duration::from_secs(1)).await;
    disks.volume(victim).thaw();
    load.progress().await;
    assert_eq!(disks.cluster.leader(TOPIC, 0).await, led);

    disks.volume(victim).freeze();
    disks.cluster.node(victim).set_hanging(true);
    let since = time::now();
    for partition in 0..3 {
        disks.cluster.other_leader(TOPIC, partition, &[victim]).await;
    }
    load.progress().await;
    let resumed = since.elapsed();
    assert!(resumed < Duration::from_secs(20), "written again only after {resumed:?}");
    eprintln!("frozen disk: written again after {resumed:?}");
    disks.volume(victim).thaw();
    disks.cluster.node(victim).set_hanging(false);
    disks.cluster.node_ready(victim).await;
    disks.cluster.in_sync().await;
    load.progress().await;
    load.check(&disks.cluster).await;
    disks.cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn leaders_leave_a_frozen_log_disk_and_nothing_diverges() {
    frozen(Disks::logs(|_| Volume::new(256, "defaults"), &[]).await, false).await;
}

/// Its metadata log hangs as well: the quorum goes on without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_only_disk_is_frozen_gives_way() {
    frozen(Disks::whole(|_| Volume::new(256, "defaults"), &[]).await, true).await;
}
