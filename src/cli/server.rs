//! `kontiki server`: one node, in this process.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;

use super::configs::parse_pair;
use super::error::Failure;
use super::lifeline;
use crate::config::{Config, KEYS};
use crate::{node, telemetry};

const EXAMPLE: &str = "Example:
  kontiki server --node-id 1 --peers 1@10.0.0.1:9192,2@10.0.0.2:9192,3@10.0.0.3:9192 \\
    --listen 10.0.0.1:9092 --data /var/lib/kontiki --set allow.unauthenticated.listeners=true";

/// Run one node
#[derive(Debug, Args)]
#[command(after_help = EXAMPLE, after_long_help = long_help())]
pub(super) struct ServerArgs {
    /// A properties file; flags win over it
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A config; may be repeated, wins over everything else
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
    /// node.id
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
    /// controller.quorum.voters: where the initial voters listen for each other; this node too, if it is one
    #[arg(long, value_name = "ID@HOST:PORT,...")]
    peers: Option<String>,
    /// data.dir
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// listeners: where clients connect
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// peer.listener: where other nodes connect [default: as --peers says]
    #[arg(long, value_name = "HOST:PORT")]
    peer_listen: Option<String>,
    /// admin.listener: where browsers connect
    #[arg(long, value_name = "HOST:PORT")]
    admin_listen: Option<String>,
    /// Stop when standard input ends: whoever started this holds the other end
    #[arg(long, hide = true)]
    exit_with_parent: bool,
}

fn long_help() -> String {
    let mut help = format!("{EXAMPLE}\n\nKeys of --set and --config:\n");
    for key in KEYS {
        let default = if key.default.is_empty() { "" } else { " = " };
        let (name, value) = (key.name, key.default);
        // Writing to a string cannot fail.
        let _ = writeln!(help, "  {name}{default}{value}\n      {}", key.documentation);
    }
    help
}

pub(super) fn run(args: ServerArgs) -> Result<(), Failure> {
    if args.exit_with_parent {
        lifeline::hold();
    }
    let config = Config::load(args.config.as_deref(), &overrides(&args))
        .map_err(|problems| Failure::usage(problems.to_string()))?;
    telemetry::init_logging();
    node::run(config).map_err(|error| Failure::refused(error.to_string()))
}

/// Flags as configs, the weakest first.
fn overrides(args: &ServerArgs) -> Vec<(String, String)> {
    let own_peer = args.node_id.as_deref().zip(args.peers.as_deref()).and_then(|(id, peers)| {
        let address_of = |peer: &str| {
            let (peer_id, address) = peer.trim().split_once('@')?;
            (peer_id == id).then(|| address.to_owned())
        };
        peers.split(',').find_map(address_of)
    });
    let flags = [
        ("node.id", &args.node_id),
        ("controller.quorum.voters", &args.peers),
        ("data.dir", &args.data),
        ("listeners", &args.listen),
        ("peer.listener", &own_peer),
        ("peer.listener", &args.peer_listen),
        ("admin.listener", &args.admin_listen),
    ];
    let flags = flags.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?)));
    flags.chain(args.set.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: ServerArgs,
    }

    fn load(flags: &str) -> Config {
        let flags = std::iter::once("server").chain(flags.split(' '));
        let command = Command::try_parse_from(flags).expect("valid flags");
        Config::load(None, &overrides(&command.args)).expect("a valid config")
    }

    #[test]
    fn an_id_and_peers_are_enough() {
        let config = load("--node-id 2 --peers 1@127.0.0.1:9001,2@127.0.0.1:9002");
        assert_eq!(config.peer.bind.port, 9002);
        assert_eq!(config.voters.len(), 2);
    }

    #[test]
    fn what_is_set_wins_over_flags() {
        let config = load("--node-id 2 --peers 2@127.0.0.1:9002 --peer-listen 127.0.0.1:9003");
        assert_eq!(config.peer.bind.port, 9003);
        let config = load("--node-id 2 --listen 127.0.0.1:9003 --set listeners=127.0.0.1:9004");
        assert_eq!(config.client.bind.port, 9004);
    }

    #[test]
    fn help_lists_every_key() {
        assert!(KEYS.iter().all(|key| long_help().contains(key.name)));
    }
}
