//! `kontiki broker`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::configs::{self, ConfigChanges};
use super::connect::Connect;
use super::error::Failure;
use super::output::table;
use crate::client::ClusterView;
use crate::protocol::native::BrokerView;
use crate::types::{ConfigResource, NodeId};

/// See brokers
#[derive(Debug, Args)]
pub(super) struct BrokerArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: BrokerCommand,
}

#[derive(Debug, Subcommand)]
enum BrokerCommand {
    /// All brokers, with what they lead
    #[command(after_help = "Example:\n  kontiki broker list --output json")]
    List,
    /// See or change the configs of one broker, or those that all brokers have in common
    ///
    /// Most of them are defaults of topics: what a topic does not set itself.
    #[command(
        after_help = "Examples:\n  kontiki broker config\n  kontiki broker config --set log.retention.ms=86400000\n  kontiki broker config 2 --unset log.retention.ms"
    )]
    Config {
        /// Id of the broker [default: all brokers]
        id: Option<i32>,
        #[command(flatten)]
        changes: ConfigChanges,
    },
}

pub(super) async fn run(args: BrokerArgs) -> Result<(), Failure> {
    let admin = args.connect.client().await?.admin();
    if let BrokerCommand::Config { id, changes } = args.command {
        let (resource, name) = match id {
            Some(id) => (ConfigResource::Broker(NodeId(id)), format!("broker {id}")),
            None => (ConfigResource::Cluster, "all brokers".to_owned()),
        };
        return configs::run(&args.connect, &admin, resource, &name, changes).await;
    }
    let view = admin.describe_cluster().await?;
    let json: Vec<Value> = view.brokers.values().map(|broker| to_json(&view, broker)).collect();
    args.connect.output.print(&Value::from(json), || {
        let row = |broker: &BrokerView| {
            let (leads, replicas) = load(&view, broker);
            [
                broker.node_id.to_string(),
                state(broker).to_owned(),
                broker.endpoints.client.to_string(),
                broker.rack.clone().unwrap_or_else(|| "-".to_owned()),
                leads.to_string(),
                replicas.to_string(),
                offline(broker),
            ]
        };
        let heading = ["id", "state", "address", "rack", "leads", "replicas", "offline"];
        table(heading, view.brokers.values().map(row))
    })?;
    Ok(())
}

pub(super) fn to_json(view: &ClusterView, broker: &BrokerView) -> Value {
    let (leads, replicas) = load(view, broker);
    json!({
        "id": broker.node_id,
        "state": state(broker),
        "epoch": broker.broker_epoch,
        "kafka": broker.endpoints.client.to_string(),
        "peer": broker.endpoints.peer.to_string(),
        "admin": broker.endpoints.admin.to_string(),
        "rack": broker.rack,
        "is_controller": view.controller == Some(broker.node_id),
        "leads": leads,
        "replicas": replicas,
        "offline_replicas": broker.offline_replicas,
        "offline_directories": broker.offline_directories,
    })
}

pub(super) fn state(broker: &BrokerView) -> &'static str {
    match (broker.fenced, broker.in_controlled_shutdown) {
        (true, _) => "fenced",
        (false, true) => "draining",
        (false, false) => "active",
    }
}

/// Replicas out of service, and failed log directories with what is wrong.
fn offline(broker: &BrokerView) -> String {
    let directories: Vec<String> = broker
        .offline_directories
        .iter()
        .map(|(path, reason)| format!("{path}: {reason}"))
        .collect();
    match (broker.offline_replicas, directories.as_slice()) {
        (0, []) => "-".to_owned(),
        (replicas, []) => format!("{replicas} replicas"),
        (replicas, some) => format!("{replicas} replicas; {}", some.join("; ")),
    }
}

/// Partitions that it leads, and replicas that it holds.
fn load(view: &ClusterView, broker: &BrokerView) -> (usize, usize) {
    let partitions = || view.topics.values().flat_map(|topic| &topic.partitions);
    let leads = partitions().filter(|partition| partition.leader == broker.node_id).count();
    let replicas =
        partitions().filter(|partition| partition.replicas.contains(&broker.node_id)).count();
    (leads, replicas)
}
