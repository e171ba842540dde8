//! One process.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use kontiki::types::time;
use rustix::process::{Pid, Signal, kill_process};

use super::wait::DEADLINE;

/// The program under test.
pub(crate) fn kontiki() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kontiki"));
    command.stdin(Stdio::null()).env_remove("RUST_LOG").env_remove("KONTIKI_BOOTSTRAP");
    command
}

/// `kontiki server` with its settings and its log. Killed when dropped, and it ends with this process in any case.
#[derive(Debug)]
pub(crate) struct Node {
    settings: Vec<(String, String)>,
    log: PathBuf,
    child: Option<Child>,
    paused: bool,
}

/// How a process ended, and everything that it had logged.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) status: ExitStatus,
    pub(crate) log: String,
}

impl Node {
    /// Does not start it.
    pub(crate) fn new(settings: Vec<(String, String)>, log: &Path) -> Self {
        Self { settings, log: log.to_owned(), child: None, paused: false }
    }

    /// Starts it again and again in the life of a cluster; the log goes on.
    pub(crate) fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log = || -> File {
            let file = OpenOptions::new().create(true).append(true).open(&self.log);
            file.unwrap_or_else(|error| panic!("{}: {error}", self.log.display()))
        };
        let mut command = kontiki();
        // However this process ends, the pipe ends with it, and the node with the pipe.
        command.args(["server", "--exit-with-parent"]).stdin(Stdio::piped());
        for (key, value) in &self.settings {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let child = command.stdout(log()).stderr(log()).spawn();
        self.child = Some(child.expect("the built binary starts"));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_some_and(|child| child.try_wait().expect("our own child").is_none())
    }

    /// Started, and neither ended by the test nor paused.
    pub(crate) fn is_up(&self) -> bool {
        self.child.is_some() && !self.paused
    }

    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        self.paused = true;
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.paused = false;
    }

    /// It runs, but nobody is to ask it: as if it were paused.
    #[allow(dead_code, reason = "for tests/disk, which shares this harness")]
    pub(crate) fn set_hanging(&mut self, hanging: bool) {
        self.paused = hanging;
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it was started");
        let pid = Pid::from_child(child);
        kill_process(pid, signal).expect("a child that was not waited for can be signalled");
    }

    /// `kill -9`, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child that was not waited for can be killed");
            child.wait().expect("our own child");
        }
        self.paused = false;
    }

    /// Waits until it ends by itself.
    pub(crate) async fn exit(&mut self) -> Exit {
        let mut child = self.child.take().expect("it was started");
        let start = time::now();
        loop {
            if let Some(status) = child.try_wait().expect("our own child") {
                return Exit { status, log: self.log() };
            }
            if start.elapsed() > DEADLINE {
                child.kill().expect("a child that was not waited for can be killed");
                child.wait().expect("our own child");
                panic!("still running after {DEADLINE:?}:\n{}", self.log());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// SIGTERM, and waits until it has ended.
    pub(crate) async fn stop(&mut self) -> Exit {
        self.signal(Signal::TERM);
        self.exit().await
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn log_path(&self) -> &Path {
        &self.log
    }

    pub(crate) fn setting(&self, key: &str) -> &str {
        let found = self.settings.iter().find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str()).expect("a setting that the harness made")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
