//! `kontiki partition`: who holds which partition, moving that, and whether replicas are equal.

mod compare;
mod difference;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connect::Connect;
use super::error::Failure;
use super::output::{count, nodes, table};
use crate::client::Admin;
use crate::protocol::native::{PartitionView, TopicView};
use crate::types::NodeId;

/// Move and compare replicas, move leaders
#[derive(Debug, Args)]
pub(super) struct PartitionArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: PartitionCommand,
}

#[derive(Debug, Subcommand)]
enum PartitionCommand {
    /// Give a partition other replicas while it serves
    #[command(
        after_help = "Example:\n  kontiki partition move orders 3 --to 4,1,2\n\nThe first is the preferred leader. New replicas catch up before old ones go; `kontiki partition status` shows it."
    )]
    Move {
        topic: String,
        partition: i32,
        /// Brokers that shall hold it, the preferred leader first
        #[arg(long, value_name = "ID,...", required = true, value_delimiter = ',')]
        to: Vec<i32>,
        /// Only say what would be added and removed
        #[arg(long)]
        dry_run: bool,
    },
    /// Moves that are under way
    #[command(after_help = "Example:\n  kontiki partition status --output json")]
    Status,
    /// End a move that is under way: the old replicas stay
    #[command(after_help = "Example:\n  kontiki partition cancel orders 3")]
    Cancel { topic: String, partition: i32 },
    /// Give leadership back to first replicas now
    #[command(
        after_help = "Example:\n  kontiki partition elect orders\n\nIt happens by itself, too: see auto.leader.rebalance.enable."
    )]
    Elect {
        /// All topics when none is named
        topic: Option<String>,
    },
    /// Compare the replicas of a topic, or of one partition, byte for byte below the high watermark
    #[command(
        after_help = "Examples:\n  kontiki partition compare orders\n  kontiki partition compare orders 3 --output json\n\nExit code 10 when replicas differ or one cannot be asked. What is said to be here is on the first replica that is listed, which leads if it can. Of compacted topics, records that only some replicas still have are no difference."
    )]
    Compare(compare::CompareArgs),
}

pub(super) async fn run(args: PartitionArgs) -> Result<(), Failure> {
    let connect = &args.connect;
    let client = connect.client().await?;
    let admin = client.admin();
    match args.command {
        PartitionCommand::Compare(compare) => compare::run(connect, &client, compare).await,
        PartitionCommand::Move { topic, partition, to, dry_run } => {
            let to: Vec<NodeId> = to.into_iter().map(NodeId).collect();
            let before = find(&admin, &topic, partition).await?;
            if !dry_run {
                admin.reassign(&topic, vec![(partition, Some(to.clone()))]).await?;
            }
            let minus = |a: &[NodeId], b: &[NodeId]| -> Vec<NodeId> {
                a.iter().copied().filter(|node| !b.contains(node)).collect()
            };
            let settled = minus(&before.replicas, &before.adding);
            let (adding, removing) = (minus(&to, &settled), minus(&settled, &to));
            let json = json!({
                "topic": topic, "partition": partition, "dry_run": dry_run,
                "to": ids(&to), "adding": ids(&adding), "removing": ids(&removing),
            });
            let verb = if dry_run { "would move" } else { "moving" };
            connect.output.print(&json, || {
                let (adding, removing) = (nodes(&adding), nodes(&removing));
                format!("{verb} {topic}-{partition}: adds {adding}, removes {removing}")
            })?;
            Ok(())
        }
        PartitionCommand::Status => status(connect, &admin).await,
        PartitionCommand::Cancel { topic, partition } => {
            admin.reassign(&topic, vec![(partition, None)]).await?;
            let json = json!({ "topic": topic, "partition": partition });
            connect.output.print(&json, || format!("{topic}-{partition} keeps its replicas"))?;
            Ok(())
        }
        PartitionCommand::Elect { topic } => {
            let (moved, refused) = admin.elect_preferred(topic.as_deref()).await?;
            let reasons: Vec<String> = refused.iter().map(|r| r.message.clone()).collect();
            let json = json!({ "moved": moved, "refused": reasons });
            connect.output.print(&json, || {
                let kept = refused.len();
                let first = reasons.first().map(|why| format!(" ({why})")).unwrap_or_default();
                format!("{} moved, {kept} could not{first}", count(moved, "leader"))
            })?;
            if refused.is_empty() { Ok(()) } else { Err(Failure::unhealthy()) }
        }
    }
}

async fn find(admin: &Admin, topic: &str, partition: i32) -> Result<PartitionView, Failure> {
    let view = admin.describe_topic(topic).await?;
    let found = view.partitions.into_iter().find(|view| view.partition == partition);
    found.ok_or_else(|| Failure::refused(format!("{topic} has no partition {partition}")))
}

async fn status(connect: &Connect, admin: &Admin) -> Result<(), Failure> {
    let cluster = admin.describe_cluster().await?;
    let moving: Vec<(&TopicView, &PartitionView)> = cluster
        .topics
        .values()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| (&**topic, partition)))
        .filter(|(_, partition)| !(partition.adding.is_empty() && partition.removing.is_empty()))
        .collect();
    let json: Vec<Value> = moving
        .iter()
        .map(|(topic, partition)| {
            json!({
                "topic": topic.name, "partition": partition.partition,
                "leader": partition.leader.0, "isr": ids(&partition.isr),
                "adding": ids(&partition.adding), "removing": ids(&partition.removing),
                "waits_for": ids(&waits_for(partition)),
            })
        })
        .collect();
    connect.output.print(&json!({ "moving": json }), || {
        if moving.is_empty() {
            return "nothing moves".to_owned();
        }
        let rows = moving.iter().map(|(topic, partition)| {
            [
                format!("{}-{}", topic.name, partition.partition),
                partition.leader.to_string(),
                nodes(&partition.isr),
                nodes(&partition.adding),
                nodes(&partition.removing),
                nodes(&waits_for(partition)),
            ]
        });
        table(["partition", "leader", "in sync", "adding", "removing", "waits for"], rows)
    })?;
    Ok(())
}

/// Replicas that shall stay and are not in sync yet.
fn waits_for(partition: &PartitionView) -> Vec<NodeId> {
    let stays = |node: &NodeId| !partition.removing.contains(node);
    let missing = |node: &NodeId| !partition.isr.contains(node);
    partition.replicas.iter().copied().filter(|node| stays(node) && missing(node)).collect()
}

fn ids(nodes: &[NodeId]) -> Vec<i32> {
    nodes.iter().map(|node| node.0).collect()
}
