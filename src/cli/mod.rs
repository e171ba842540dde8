//! The command line: nouns, then verbs.
//!
//! Every command takes `--output table|json`, shows an example in its help, and ends with a code that scripts can use:
//! 0 done, 1 refused, 2 wrong usage, 3 nobody reachable, 10 unhealthy. What a command was asked for goes to standard
//! output, everything else to standard error. All but `server`, `dev`, `check` and what looks into files (`log`,
//! `fsck`) are clients like any other.

mod broker;
mod chaos;
mod check;
mod cluster;
mod configs;
mod connect;
mod consume;
mod dev;
mod error;
mod explain;
mod fsck;
mod lifeline;
mod log;
mod moment;
mod output;
mod partition;
mod produce;
mod quorum;
mod report_html;
mod server;
mod topic;
mod trim;

use std::future::Future;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::error::Failure;

/// A replicated commit log that needs nothing beside itself.
#[derive(Debug, Parser)]
#[command(
    name = "kontiki",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = "The first minute:\n  kontiki dev\n  kontiki topic create greetings\n  echo hello | kontiki produce greetings\n  kontiki consume greetings --until-end\n\nExit codes: 0 done, 1 refused, 2 wrong usage, 3 nobody reachable, 10 unhealthy"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Server(server::ServerArgs),
    Dev(dev::DevArgs),
    Topic(topic::TopicArgs),
    Produce(produce::ProduceArgs),
    Consume(consume::ConsumeArgs),
    Partition(partition::PartitionArgs),
    Broker(broker::BrokerArgs),
    Quorum(quorum::QuorumArgs),
    Cluster(cluster::ClusterArgs),
    Explain(explain::ExplainArgs),
    Chaos(chaos::ChaosArgs),
    Check(check::CheckArgs),
    Log(log::LogArgs),
    Fsck(fsck::FsckArgs),
}

/// Parses the command line of this process, does what it says, and returns the code to exit with.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Server(args) => server::run(args),
        Command::Dev(args) => dev::run(args),
        Command::Topic(args) => block_on(topic::run(args)),
        Command::Produce(args) => block_on(produce::run(args)),
        Command::Consume(args) => block_on(consume::run(args)),
        Command::Partition(args) => block_on(partition::run(args)),
        Command::Broker(args) => block_on(broker::run(args)),
        Command::Quorum(args) => block_on(quorum::run(args)),
        Command::Cluster(args) => block_on(cluster::run(args)),
        Command::Explain(args) => block_on(explain::run(args)),
        Command::Chaos(args) => block_on(chaos::run(args)),
        Command::Check(args) => check::run(&args),
        Command::Log(args) => log::run(args),
        Command::Fsck(args) => fsck::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Runs a command that is a client.
fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::refused(format!("cannot start threads: {error}")))?;
    let done = runtime.block_on(command);
    // A thread that still reads standard input must not hold up the exit.
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let is_leaf = command.get_subcommands().next().is_none();
            if is_leaf {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Example"), "`{}` --help has no example", path.trim());
            }
            command.get_subcommands().for_each(|command| check(command, &path));
        }
        check(&Cli::command(), "");
    }
}
