//! The active controller: sessions, evidence, registrations.

use std::time::Duration;

use kontiki::controller::{ControllerReply, Refusal};
use kontiki::protocol::ErrorCode;
use kontiki::types::NodeId;
use tokio::task::JoinHandle;

use crate::cluster::{Cluster, Node, eventually, hello, registration};

/// Heartbeats as a broker sends them.
fn beating(node: &Node) -> JoinHandle<()> {
    let node = node.clone();
    tokio::spawn(async move {
        loop {
            let _ = node.heartbeat().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

async fn unfenced(cluster: &Cluster, nodes: &[i32]) -> Vec<JoinHandle<()>> {
    let mut beats = Vec::new();
    for node in nodes {
        cluster.node(*node).register().await;
        beats.push(beating(cluster.node(*node)));
    }
    eventually("all brokers are active", async || {
        let image = cluster.node(1).quorum.image();
        nodes.iter().all(|node| image.is_active(NodeId(*node))).then_some(())
    })
    .await;
    beats
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_broker_is_fenced_and_one_that_beats_is_not() {
    let cluster = Cluster::started(3).await;
    let beats = unfenced(&cluster, &[1, 2, 3]).await;
    beats[2].abort();
    eventually("node 3 is fenced", async || {
        (!cluster.node(1).quorum.image().is_active(NodeId(3))).then_some(())
    })
    .await;
    let image = cluster.node(1).quorum.image();
    assert!(image.is_active(NodeId(1)) && image.is_active(NodeId(2)));
    let again = beating(cluster.node(3));
    eventually("it comes back", async || {
        cluster.node(1).quorum.image().is_active(NodeId(3)).then_some(())
    })
    .await;
    again.abort();
    beats.iter().for_each(JoinHandle::abort);
    cluster.converged().await;
}

/// The ladder: a closed socket starts a probe, and a refused connection is a verdict (replication.md 2.12).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_is_fenced_by_evidence_long_before_its_session_ends() {
    let mut cluster = Cluster::started(3).await;
    let beats = unfenced(&cluster, &[1, 2, 3]).await;
    let leader = cluster.leader().await;
    let victim = cluster.follower().await;
    beats[usize::try_from(victim - 1).expect("a small number")].abort();
    let killed = cluster.kill(victim).await;
    let watching = cluster.node(leader).clone();
    let started = tokio::time::Instant::now();
    watching.quorum.on_peer_lost(killed);
    eventually("the victim is fenced", async || {
        (!watching.quorum.image().is_active(NodeId(victim))).then_some(())
    })
    .await;
    let took = started.elapsed();
    assert!(took < Duration::from_millis(500), "fencing took {took:?}");
    beats.iter().for_each(JoinHandle::abort);
}

/// Evidence that a follower has is worth something when it takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_controller_fences_the_old_one_s_broker_by_its_own_evidence() {
    let mut cluster = Cluster::started(3).await;
    let beats = unfenced(&cluster, &[1, 2, 3]).await;
    let old = cluster.leader().await;
    beats[usize::try_from(old - 1).expect("a small number")].abort();
    let killed = cluster.kill(old).await;
    for node in cluster.nodes() {
        node.quorum.on_peer_lost(killed);
    }
    let new = cluster.leader_other_than(old).await;
    eventually("the old controller's broker is fenced", async || {
        (!cluster.node(new).quorum.image().is_active(NodeId(old))).then_some(())
    })
    .await;
    beats.iter().for_each(JoinHandle::abort);
    cluster.start(old).await;
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_socket_of_a_living_broker_fences_nobody() {
    let cluster = Cluster::started(3).await;
    let beats = unfenced(&cluster, &[1, 2, 3]).await;
    let before = cluster.node(1).quorum.image().broker(NodeId(3)).map(|b| b.broker_epoch);
    for node in cluster.nodes() {
        node.quorum.on_peer_lost(hello(&cluster.node(3).identity));
    }
    // More requests than a fencing would take to overtake.
    for _ in 0..20 {
        cluster.node(1).allocated().await;
    }
    let image = cluster.node(1).quorum.image();
    assert!(image.is_active(NodeId(3)));
    assert_eq!(image.broker(NodeId(3)).map(|b| b.broker_epoch), before);
    beats.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_broker_takes_its_place_at_once_and_its_old_life_is_over() {
    let mut cluster = Cluster::started(3).await;
    let beats = unfenced(&cluster, &[1, 2, 3]).await;
    let victim = cluster.follower().await;
    beats[usize::try_from(victim - 1).expect("a small number")].abort();
    let killed = cluster.kill(victim).await;
    cluster.start(victim).await;
    let epoch = cluster.node(victim).register().await;
    assert!(epoch > killed.broker_epoch);
    // A request of the old life comes late, over a connection of the new one.
    let old_life = cluster.node(victim).clone();
    old_life.identity.set_broker_epoch(killed.broker_epoch);
    match old_life.allocate(crate::cluster::PATIENCE).await {
        Ok(Err(Refusal { code: ErrorCode::StaleBrokerEpoch, .. })) => {}
        other => panic!("the old life was served: {other:?}"),
    }
    cluster.node(victim).identity.set_broker_epoch(epoch);
    beats.iter().for_each(JoinHandle::abort);
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_of_a_living_broker_is_refused() {
    let cluster = Cluster::started(3).await;
    let beats = unfenced(&cluster, &[1, 2, 3]).await;
    let living = &cluster.node(3).identity;
    let twin = kontiki::net::Identity::new(NodeId(3), living.directory_id, living.cluster_id());
    match cluster.node(1).submit(registration(&twin)).await {
        Ok(Err(Refusal { code: ErrorCode::DuplicateBrokerRegistration, .. })) => {}
        other => panic!("a twin was registered: {other:?}"),
    }
    match cluster.node(3).heartbeat().await {
        Ok(Ok(ControllerReply::Heartbeat(reply))) => assert!(!reply.is_fenced),
        other => panic!("the living broker was touched: {other:?}"),
    }
    beats.iter().for_each(JoinHandle::abort);
    cluster.converged().await;
}
