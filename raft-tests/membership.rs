//! Voters that come and go while the quorum serves.

use kontiki::controller::{ControllerReply, ControllerRequest};
use kontiki::types::NodeId;

use crate::cluster::{Cluster, eventually};

fn add(node: i32) -> ControllerRequest {
    ControllerRequest::AddVoter { node_id: NodeId(node) }
}

fn remove(node: i32) -> ControllerRequest {
    ControllerRequest::RemoveVoter { node_id: NodeId(node) }
}

/// Asks by way of the first node until it is done.
async fn done(cluster: &Cluster, request: ControllerRequest) {
    eventually("the change is done", async || {
        match cluster.node(1).submit(request.clone()).await {
            Ok(Ok(ControllerReply::Done)) => Some(()),
            // Not caught up yet, or the leader changed.
            _ => None,
        }
    })
    .await;
}

async fn refused(cluster: &Cluster, request: ControllerRequest) -> String {
    match cluster.node(1).submit(request).await {
        Ok(Err(refusal)) => refusal.message,
        other => panic!("not refused: {other:?}"),
    }
}

fn voters(cluster: &Cluster, node: i32) -> Vec<i32> {
    let mut voters: Vec<_> =
        cluster.node(node).status().voters.iter().map(|voter| voter.node_id.0).collect();
    voters.sort_unstable();
    voters
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_becomes_a_voter_and_a_voter_goes() {
    let mut cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    assert!(refused(&cluster, add(4)).await.contains("no member"));
    cluster.start(4).await;
    done(&cluster, add(4)).await;
    let leader = cluster.leader().await;
    assert_eq!(voters(&cluster, leader), [1, 2, 3, 4]);
    done(&cluster, add(4)).await;

    assert!(refused(&cluster, remove(leader)).await.contains("active controller"));
    let goes = if leader == 2 { 3 } else { 2 };
    done(&cluster, remove(goes)).await;
    let left: Vec<i32> = (1..=4).filter(|node| *node != goes).collect();
    assert_eq!(voters(&cluster, leader), left);
    // It still learns everything.
    cluster.node(1).allocated().await;
    cluster.converged().await;
    // The new voter counts: without one of the others there is a majority.
    let dies = left.iter().copied().find(|node| ![1, 4].contains(node)).expect("one more");
    cluster.kill(dies).await;
    cluster.leader().await;
    cluster.node(1).allocated().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_without_its_majority_is_refused() {
    let mut cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    cluster.node(1).allocated().await;
    let leader = cluster.leader().await;
    let dies = if leader == 3 { 2 } else { 3 };
    cluster.kill(dies).await;
    // The other one answers, so two of three do; of the two that would be left only one does.
    let answers = (1..=3).find(|node| ![leader, dies].contains(node)).expect("one");
    let reason = eventually("the dead one is missed", async || {
        match cluster.node(leader).submit(remove(answers)).await {
            Ok(Err(refusal)) => Some(refusal.message),
            _ => None,
        }
    })
    .await;
    assert!(reason.contains("could not be agreed on"), "{reason}");
    assert_eq!(voters(&cluster, leader), [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_active_controller_moves_on_request() {
    let cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    for _ in 0..3 {
        let leader = cluster.leader().await;
        let next = leader % 3 + 1;
        done(&cluster, ControllerRequest::TransferController { node_id: NodeId(next) }).await;
        eventually("it leads", async || {
            (cluster.node(next).status().leader_id == Some(NodeId(next))).then_some(())
        })
        .await;
    }
    cluster.converged().await;
}
