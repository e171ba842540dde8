//! `kontiki dev`: a whole cluster on this machine, and what breaks it.
//!
//! One supervisor in the foreground starts real `kontiki server` processes, restarts them when told, and takes them with
//! it when it ends, whatever ends it. It listens on a Unix socket in a directory of the user, named after the base port;
//! the other `dev` commands find it there.

mod child;
mod control;
mod layout;
mod readiness;
mod supervisor;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use self::control::Command;
pub(super) use self::control::{Command as Verb, Request, find};
use self::layout::Layout;
pub(super) use self::layout::apart;
use super::configs::parse_pair;
use super::error::Failure;
use super::lifeline;
use super::output::{Output, table};

/// Run a cluster on this machine, and break it
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  kontiki dev\n  kontiki dev --ephemeral --nodes 1 --output json\n  kontiki dev kill 2 && kontiki dev status"
)]
pub(super) struct DevArgs {
    #[command(subcommand)]
    command: Option<DevCommand>,
    /// How many nodes [default: as many as the directory has, else 3]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: Option<u16>,
    /// Where everything is kept; the same directory again goes on where it ended
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Keep everything in a temporary directory, and remove it at the end
    #[arg(long, conflicts_with = "data")]
    ephemeral: bool,
    /// Node N listens for clients on this + N, for peers on + 100 + N, for admin HTTP on + 200 + N
    /// [default: as last time, else 9091]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..=65_000))]
    base_port: Option<u16>,
    /// A config of every node; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
    /// Let somebody stand between the nodes: they look for each other at addresses where none of them listens
    #[arg(long, hide = true)]
    peers_apart: bool,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    exit_with_parent: bool,
    /// For people, or for programs
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum DevCommand {
    /// What runs
    #[command(after_help = "Example:\n  kontiki dev status --output json")]
    Status,
    /// Kill a node as a crash would (SIGKILL)
    #[command(after_help = "Example:\n  kontiki dev kill 2")]
    Kill { id: i32 },
    /// Freeze a node (SIGSTOP): it is there, and silent
    #[command(after_help = "Example:\n  kontiki dev pause 2")]
    Pause { id: i32 },
    /// Let a frozen node go on (SIGCONT)
    #[command(after_help = "Example:\n  kontiki dev resume 2")]
    Resume { id: i32 },
    /// Start a node that was stopped, was killed or died
    #[command(after_help = "Example:\n  kontiki dev start 2")]
    Start { id: i32 },
    /// Stop a node in good order (SIGTERM)
    #[command(after_help = "Example:\n  kontiki dev stop 2")]
    Stop { id: i32 },
}

pub(super) fn run(args: DevArgs) -> Result<(), Failure> {
    // One thread: a child takes the end of the thread that started it for the end of this process.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start: {error}")))?;
    let Some(command) = args.command else {
        let mut layout = match args.ephemeral {
            true => Layout::ephemeral(args.nodes, args.base_port, args.set),
            false => Layout::durable(args.data, args.nodes, args.base_port, args.set)?,
        };
        layout.peers_apart = args.peers_apart;
        if args.exit_with_parent {
            lifeline::hold();
        }
        return runtime.block_on(supervisor::run(layout, args.output));
    };
    let (command, id) = match command {
        DevCommand::Status => (Command::Status, None),
        DevCommand::Kill { id } => (Command::Kill, Some(id)),
        DevCommand::Pause { id } => (Command::Pause, Some(id)),
        DevCommand::Resume { id } => (Command::Resume, Some(id)),
        DevCommand::Start { id } => (Command::Start, Some(id)),
        DevCommand::Stop { id } => (Command::Stop, Some(id)),
    };
    let reply = runtime.block_on(async {
        let mut supervisor = control::find(args.data.as_deref()).await?;
        supervisor.ask(&Request { command, id }).await
    })?;
    if let Some(refused) = reply.refused {
        return Err(Failure::refused(refused));
    }
    args.output.print(&reply.status, || status_text(&reply.status))?;
    Ok(())
}

fn status_text(status: &Value) -> String {
    let word = |node: &Value, key: &str| match &node[key] {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let keys = ["id", "state", "pid", "kafka", "peer", "admin"];
    let rows = status["nodes"].as_array().into_iter().flatten();
    let data = status["data"].as_str().unwrap_or("?");
    format!("{}\n\ndata  {data}", table(keys, rows.map(|node| keys.map(|key| word(node, key)))))
}
