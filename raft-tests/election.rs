//! Leaders that die, are cut off, or hand over.

use std::time::Duration;

use kontiki::controller::ControllerReply;
use kontiki::quorum::Error;
use kontiki::types::NodeId;

use crate::cluster::{Cluster, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_node_takes_over_when_the_leader_dies_and_nothing_is_lost() {
    let mut cluster = Cluster::started(3).await;
    for node in 1..=3 {
        cluster.node(node).register().await;
    }
    for _ in 0..4 {
        let old = cluster.leader().await;
        let other = cluster.follower().await;
        let before = cluster.node(other).allocated().await;
        cluster.kill(old).await;
        let new = cluster.leader_other_than(old).await;
        assert!(cluster.node(new).allocated().await > before);
        cluster.start(old).await;
        cluster.node(old).register().await;
        cluster.converged().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_nodes_come_back_from_their_disks() {
    let mut cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    let mut last = cluster.node(1).allocated().await;
    for _ in 0..3 {
        let before = cluster.converged().await;
        for node in 1..=3 {
            cluster.kill(node).await;
        }
        for node in 1..=3 {
            cluster.open(node).await;
        }
        cluster.join_all().await;
        cluster.leader().await;
        let after = cluster.converged().await;
        assert_eq!(after.next_producer_id, before.next_producer_id);
        cluster.node(1).register().await;
        let next = cluster.node(1).allocated().await;
        assert!(next > last);
        last = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_answers_nothing_that_is_undone() {
    let cluster = Cluster::started(3).await;
    for node in 1..=3 {
        cluster.node(node).register().await;
    }
    let old = cluster.leader().await;
    cluster.cut_off(old);
    // Whatever it says to this, it must not say that it is done.
    let alone = cluster.node(old).clone();
    let asked = tokio::spawn(async move { alone.allocate(Duration::from_secs(2)).await });
    let new = cluster.leader_other_than(old).await;
    let first = cluster.node(new).allocated().await;
    let answer = asked.await.expect("no panic");
    // Once it knows, it says so at once.
    eventually("the old leader knows that it is cut off", async || {
        let refused = cluster.node(old).allocate(Duration::from_millis(50)).await;
        matches!(refused, Err(Error::NoController(_))).then_some(())
    })
    .await;
    assert!(
        matches!(answer, Err(Error::Unknown(_) | Error::NoController(_))),
        "a leader without a quorum answered {answer:?}"
    );
    cluster.heal();
    let follower = eventually("the old leader follows", async || {
        (cluster.node(old).status().leader_id == cluster.node(new).status().leader_id)
            .then_some(old)
    })
    .await;
    assert!(cluster.node(follower).allocated().await > first);
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_is_cut_off_does_not_disturb_the_leader() {
    let cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).status().term;
    let follower = cluster.follower().await;
    cluster.cut_off(follower);
    // Longer than several election timeouts, measured in work.
    for _ in 0..40 {
        cluster.node(leader).register().await;
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    cluster.heal();
    cluster.node(leader).register().await;
    cluster.node(leader).allocated().await;
    cluster.converged().await;
    assert_eq!(cluster.node(leader).status().term, term, "its term was not raised by pre-votes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_hands_over_before_it_goes() {
    let mut cluster = Cluster::started(3).await;
    for node in 1..=3 {
        cluster.node(node).register().await;
    }
    let old = cluster.leader().await;
    let other = cluster.follower().await;
    let before = cluster.node(other).allocated().await;
    let term = cluster.node(other).status().term;
    let leaving = cluster.node(old).clone();
    cluster.shut_down(old).await;
    assert_ne!(leaving.status().leader_id, Some(NodeId(old)), "it left without handing over");
    cluster.leader_other_than(old).await;
    assert!(cluster.node(other).status().term > term);
    assert!(cluster.node(other).allocated().await > before);
    cluster.converged().await;
}

/// One batch for everything that waits: many requests, few log entries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_share_an_entry() {
    let cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    let before = cluster.converged().await.index;
    let requests: Vec<_> = (0..300)
        .map(|_| {
            let node = cluster.node(1).clone();
            tokio::spawn(async move { node.allocated().await })
        })
        .collect();
    let mut blocks = Vec::new();
    for request in requests {
        blocks.push(request.await.expect("answered"));
    }
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), 300);
    let entries = cluster.converged().await.index - before;
    assert!(entries < 150, "300 requests made {entries} entries");
}

/// Clients that never wait for each other, while leaders die: every answer must fit into one order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_are_linearizable_while_leaders_change() {
    let mut cluster = Cluster::started(3).await;
    let mut clients = Vec::new();
    for node in 1..=3 {
        cluster.node(node).register().await;
    }
    for round in 0..3 {
        let survivors: Vec<_> = cluster.nodes().cloned().collect();
        let old = cluster.leader().await;
        for node in survivors {
            clients.push(tokio::spawn(async move {
                let mut answered = 0;
                for _ in 0..30 {
                    match node.allocate(Duration::from_millis(700)).await {
                        Ok(Ok(ControllerReply::AllocateProducerIds { .. })) => answered += 1,
                        // Its broker was registered again, or nobody knows.
                        Ok(Err(_)) | Err(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
                answered
            }));
        }
        cluster.kill(old).await;
        cluster.leader_other_than(old).await;
        cluster.start(old).await;
        cluster.node(old).register().await;
        println!("round {round}: leader {old} was killed");
    }
    let mut answered = 0;
    for client in clients {
        answered += client.await.expect("no panic");
    }
    assert!(answered > 60, "only {answered} answers: the run proves little");
    cluster.converged().await;
}
