//! Options of every command that talks to a cluster.

use std::time::Duration;

use clap::Args;

use super::error::Failure;
use super::output::Output;
use crate::client::{Client, ClientConfig};

#[derive(Debug, Clone, Args)]
pub(super) struct Connect {
    /// Any node's clients port, or several with commas between
    #[arg(
        long,
        global = true,
        value_name = "HOST:PORT",
        env = "KONTIKI_BOOTSTRAP",
        default_value = "127.0.0.1:9092",
        help_heading = "Connection"
    )]
    bootstrap: String,

    /// Seconds to try before giving up
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        default_value_t = 30,
        help_heading = "Connection"
    )]
    timeout: u64,

    /// For people, or for programs
    #[arg(long, global = true, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
}

impl Connect {
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let mut config = ClientConfig::new(&[&self.bootstrap])?;
        config.deadline = self.timeout();
        Ok(Client::connect_with(config).await?)
    }
}
