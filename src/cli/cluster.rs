//! `kontiki cluster`.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::broker;
use super::connect::Connect;
use super::error::Failure;
use super::output::{count, table};
use crate::client::ClusterView;
use crate::protocol::native::{PartitionView, QuorumStatus};

/// An active controller that is there answers within milliseconds; an election takes less than this.
const QUORUM_ROUND_MAX: Duration = Duration::from_secs(3);

/// See the whole cluster
#[derive(Debug, Args)]
pub(super) struct ClusterArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Whether all is well, and if not, what is not; exit code 10 then
    #[command(
        visible_alias = "health",
        after_help = "Example:\n  kontiki cluster status || echo 'look at it'"
    )]
    Status,
}

pub(super) async fn run(args: ClusterArgs) -> Result<(), Failure> {
    let ClusterCommand::Status = args.command;
    let admin = args.connect.client().await?.admin();
    let (view, quorum) = (admin.describe_cluster().await?, admin.quorum_status().await?);
    let mut problems = problems(&view, &quorum);
    // What a node remembers of the cluster may be old. A round through the quorum shows that it is not.
    let round = timeout(QUORUM_ROUND_MAX, admin.check_quorum()).await;
    if !matches!(round, Ok(Ok(()))) {
        problems.insert(
            0,
            "no active controller answers: what is shown may be old, and no change is possible"
                .to_owned(),
        );
    }
    let brokers: Vec<Value> =
        view.brokers.values().map(|broker| broker::to_json(&view, broker)).collect();
    let partitions: usize = view.topics.values().map(|topic| topic.partitions.len()).sum();
    let json = json!({
        "cluster_id": view.cluster_id.map(|id| id.to_string()),
        "healthy": problems.is_empty(),
        "problems": problems,
        "controller": view.controller,
        "topics": view.topics.len(),
        "partitions": partitions,
        "brokers": brokers,
    });
    args.connect.output.print(&json, || {
        let rows = view.brokers.values().map(|b| {
            let address = b.endpoints.client.to_string();
            let is_controller = view.controller == Some(b.node_id);
            let role = if is_controller { "active controller" } else { "" };
            [b.node_id.to_string(), broker::state(b).to_owned(), address, role.to_owned()]
        });
        let health = match problems.as_slice() {
            [] => "healthy".to_owned(),
            problems => format!("UNHEALTHY\n  {}", problems.join("\n  ")),
        };
        format!(
            "{health}\n\n{}, {}\n\n{}",
            count(view.topics.len(), "topic"),
            count(partitions, "partition"),
            table(["id", "state", "address", ""], rows),
        )
    })?;
    if problems.is_empty() { Ok(()) } else { Err(Failure::unhealthy()) }
}

/// What an operator should know, worst first.
fn problems(view: &ClusterView, quorum: &QuorumStatus) -> Vec<String> {
    let mut problems = Vec::new();
    if quorum.leader_id.is_none() {
        problems.push("the metadata quorum has no leader: no change is possible".to_owned());
    }
    let partitions = |is_bad: fn(&PartitionView) -> bool| -> Vec<String> {
        let named = view.topics.values().flat_map(|topic| {
            let bad = topic.partitions.iter().filter(|partition| is_bad(partition));
            bad.map(|partition| format!("{}-{}", topic.name, partition.partition))
        });
        named.collect()
    };
    let mut say = |names: Vec<String>, what: &str| {
        const NAMES_MAX: usize = 5;
        if !names.is_empty() {
            let more = names.len().saturating_sub(NAMES_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let shown = names[..names.len().min(NAMES_MAX)].join(", ");
            problems.push(format!("{} {what}: {shown}{more}", count(names.len(), "partition")));
        }
    };
    say(partitions(|p| p.leader.known().is_none()), "without a leader (unavailable)");
    say(
        partitions(|p| p.leader.known().is_some() && p.isr.len() < p.replicas.len()),
        "with replicas out of sync",
    );
    for broker in view.brokers.values().filter(|broker| broker.fenced) {
        problems.push(format!("broker {} is fenced: it is down or cut off", broker.node_id));
    }
    problems
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use crate::protocol::native::TopicView;
    use crate::types::{LeaderEpoch, NodeId, PartitionEpoch, Uuid};

    #[test]
    fn problems_are_named() {
        let partition = |number: i32, leader: i32, isr: &[i32]| PartitionView {
            partition: number,
            leader: NodeId(leader),
            leader_epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(1),
            replicas: vec![NodeId(1), NodeId(2)],
            isr: isr.iter().map(|id| NodeId(*id)).collect(),
            elr: Vec::new(),
            adding: Vec::new(),
            removing: Vec::new(),
        };
        let topic = TopicView {
            topic_id: Uuid([1; 16]),
            name: "t".to_owned(),
            partitions: vec![
                partition(0, 1, &[1, 2]),
                partition(1, -1, &[]),
                partition(2, 1, &[1]),
            ],
            configs: BTreeMap::new(),
        };
        let mut view = ClusterView::default();
        view.topics.insert("t".to_owned(), Arc::new(topic));
        let mut quorum = QuorumStatus {
            cluster_id: Uuid([2; 16]),
            node_id: NodeId(1),
            leader_id: Some(NodeId(1)),
            term: 1,
            last_log_index: 1,
            applied_index: 1,
            voters: Vec::new(),
            learners: Vec::new(),
        };
        assert_eq!(
            problems(&view, &quorum),
            [
                "1 partition without a leader (unavailable): t-1",
                "1 partition with replicas out of sync: t-2"
            ]
        );
        quorum.leader_id = None;
        view.topics.clear();
        assert_eq!(problems(&view, &quorum).len(), 1);
    }
}
