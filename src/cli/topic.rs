//! `kontiki topic`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::configs::{self, ConfigChanges};
use super::connect::Connect;
use super::error::Failure;
use super::output::{count, nodes, table};
use super::trim::{self, TrimArgs};
use crate::client::{Admin, Error, NewTopic};
use crate::protocol::ErrorCode;
use crate::protocol::native::{PartitionView, TopicView};
use crate::types::{ConfigResource, NodeId};

/// Create, see and change topics
#[derive(Debug, Args)]
pub(super) struct TopicArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Debug, Subcommand)]
enum TopicCommand {
    /// Create a topic
    #[command(
        after_help = "Examples:\n  kontiki topic create orders --partitions 12 --config max.message.bytes=4194304\n  kontiki topic create pinned --assign 0=1,2,3 --assign 1=2,3,1"
    )]
    Create(CreateArgs),
    /// All topics
    #[command(after_help = "Example:\n  kontiki topic list --output json")]
    List,
    /// Partitions with leaders, replicas and epochs
    #[command(after_help = "Example:\n  kontiki topic describe orders")]
    Describe {
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Delete topics and their records
    #[command(after_help = "Example:\n  kontiki topic delete orders --dry-run")]
    Delete {
        #[arg(required = true)]
        names: Vec<String>,
        /// Say what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
        /// A topic that does not exist is no failure
        #[arg(long)]
        if_exists: bool,
    },
    /// See or change the configs of a topic
    #[command(
        after_help = "Examples:\n  kontiki topic config orders\n  kontiki topic config orders --set max.message.bytes=4194304 --unset segment.bytes"
    )]
    Config(ConfigArgs),
    /// Give a topic more partitions
    ///
    /// Records with a key may go to another partition than before from then on.
    #[command(after_help = "Example:\n  kontiki topic alter orders --partitions 24")]
    Alter(AlterArgs),
    /// Delete records at the beginning of a topic
    #[command(
        after_help = "Examples:\n  kontiki topic trim orders --partition 3 --to 1000\n  kontiki topic trim orders --to end\n  kontiki topic trim orders --before 30d --dry-run"
    )]
    Trim(TrimArgs),
}

#[derive(Debug, Args)]
struct CreateArgs {
    name: String,
    /// How many partitions [default: the cluster's]
    #[arg(long, short, value_name = "COUNT")]
    partitions: Option<i32>,
    /// How many replicas of each [default: the cluster's, 3 or as many as there are brokers]
    #[arg(long, short, value_name = "COUNT")]
    replication_factor: Option<i16>,
    /// Replicas of one partition, the preferred leader first; for every partition, instead of the counts
    #[arg(
        long = "assign",
        value_name = "PARTITION=ID,ID,...",
        value_parser = parse_assignment,
        conflicts_with_all = ["partitions", "replication_factor"]
    )]
    assignments: Vec<(i32, Vec<NodeId>)>,
    /// A config; may be repeated
    #[arg(long = "config", short, value_name = "KEY=VALUE", value_parser = configs::parse_pair)]
    configs: Vec<(String, String)>,
    /// A topic that exists already is no failure
    #[arg(long)]
    if_not_exists: bool,
    /// Check, and create nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
struct ConfigArgs {
    name: String,
    #[command(flatten)]
    changes: ConfigChanges,
}

#[derive(Debug, Args)]
struct AlterArgs {
    name: String,
    /// How many partitions it shall have: more than now
    #[arg(long, short, value_name = "COUNT")]
    partitions: i32,
    /// Check, and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn parse_assignment(text: &str) -> Result<(i32, Vec<NodeId>), String> {
    let parse = || {
        let (partition, replicas) = text.split_once('=')?;
        let replicas: Result<Vec<i32>, _> = replicas.split(',').map(str::parse).collect();
        let replicas = replicas.ok()?.into_iter().map(NodeId).collect();
        Some((partition.parse().ok()?, replicas))
    };
    parse().ok_or_else(|| format!("{text:?} is not PARTITION=ID,ID,..."))
}

pub(super) async fn run(args: TopicArgs) -> Result<(), Failure> {
    let admin = args.connect.client().await?.admin();
    let connect = &args.connect;
    match args.command {
        TopicCommand::Create(args) => create(connect, &admin, args).await,
        TopicCommand::List => list(connect, &admin).await,
        TopicCommand::Describe { names } => describe(connect, &admin, &names).await,
        TopicCommand::Delete { names, dry_run, if_exists } => {
            delete(connect, &admin, &names, dry_run, if_exists).await
        }
        TopicCommand::Config(ConfigArgs { name, changes }) => {
            let resource = ConfigResource::Topic(name.as_str().into());
            configs::run(connect, &admin, resource, &name, changes).await
        }
        TopicCommand::Alter(args) => alter(connect, &admin, args).await,
        TopicCommand::Trim(args) => trim::run(connect, &admin, args).await,
    }
}

async fn create(connect: &Connect, admin: &Admin, args: CreateArgs) -> Result<(), Failure> {
    let topic = NewTopic {
        partitions: args.partitions,
        replication_factor: args.replication_factor,
        assignments: args.assignments.into_iter().collect(),
        configs: args.configs,
        ..NewTopic::new(args.name.clone())
    };
    let created = match args.dry_run {
        true => admin.check_topic(topic).await,
        false => admin.create_topic(topic).await,
    };
    let (created, exists) = match created {
        Err(error) if args.if_not_exists && error.code() == Some(ErrorCode::TopicAlreadyExists) => {
            (None, true)
        }
        created => (Some(created?), false),
    };
    let json = match &created {
        None => json!({ "name": args.name, "created": false }),
        Some(created) => json!({
            "name": created.name,
            // A dry run has no id that means anything.
            "topic_id": (!args.dry_run).then(|| created.topic_id.to_string()),
            "partitions": created.partition_count,
            "replication_factor": created.replication_factor,
            "created": !args.dry_run,
        }),
    };
    connect.output.print(&json, || match &created {
        Some(created) => format!(
            "{} {} with {}, {} each",
            if args.dry_run { "would create" } else { "created" },
            created.name,
            count(usize::try_from(created.partition_count).unwrap_or(0), "partition"),
            count(usize::try_from(created.replication_factor).unwrap_or(0), "replica"),
        ),
        None => format!("{} {}", args.name, if exists { "exists already" } else { "" }),
    })?;
    Ok(())
}

async fn list(connect: &Connect, admin: &Admin) -> Result<(), Failure> {
    let view = admin.describe_cluster().await?;
    let topics = || view.topics.values();
    let is_under_replicated = |p: &&PartitionView| p.isr.len() < p.replicas.len();
    let json: Vec<Value> = topics()
        .map(|topic| {
            json!({
                "name": topic.name,
                "topic_id": topic.topic_id.to_string(),
                "partitions": topic.partitions.len(),
                "replication_factor": replication_factor(topic),
                "under_replicated": topic.partitions.iter().filter(is_under_replicated).count(),
            })
        })
        .collect();
    connect.output.print(&Value::from(json), || {
        let row = |topic: &TopicView| {
            let under_replicated = topic.partitions.iter().filter(is_under_replicated).count();
            [
                topic.name.clone(),
                topic.partitions.len().to_string(),
                replication_factor(topic).to_string(),
                under_replicated.to_string(),
            ]
        };
        let heading = ["name", "partitions", "replicas", "under-replicated"];
        table(heading, topics().map(|topic| row(topic)))
    })?;
    Ok(())
}

fn replication_factor(topic: &TopicView) -> usize {
    topic.partitions.first().map_or(0, |partition| partition.replicas.len())
}

async fn describe(connect: &Connect, admin: &Admin, names: &[String]) -> Result<(), Failure> {
    let mut topics = Vec::new();
    for name in names {
        topics.push(admin.describe_topic(name).await?);
    }
    let json: Vec<Value> = topics.iter().map(topic_json).collect();
    connect.output.print(&Value::from(json), || {
        topics.iter().map(topic_text).collect::<Vec<_>>().join("\n\n")
    })?;
    Ok(())
}

fn topic_json(topic: &TopicView) -> Value {
    let partition = |partition: &PartitionView| {
        json!({
            "partition": partition.partition,
            "leader": partition.leader.known(),
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "replicas": partition.replicas,
            "isr": partition.isr,
            "elr": partition.elr,
        })
    };
    json!({
        "name": topic.name,
        "topic_id": topic.topic_id.to_string(),
        "configs": topic.configs,
        "partitions": topic.partitions.iter().map(partition).collect::<Vec<_>>(),
    })
}

fn topic_text(topic: &TopicView) -> String {
    let configs: Vec<String> =
        topic.configs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let configs = if configs.is_empty() { "all default".to_owned() } else { configs.join(" ") };
    let row = |partition: &PartitionView| {
        [
            partition.partition.to_string(),
            partition.leader.known().map_or_else(|| "none".to_owned(), |id| id.to_string()),
            partition.leader_epoch.to_string(),
            nodes(&partition.replicas),
            nodes(&partition.isr),
            nodes(&partition.elr),
        ]
    };
    format!(
        "topic    {}\nid       {}\nconfigs  {configs}\n\n{}",
        topic.name,
        topic.topic_id,
        table(
            ["partition", "leader", "epoch", "replicas", "isr", "elr"],
            topic.partitions.iter().map(row)
        ),
    )
}

async fn delete(
    connect: &Connect,
    admin: &Admin,
    names: &[String],
    dry_run: bool,
    if_exists: bool,
) -> Result<(), Failure> {
    // All must exist before any is deleted.
    let mut found = Vec::new();
    for name in names {
        match admin.describe_topic(name).await {
            Ok(topic) => found.push(topic),
            Err(Error::UnknownTopic { .. }) if if_exists => {}
            Err(error) => return Err(error.into()),
        }
    }
    for topic in found.iter().filter(|_| !dry_run) {
        admin.delete_topic(&topic.name).await?;
    }
    let deleted: Vec<&str> = found.iter().map(|topic| topic.name.as_str()).collect();
    let json = json!({ "deleted": if dry_run { &[][..] } else { &deleted }, "found": deleted });
    connect.output.print(&json, || {
        let verb = if dry_run { "would delete" } else { "deleted" };
        let line = |topic: &TopicView| {
            format!("{verb} {} ({})", topic.name, count(topic.partitions.len(), "partition"))
        };
        found.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    Ok(())
}

async fn alter(connect: &Connect, admin: &Admin, args: AlterArgs) -> Result<(), Failure> {
    admin.create_partitions(&args.name, args.partitions, args.dry_run).await?;
    let json =
        json!({ "name": args.name, "partitions": args.partitions, "changed": !args.dry_run });
    connect.output.print(&json, || {
        let verb = if args.dry_run { "would have" } else { "has" };
        let partitions = usize::try_from(args.partitions).unwrap_or(0);
        format!("{} {verb} {}", args.name, count(partitions, "partition"))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_and_pairs() {
        assert_eq!(parse_assignment("2=3,1"), Ok((2, vec![NodeId(3), NodeId(1)])));
        for bad in ["", "1", "a=1", "1=", "1=a", "1=1,,2"] {
            assert!(parse_assignment(bad).is_err(), "{bad}");
        }
        assert_eq!(configs::parse_pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert_eq!(configs::parse_pair("a="), Ok(("a".to_owned(), String::new())));
        assert!(configs::parse_pair("=a").is_err() && configs::parse_pair("a").is_err());
    }
}
