//! The cluster that is broken: one of our own, or a foreign one with the commands that break it.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::{JoinSet, spawn_blocking};

use super::network::Network;
use crate::cli::dev::{Request, Verb, find};
use crate::cli::error::Failure;

/// A cluster under test. Clones act on the same one.
#[derive(Debug, Clone)]
pub(super) enum Victim {
    /// Run by `kontiki dev` in this directory.
    Dev {
        data: PathBuf,
        ids: Vec<i32>,
        network: Network,
    },
    Foreign {
        commands: Vec<(Verb, String)>,
        ids: Vec<i32>,
    },
}

impl Victim {
    pub(super) fn ids(&self) -> &[i32] {
        match self {
            Self::Dev { ids, .. } | Self::Foreign { ids, .. } => ids,
        }
    }

    pub(super) fn network(&self) -> Option<&Network> {
        match self {
            Self::Dev { network, .. } => Some(network),
            Self::Foreign { .. } => None,
        }
    }

    pub(super) fn has_disks(&self) -> bool {
        matches!(self, Self::Dev { .. })
    }

    /// Everything that a node of our own has stored is gone. It must not run.
    pub(super) fn wipe(&self, id: i32) -> Result<(), Failure> {
        let Self::Dev { data, .. } = self else {
            return Err(Failure::usage("only the disks of our own cluster can be wiped"));
        };
        let node = data.join(format!("node-{id}"));
        std::fs::remove_dir_all(&node)
            .map_err(|error| Failure::refused(format!("cannot wipe {}: {error}", node.display())))
    }

    pub(super) fn can(&self, verb: Verb) -> bool {
        match self {
            Self::Dev { .. } => true,
            Self::Foreign { commands, .. } => commands.iter().any(|(known, _)| *known == verb),
        }
    }

    /// Returns when it is done; a start, when the node is ready.
    pub(super) async fn act(&self, verb: Verb, id: i32) -> Result<(), Failure> {
        match self {
            Self::Dev { data, .. } => {
                let mut supervisor = find(Some(data)).await?;
                let reply = supervisor.ask(&Request { command: verb, id: Some(id) }).await?;
                match reply.refused {
                    Some(refused) => Err(Failure::refused(refused)),
                    None => Ok(()),
                }
            }
            Self::Foreign { commands, .. } => {
                let command = commands.iter().find(|(known, _)| *known == verb);
                let (_, command) = command
                    .ok_or_else(|| Failure::usage(format!("no command for {}", verb.name())))?;
                let command = command.replace("{}", &id.to_string());
                blocking(move || {
                    let status =
                        Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).status();
                    match status {
                        Ok(status) if status.success() => Ok(()),
                        Ok(status) => {
                            Err(Failure::refused(format!("`{command}` ended with {status}")))
                        }
                        Err(error) => Err(Failure::refused(format!("cannot run sh: {error}"))),
                    }
                })
                .await
            }
        }
    }

    /// The same to several nodes at once: a start may need the others.
    pub(super) async fn act_on_all(&self, verb: Verb, ids: &[i32]) -> Result<(), Failure> {
        let mut actions = JoinSet::new();
        for &id in ids {
            let victim = self.clone();
            actions.spawn(async move { victim.act(verb, id).await });
        }
        while let Some(done) = actions.join_next().await {
            done.map_err(|error| Failure::refused(error.to_string()))??;
        }
        Ok(())
    }
}

/// Our own cluster; it ends with this.
#[derive(Debug)]
pub(super) struct Dev {
    process: Child,
    pub(super) victim: Victim,
    /// Addresses for clients, with commas between.
    pub(super) bootstrap: String,
}

impl Dev {
    /// Blocks until all nodes are ready. Their network is there before them.
    pub(super) fn start(
        data: &Path,
        nodes: u16,
        base_port: u16,
        configs: &[(String, String)],
        network: Network,
    ) -> Result<Self, Failure> {
        let cannot = |error| Failure::refused(format!("cannot start `kontiki dev`: {error}"));
        let program = std::env::current_exe().map_err(cannot)?;
        let mut command = Command::new(program);
        command
            .args(["dev", "--exit-with-parent", "--peers-apart", "--output", "json", "--data"])
            .arg(data);
        command.args(["--nodes", &nodes.to_string(), "--base-port", &base_port.to_string()]);
        for (key, value) in configs {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let mut process = command
            // Its lifeline.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C ends the faults, not the cluster.
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let mut banner = String::new();
        if let Some(stdout) = process.stdout.take() {
            BufReader::new(stdout).read_line(&mut banner).map_err(cannot)?;
        }
        let banner: Value = serde_json::from_str(&banner).map_err(|_| {
            Failure::refused(format!(
                "`kontiki dev` did not come up; try it alone: kontiki dev --data {} --base-port {base_port}",
                data.display()
            ))
        })?;
        let nodes = || banner["nodes"].as_array().into_iter().flatten();
        let ids = nodes().filter_map(|node| i32::try_from(node["id"].as_i64()?).ok()).collect();
        let addresses: Vec<&str> = nodes().filter_map(|node| node["kafka"].as_str()).collect();
        let bootstrap = addresses.join(",");
        Ok(Self { process, victim: Victim::Dev { data: data.to_owned(), ids, network }, bootstrap })
    }

    /// In good order. Blocks.
    pub(super) fn stop(mut self) {
        if let Some(pid) = Pid::from_raw(i32::try_from(self.process.id()).unwrap_or(0)) {
            // It was not waited for yet, so the id is still its own. It may have ended a moment ago.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
    }
}

/// For what blocks.
pub(super) async fn blocking<T: std::marker::Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + std::marker::Send + 'static,
) -> Result<T, Failure> {
    spawn_blocking(work).await.map_err(|error| Failure::refused(error.to_string()))?
}
