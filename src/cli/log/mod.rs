//! `kontiki log`: what lies in the files of partitions.
//!
//! All but `import` read offline and change nothing. They work on Kafka's directories as well as on ours.

mod dump;
mod import;
mod stats;
mod verify;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::block_on;
use super::connect::Connect;
use super::error::Failure;
use crate::storage::inspect::is_partition;

/// Look into the files of partitions
#[derive(Debug, Args)]
pub(super) struct LogArgs {
    #[command(flatten)]
    connect: Connect,
    #[command(subcommand)]
    command: LogCommand,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Print batches, index entries, snapshots and checkpoints
    #[command(
        after_help = "Examples:\n  kontiki log dump kontiki-data/node-1/logs/orders-0\n  kontiki log dump kontiki-data/node-1/logs/orders-0/00000000000000000000.log --records --output json"
    )]
    Dump(dump::DumpArgs),
    /// Check every batch, and everything beside the batches against them
    #[command(
        after_help = "Example:\n  kontiki log verify kontiki-data/node-1/logs\n\nExit code 10 when something is wrong. Changes nothing; `kontiki fsck` mends what can be mended. Of a running node, the end of a log may be seen half written."
    )]
    Verify(verify::VerifyArgs),
    /// Count records, bytes, codecs, producers and epochs
    #[command(after_help = "Example:\n  kontiki log stats kontiki-data/node-1/logs/orders-0")]
    Stats(stats::StatsArgs),
    /// Copy a partition directory that Kafka or Kontiki wrote into an empty partition of a cluster
    #[command(
        after_help = "Examples:\n  kontiki topic create orders --partitions 1\n  kontiki log import /var/kafka/orders-0\n  kontiki log import /var/kafka/orders-0 --topic archive --partition 3 --dry-run\n\nThe batches stay as they are: the same offsets, keys, values, headers, timestamps and codecs. Stop the broker that the directory belongs to first."
    )]
    Import(import::ImportArgs),
}

pub(super) fn run(args: LogArgs) -> Result<(), Failure> {
    match args.command {
        LogCommand::Dump(dump) => dump::run(args.connect.output, &dump),
        LogCommand::Verify(verify) => verify::run(args.connect.output, &verify),
        LogCommand::Stats(stats) => stats::run(args.connect.output, &stats),
        LogCommand::Import(import) => block_on(import::run(args.connect, import)),
    }
}

/// The partition directories that a path means: itself, or those in it.
fn partitions(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error| Failure::refused(format!("cannot list {}: {error}", path.display()));
    // So that `.` has a name.
    let path = path.canonicalize().map_err(unreadable)?;
    if is_partition(&path) {
        return Ok(vec![path]);
    }
    let entries = path.read_dir().map_err(unreadable)?;
    let entries: Result<Vec<PathBuf>, _> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut found = entries.map_err(unreadable)?;
    found.retain(|path| path.is_dir() && is_partition(path));
    found.sort_unstable();
    if found.is_empty() {
        let problem = format!("{} is no partition directory, and holds none", path.display());
        return Err(Failure::refused(problem));
    }
    Ok(found)
}

impl From<crate::storage::Error> for Failure {
    fn from(error: crate::storage::Error) -> Self {
        Self::refused(error.to_string())
    }
}
