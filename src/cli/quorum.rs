//! `kontiki quorum`.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connect::Connect;
use super::error::Failure;
use super::output::table;
use crate::controller::ControllerRequest;
use crate::protocol::native::{QuorumMember, QuorumStatus};
use crate::types::NodeId;

/// See and change the metadata quorum
#[derive(Debug, Args)]
pub(super) struct QuorumArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: QuorumCommand,
}

#[derive(Debug, Subcommand)]
enum QuorumCommand {
    /// Leader, term, voters and learners, with how far each is behind
    #[command(after_help = "Example:\n  kontiki quorum status --output json")]
    Status,
    /// Make a node that has caught up a voter
    #[command(after_help = "Example:\n  kontiki quorum add 4")]
    Add { node: i32 },
    /// Make a voter a learner: it still gets all metadata, and does not count any more
    #[command(after_help = "Example:\n  kontiki quorum remove 2")]
    Remove { node: i32 },
    /// Make another voter the active controller
    #[command(after_help = "Example:\n  kontiki quorum transfer 3")]
    Transfer { node: i32 },
}

pub(super) async fn run(args: QuorumArgs) -> Result<(), Failure> {
    let admin = args.connect.client().await?.admin();
    let request = match args.command {
        QuorumCommand::Status => None,
        QuorumCommand::Add { node } => Some(ControllerRequest::AddVoter { node_id: NodeId(node) }),
        QuorumCommand::Remove { node } => {
            Some(ControllerRequest::RemoveVoter { node_id: NodeId(node) })
        }
        QuorumCommand::Transfer { node } => {
            Some(ControllerRequest::TransferController { node_id: NodeId(node) })
        }
    };
    if let Some(request) = request {
        admin.change_quorum(request).await?;
    }
    let status = admin.quorum_status().await?;
    args.connect.output.print(&to_json(&status), || to_text(&status))?;
    match status.leader_id {
        Some(_) => Ok(()),
        None => Err(Failure::unhealthy()),
    }
}

fn to_json(status: &QuorumStatus) -> Value {
    let member = |member: &QuorumMember| {
        json!({
            "id": member.node_id,
            "raft_node_id": format!("{:016x}", member.raft_node_id),
            "peer": member.peer.to_string(),
            "lag": member.lag,
        })
    };
    json!({
        "cluster_id": status.cluster_id.to_string(),
        "leader_id": status.leader_id,
        "term": status.term,
        "last_log_index": status.last_log_index,
        "applied_index": status.applied_index,
        "answered_by": status.node_id,
        "voters": status.voters.iter().map(member).collect::<Vec<_>>(),
        "learners": status.learners.iter().map(member).collect::<Vec<_>>(),
    })
}

fn to_text(status: &QuorumStatus) -> String {
    let leader = match status.leader_id {
        Some(leader) => format!("node {leader}"),
        None => "none: no change of metadata is possible".to_owned(),
    };
    let row = |member: &QuorumMember, role: &str| {
        let is_leader = status.leader_id == Some(member.node_id);
        [
            member.node_id.to_string(),
            if is_leader { "leader".to_owned() } else { role.to_owned() },
            member.peer.to_string(),
            member.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string()),
        ]
    };
    let voters = status.voters.iter().map(|member| row(member, "voter"));
    let learners = status.learners.iter().map(|member| row(member, "learner"));
    format!(
        "cluster  {}\nleader   {leader}\nterm     {}\napplied  {} of {}\n\n{}",
        status.cluster_id,
        status.term,
        status.applied_index,
        status.last_log_index,
        table(["id", "role", "peer", "lag"], voters.chain(learners)),
    )
}
