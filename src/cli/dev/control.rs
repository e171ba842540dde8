//! How the other `dev` commands reach the one that runs the cluster: one line of JSON there, one back.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use super::layout::Memory;
use crate::cli::error::Failure;

/// Longest line.
const LINE_MAX: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) enum Command {
    Status,
    Kill,
    Pause,
    Resume,
    Start,
    Stop,
}

impl Command {
    const ACTIONS: [Self; 5] = [Self::Kill, Self::Pause, Self::Resume, Self::Start, Self::Stop];

    /// As it is typed.
    pub(in crate::cli) fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Start => "start",
            Self::Stop => "stop",
        }
    }

    /// One that acts on a node.
    pub(in crate::cli) fn from_name(name: &str) -> Option<Self> {
        Self::ACTIONS.into_iter().find(|action| action.name() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct Request {
    pub(in crate::cli) command: Command,
    /// Of the node; `None` only for the status.
    pub(in crate::cli) id: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::cli) struct Reply {
    /// Why nothing was done.
    pub(in crate::cli) refused: Option<String>,
    pub(super) status: Value,
}

/// A connection, from either side.
#[derive(Debug)]
pub(in crate::cli) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Asks the supervisor, and waits until it has done what it was asked.
    pub(in crate::cli) async fn ask(&mut self, request: &Request) -> Result<Reply, Failure> {
        let gone = |error| Failure::unreachable(format!("`kontiki dev` went away: {error}"));
        self.send(request).await.map_err(gone)?;
        self.receive().await.map_err(gone)
    }

    pub(super) async fn send<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await
    }

    pub(super) async fn receive<T: for<'a> Deserialize<'a>>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_MAX).read_line(&mut line).await?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Where the supervisor of the cluster with this base port listens.
pub(super) fn socket_path(base_port: u16) -> io::Result<PathBuf> {
    Ok(socket_directory()?.join(format!("dev-{base_port}.sock")))
}

/// A directory that only this user can write to.
fn socket_directory() -> io::Result<PathBuf> {
    let uid = getuid().as_raw();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR").filter(|root| !root.is_empty()) {
        Some(root) if Path::new(&root).is_dir() => PathBuf::from(root).join("kontiki"),
        _ => std::env::temp_dir().join(format!("kontiki-{uid}")),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    if fs::symlink_metadata(&directory)?.uid() != uid {
        let refused = format!("{} belongs to somebody else", directory.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
    }
    Ok(directory)
}

/// Listens for other commands. Takes over the socket of a supervisor that is gone.
pub(super) async fn listen(base_port: u16) -> Result<(UnixListener, PathBuf), Failure> {
    let cannot = |error| Failure::refused(format!("cannot listen for other commands: {error}"));
    let path = socket_path(base_port).map_err(cannot)?;
    if UnixStream::connect(&path).await.is_ok() {
        return Err(Failure::refused(format!(
            "`kontiki dev` runs with base port {base_port} already; --base-port chooses another"
        )));
    }
    let _ = fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(cannot)?;
    Ok((listener, path))
}

/// The supervisor of the cluster in this directory, or the only one that runs.
pub(in crate::cli) async fn find(data: Option<&Path>) -> Result<Connection, Failure> {
    if let Some(data) = data {
        let gone = || {
            let data = data.display();
            Failure::unreachable(format!(
                "no cluster runs in {data}; `kontiki dev --data {data}` starts one"
            ))
        };
        let memory = Memory::read(data).ok_or_else(gone)?;
        let path = socket_path(memory.base_port).map_err(|_| gone())?;
        return Ok(Connection::new(UnixStream::connect(path).await.map_err(|_| gone())?));
    }
    let mut running = Vec::new();
    for entry in socket_directory().and_then(fs::read_dir).into_iter().flatten().flatten() {
        if let Ok(stream) = UnixStream::connect(entry.path()).await {
            running.push(Connection::new(stream));
        }
    }
    match running.len() {
        0 => Err(Failure::unreachable("no cluster runs; `kontiki dev` starts one")),
        1 => Ok(running.remove(0)),
        several => {
            let request = Request { command: Command::Status, id: None };
            let mut data = Vec::new();
            for connection in &mut running {
                let reply = connection.ask(&request).await?;
                data.push(reply.status["data"].as_str().unwrap_or("?").to_owned());
            }
            let data = data.join("\n  ");
            Err(Failure::usage(format!("{several} clusters run; say which with --data:\n  {data}")))
        }
    }
}
