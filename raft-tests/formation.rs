//! Forming and joining, with crashes and with mistakes.

use kontiki::codec;
use kontiki::net::Identity;
use kontiki::protocol::native::{Frame, JoinReply, JoinRequest, Kind, NodeHello, QuorumStatus};
use kontiki::quorum::{Error, MetaDirectory};
use kontiki::types::{BrokerEpoch, NodeId, random};

use crate::cluster::{Cluster, address, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_a_cluster() {
    let mut cluster = Cluster::started(1).await;
    cluster.node(1).register().await;
    let first = cluster.node(1).allocated().await;
    cluster.converged().await;
    cluster.kill(1).await;
    cluster.start(1).await;
    cluster.node(1).register().await;
    assert!(cluster.node(1).allocated().await > first);
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_form_one_cluster_whoever_comes_last() {
    for last in 1..=3 {
        let mut cluster = Cluster::of(3);
        for node in (1..=3).filter(|node| *node != last) {
            cluster.open(node).await;
        }
        let joining: Vec<_> = cluster
            .nodes()
            .map(|node| {
                let (quorum, seeds) = (node.quorum.clone(), cluster.seeds().to_vec());
                tokio::spawn(async move { quorum.form_or_join(&seeds).await })
            })
            .collect();
        cluster.start(last).await;
        for joined in joining {
            joined.await.expect("no panic").expect("a member");
        }
        cluster.leader().await;
        let ids: Vec<_> = cluster.nodes().map(|node| node.status().cluster_id).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(cluster.node(1).status().voters.len(), 3);
        cluster.converged().await;
    }
}

/// The decision is on disk before anybody hears of it, and everybody may die at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forming_goes_on_after_a_crash_of_all() {
    let mut cluster = Cluster::of(3);
    let mut decided = None;
    for _ in 0..4 {
        for node in 1..=3 {
            cluster.open(node).await;
        }
        let joining: Vec<_> = cluster
            .nodes()
            .map(|node| {
                let (quorum, seeds) = (node.quorum.clone(), cluster.seeds().to_vec());
                tokio::spawn(async move { quorum.form_or_join(&seeds).await })
            })
            .collect();
        let cluster_id =
            eventually("the lowest node decides", async || cluster.node(1).identity.cluster_id())
                .await;
        assert_eq!(*decided.get_or_insert(cluster_id), cluster_id);
        joining.iter().for_each(tokio::task::JoinHandle::abort);
        for node in 1..=3 {
            cluster.kill(node).await;
        }
    }
    for node in 1..=3 {
        cluster.open(node).await;
    }
    cluster.join_all().await;
    cluster.leader().await;
    assert_eq!(cluster.node(2).identity.cluster_id(), decided);
    cluster.converged().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fourth_node_joins_as_a_learner_and_comes_back() {
    let mut cluster = Cluster::started(3).await;
    cluster.start(4).await;
    let status = cluster.node(4).status();
    assert_eq!(status.learners.len(), 1);
    assert_eq!((status.learners[0].node_id, status.voters.len()), (NodeId(4), 3));
    cluster.node(4).register().await;
    cluster.node(4).allocated().await;
    cluster.converged().await;
    cluster.kill(4).await;
    cluster.node(1).register().await;
    cluster.node(1).allocated().await;
    cluster.start(4).await;
    cluster.converged().await;
}

/// Design D4: a node id with an empty disk is a new Raft node. It learns first, and then votes in the place of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_voter_takes_its_old_place_as_a_new_one() {
    let mut cluster = Cluster::started(3).await;
    cluster.node(1).register().await;
    let voter = |status: &QuorumStatus, node: i32| {
        let found = status.voters.iter().find(|voter| voter.node_id == NodeId(node));
        found.map(|voter| voter.raft_node_id)
    };
    let old = voter(&cluster.node(1).status(), 3).expect("it votes");
    for _ in 0..2 {
        cluster.kill(3).await;
        std::fs::remove_dir_all(cluster.directory.path().join("3")).expect("removed");
        cluster.start(3).await;
    }
    let leader = cluster.leader().await;
    eventually("the new disk votes, and the old one is gone", async || {
        let status = cluster.node(leader).status();
        let new = voter(&status, 3).filter(|new| *new != old)?;
        let is_done = status.voters.len() == 3 && status.learners.is_empty();
        is_done.then_some(new)
    })
    .await;
    cluster.converged().await;
    // It counts: with it and one other there is a majority.
    cluster.kill(1).await;
    cluster.leader().await;
    cluster.node(2).register().await;
    cluster.converged().await;
}

/// Nobody gets the id of a node that runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_disk_under_the_id_of_a_running_node_is_refused() {
    let cluster = Cluster::started(3).await;
    let leader = cluster.leader().await;
    let taken = NodeId(if leader == 3 { 2 } else { 3 });
    let intruder = Identity::new(taken, random::uuid(), None);
    let request =
        JoinRequest { node_id: taken, directory_id: intruder.directory_id, peer: address(77) };
    let hello = NodeHello {
        node_id: taken,
        directory_id: intruder.directory_id,
        incarnation: intruder.incarnation,
        broker_epoch: BrokerEpoch::NONE,
    };
    let frame = Frame::new(Kind::Join, 1, &request);
    let reply = cluster.node(leader).quorum.on_frame(Some(hello), frame).await.expect("answered");
    let reply: JoinReply = codec::decode("reply", &reply.body, 1 << 20).expect("a reply");
    let JoinReply::Refused { reason } = reply else { panic!("{reply:?}") };
    assert!(reason.contains("runs with another data directory"), "{reason}");
    assert_eq!(cluster.node(leader).status().voters.len(), 3);
}

/// The identity is there, the log is not: nothing of it may be made up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_directory_is_refused_when_it_is_opened() {
    let mut cluster = Cluster::started(1).await;
    cluster.kill(1).await;
    let path = cluster.directory.path().join("1");
    std::fs::remove_dir_all(path.join("log")).expect("removed");
    let refused = eventually("the lock is free", async || {
        let opened = MetaDirectory::open_or_format(&path, NodeId(1));
        let text = opened.expect_err("refused").to_string();
        (!text.contains("in use")).then_some(text)
    })
    .await;
    assert!(refused.contains("has lost its log"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_lists_of_peers_are_refused() {
    let mut cluster = Cluster::of(2);
    cluster.open(1).await;
    cluster.open(2).await;
    let swapped = [
        (NodeId(1), crate::cluster::address(2)),
        (NodeId(2), crate::cluster::address(1)),
        (NodeId(3), crate::cluster::address(2)),
    ];
    let refused = cluster.node(1).quorum.form_or_join(&swapped).await;
    let Err(Error::Formation(reason)) = refused else { panic!("not refused: {refused:?}") };
    assert!(reason.contains("correct the list"), "{reason}");
    assert_eq!(cluster.node(1).identity.cluster_id(), None);
}
