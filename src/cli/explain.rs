//! `kontiki explain`: why something is as it is, and what is safe to do next.

use clap::{Args, Subcommand};

use super::connect::Connect;
use super::error::Failure;
use super::output::table;
use crate::metadata::{Explanation, PartitionState};

/// Why something is as it is, and what is safe to do next
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: ExplainCommand,
}

#[derive(Debug, Subcommand)]
enum ExplainCommand {
    /// Who may lead a partition, who not and why, and what it waits for; exit code 10 unless it is healthy
    #[command(after_help = "Example:\n  kontiki explain partition orders 3")]
    Partition { topic: String, partition: i32 },
}

pub(super) async fn run(args: ExplainArgs) -> Result<(), Failure> {
    let ExplainCommand::Partition { topic, partition } = &args.command;
    let admin = args.connect.client().await?.admin();
    let explanation = admin.explain(topic, *partition).await?;
    let explanation = explanation
        .ok_or_else(|| Failure::refused(format!("{topic} has no partition {partition}")))?;
    let json = serde_json::to_value(&explanation).expect("it has only string keys");
    args.connect.output.print(&json, || to_text(&explanation))?;
    match explanation.state {
        PartitionState::Healthy => Ok(()),
        _ => Err(Failure::unhealthy()),
    }
}

fn to_text(explanation: &Explanation) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let rows = explanation.replicas.iter().map(|replica| {
        let leads = if replica.is_leader { " (leads)" } else { "" };
        [
            format!("{}{leads}", replica.node_id),
            yes(replica.in_sync),
            yes(replica.may_lead),
            replica.reasons.join("; "),
        ]
    });
    let mut text = format!(
        "{}-{}: {}\n\n{}",
        explanation.topic,
        explanation.partition,
        explanation.summary,
        table(["node", "in sync", "may lead", "because"], rows)
    );
    for (heading, sentences) in [("waits for", &explanation.waits_for), ("do", &explanation.advice)]
    {
        for sentence in sentences {
            text += &format!("\n\n{heading}: {sentence}");
        }
    }
    text
}
