//! One node of a development cluster: a `kontiki server` process, and what is known of it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{self, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::layout::Layout;

/// What a node is doing, as far as its supervisor knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Starting,
    /// Ready, when last asked.
    Running,
    Paused,
    Stopping,
    /// Ended because it was told to.
    Stopped,
    Killed,
    /// Ended by itself, or by somebody else's hand.
    Died(ExitStatus),
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) id: u16,
    pub(super) state: State,
    /// Counts starts, so that news of an earlier process is not taken for news of this one.
    pub(super) generation: u32,
    /// Its standard input is the lifeline: it ends when the node's supervisor does.
    process: Option<process::Child>,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Killed => "killed",
            Self::Died(_) => "died",
        }
    }
}

impl Child {
    pub(super) fn new(id: u16) -> Self {
        Self { id, state: State::Stopped, generation: 0, process: None }
    }

    /// Starts the process. It logs to a file of its own.
    pub(super) fn start(&mut self, program: &Path, layout: &Layout) -> io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(layout.log_file(self.id))?;
        let mut command = process::Command::new(program);
        command.args(["server", "--exit-with-parent"]);
        for (key, value) in layout.configs(self.id) {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is for the supervisor, who then stops the nodes in good order.
            .process_group(0)
            .spawn()?;
        self.process = Some(spawned);
        self.state = State::Starting;
        self.generation += 1;
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(process::Child::id)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.process.is_some()
    }

    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.state = State::Killed;
    }

    pub(super) fn pause(&mut self) {
        self.signal(Signal::STOP);
        self.state = State::Paused;
    }

    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.state = State::Running;
    }

    pub(super) fn stop(&mut self) {
        self.signal(Signal::TERM);
        // A frozen process would not notice.
        self.signal(Signal::CONT);
        self.state = State::Stopping;
    }

    /// The process was not waited for yet, so its id is still its own.
    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            // It may have ended a moment ago, which will be noticed.
            let _ = kill_process(pid, signal);
        }
    }

    /// Notices that the process has ended. True when it just did.
    pub(super) fn reap(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let Ok(Some(status)) = process.try_wait() else { return false };
        self.process = None;
        self.state = match self.state {
            State::Stopping => State::Stopped,
            State::Killed => State::Killed,
            _ => State::Died(status),
        };
        true
    }
}

/// How a process ended, in words.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
