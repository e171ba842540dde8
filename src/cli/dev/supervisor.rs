//! Runs the nodes of a development cluster until told to stop.
//!
//! Invariant: no node outlives the supervisor. Those it stops it waits for; when it is killed, their lifelines end.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::child::{Child, State, describe};
use super::control::{self, Command, Connection, Reply, Request};
use super::layout::{Layout, local};
use super::readiness::wait_until_ready;
use crate::cli::error::Failure;
use crate::cli::output::{Output, count, table};
use crate::types::time;

/// Nodes that were told to stop are killed after this.
const STOP_MAX: Duration = Duration::from_secs(15);
/// Lines of a node's log that are shown when it cannot start.
const LOG_TAIL: usize = 15;

/// Starts the cluster, and stops it on Ctrl-C, SIGTERM, or when the terminal is closed.
pub(super) async fn run(mut layout: Layout, output: Output) -> Result<(), Failure> {
    let started = time::now();
    layout.prepare()?;
    let cannot = |error: io::Error| Failure::refused(format!("cannot start: {error}"));
    let program = std::env::current_exe().map_err(cannot)?;
    let (listener, socket) = control::listen(layout.base_port).await?;
    let mut signals = Signals::new().map_err(cannot)?;
    let (news, events) = mpsc::channel(64);
    let children = layout.ids().map(Child::new).collect();
    let mut supervisor =
        Supervisor { layout, program, children, news, waiting: Vec::new(), output };
    let ended = supervisor.supervise(started, listener, events, &mut signals).await;
    supervisor.stop_all(&mut signals).await;
    let _ = fs::remove_file(socket);
    supervisor.layout.clean_up();
    ended
}

struct Supervisor {
    layout: Layout,
    program: PathBuf,
    children: Vec<Child>,
    /// Given to the tasks that bring events.
    news: mpsc::Sender<Event>,
    waiting: Vec<Waiting>,
    output: Output,
}

enum Event {
    Ready { id: u16, generation: u32 },
    Asked { request: Request, reply: oneshot::Sender<Reply> },
}

/// Somebody who waits until a node is ready, or has ended.
struct Waiting {
    id: u16,
    until: Until,
    reply: oneshot::Sender<Reply>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    Ready,
    Ended,
}

struct Signals {
    stop: StopSignals,
    child: Signal,
}

struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let stop = StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        };
        Ok(Self { stop, child: signal(SignalKind::child())? })
    }
}

impl StopSignals {
    /// Completes when one has come.
    async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

impl Supervisor {
    async fn supervise(
        &mut self,
        started: Instant,
        listener: UnixListener,
        mut events: mpsc::Receiver<Event>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        for index in 0..self.children.len() {
            self.start(index)
                .map_err(|error| Failure::refused(format!("cannot start a node: {error}")))?;
        }
        let mut all_were_ready = false;
        loop {
            tokio::select! {
                () = signals.stop.recv() => return Ok(()),
                _ = signals.child.recv() => self.on_child_ended(all_were_ready)?,
                Ok((stream, _)) = listener.accept() => {
                    tokio::spawn(serve(Connection::new(stream), self.news.clone()));
                }
                Some(event) = events.recv() => match event {
                    Event::Ready { id, generation } => self.on_ready(id, generation),
                    Event::Asked { request, reply } => self.on_asked(request, reply),
                },
            }
            let is_ready = |child: &Child| child.state == State::Running;
            if !all_were_ready && self.children.iter().all(is_ready) {
                all_were_ready = true;
                // Nobody may be reading; the cluster runs all the same.
                let _ = self.announce(time::now() - started);
            }
        }
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        let child = &mut self.children[index];
        child.start(&self.program, &self.layout)?;
        let (id, generation, news) = (child.id, child.generation, self.news.clone());
        let admin_port = self.layout.admin(id);
        tokio::spawn(async move {
            wait_until_ready(admin_port).await;
            let _ = news.send(Event::Ready { id, generation }).await;
        });
        Ok(())
    }

    fn on_ready(&mut self, id: u16, generation: u32) {
        let child = self.children.iter_mut().find(|child| child.id == id);
        let Some(child) = child.filter(|child| child.generation == generation) else { return };
        if child.state == State::Starting {
            child.state = State::Running;
        }
        self.answer_waiting(id, Until::Ready, None);
    }

    fn on_child_ended(&mut self, all_were_ready: bool) -> Result<(), Failure> {
        for index in 0..self.children.len() {
            if !self.children[index].reap() {
                continue;
            }
            let (id, state) = (self.children[index].id, self.children[index].state);
            let mut refused = None;
            if let State::Died(status) = state {
                let log = self.layout.log_file(id);
                let tail = log_tail(&fs::read_to_string(&log).unwrap_or_default());
                let how = describe(status);
                if !all_were_ready {
                    return Err(Failure::refused(format!(
                        "node {id} could not start ({how}). The end of {}:\n{tail}",
                        log.display()
                    )));
                }
                eprintln!("node {id} died ({how}); `kontiki dev start {id}` starts it again");
                refused = Some(format!("node {id} died ({how}):\n{tail}"));
            }
            self.answer_waiting(id, Until::Ended, None);
            self.answer_waiting(id, Until::Ready, refused.or(Some(format!("node {id} ended"))));
        }
        Ok(())
    }

    fn answer_waiting(&mut self, id: u16, until: Until, refused: Option<String>) {
        let status = self.status();
        let answered =
            self.waiting.extract_if(.., |waiting| waiting.id == id && waiting.until == until);
        for waiting in answered {
            // Who asked may have gone.
            let _ = waiting.reply.send(Reply { refused: refused.clone(), status: status.clone() });
        }
    }

    fn on_asked(&mut self, request: Request, reply: oneshot::Sender<Reply>) {
        match self.obey(request) {
            Ok(Some((id, until))) => self.waiting.push(Waiting { id, until, reply }),
            outcome => {
                let _ = reply.send(Reply { refused: outcome.err(), status: self.status() });
            }
        }
    }

    /// Does what was asked, or says why not. What is to be waited for is returned.
    fn obey(&mut self, request: Request) -> Result<Option<(u16, Until)>, String> {
        let Some(asked) = request.id else { return Ok(None) };
        let position = self.children.iter().position(|child| i32::from(child.id) == asked);
        let index = position.ok_or_else(|| {
            format!("there is no node {asked}: they are 1 to {}", self.layout.nodes)
        })?;
        let child = &mut self.children[index];
        let (id, state) = (child.id, child.state);
        let can = match request.command {
            Command::Status => true,
            Command::Start => !child.is_alive(),
            Command::Resume => state == State::Paused,
            Command::Pause => matches!(state, State::Starting | State::Running),
            Command::Kill | Command::Stop => child.is_alive(),
        };
        if !can {
            return Err(format!("node {id} is {}", state.name()));
        }
        match request.command {
            Command::Status => return Ok(None),
            Command::Pause => child.pause(),
            Command::Resume => child.resume(),
            Command::Kill => child.kill(),
            Command::Stop => child.stop(),
            Command::Start => {
                self.start(index).map_err(|error| format!("cannot start node {id}: {error}"))?;
            }
        }
        eprintln!("node {id}: {}", self.children[index].state.name());
        Ok(match request.command {
            Command::Start => Some((id, Until::Ready)),
            Command::Kill | Command::Stop => Some((id, Until::Ended)),
            _ => None,
        })
    }

    fn status(&self) -> Value {
        let node = |child: &Child| {
            let mut node = self.node(child);
            node["state"] = child.state.name().into();
            node
        };
        json!({
            "data": self.layout.data.display().to_string(),
            "nodes": self.children.iter().map(node).collect::<Vec<_>>(),
        })
    }

    fn node(&self, child: &Child) -> Value {
        json!({
            "id": child.id,
            "pid": child.pid(),
            "kafka": local(self.layout.client(child.id)),
            "peer": local(self.layout.peer(child.id)),
            "admin": local(self.layout.admin(child.id)),
        })
    }

    /// Says that all nodes are ready, and what to do with them.
    fn announce(&self, took: Duration) -> io::Result<()> {
        let nodes: Vec<Value> = self.children.iter().map(|child| self.node(child)).collect();
        let json = json!({ "nodes": nodes, "data": self.layout.data.display().to_string() });
        self.output.print(&json, || self.banner(took))?;
        io::stdout().flush()
    }

    fn banner(&self, took: Duration) -> String {
        let rows = self.children.iter().map(|child| {
            let (id, pid) = (child.id, child.pid().map_or_else(String::new, |pid| pid.to_string()));
            let admin = format!("http://{}", local(self.layout.admin(id)));
            let (client, peer) = (local(self.layout.client(id)), local(self.layout.peer(id)));
            [id.to_string(), pid, client, peer, admin]
        });
        let nodes = table(["node", "pid", "clients", "peers", "admin"], rows);
        let clients = self.children.iter().map(|child| local(self.layout.client(child.id)));
        let clients = clients.collect::<Vec<_>>().join(",");
        let bootstrap = format!("export KONTIKI_BOOTSTRAP={clients}\n       ");
        let until = if self.layout.is_ephemeral { " (removed at the end)" } else { "" };
        format!(
            "{} ready in {:.1} s. Ctrl-C stops them.\n\n{nodes}\n\n\
             data   {}{until}\n\
             try    {bootstrap}kontiki topic create greetings\n       \
             echo hello | kontiki produce greetings\n       \
             kontiki consume greetings --until-end\n\
             break  kontiki dev kill 1; kontiki cluster status; kontiki dev start 1\n\
             logs   {}\n",
            count(self.children.len(), "node"),
            took.as_secs_f64(),
            self.layout.data.display(),
            self.layout.data.join("node-*.log").display(),
        )
    }

    /// Stops all nodes at once, and waits for them; kills what is left after a while, or when told a second time.
    async fn stop_all(&mut self, signals: &mut Signals) {
        for child in self.children.iter_mut().filter(|child| child.is_alive()) {
            child.stop();
        }
        let mut is_late = false;
        let patience = sleep(STOP_MAX);
        tokio::pin!(patience);
        loop {
            for child in &mut self.children {
                child.reap();
            }
            if !self.children.iter().any(Child::is_alive) {
                return;
            }
            tokio::select! {
                _ = signals.child.recv() => continue,
                () = &mut patience, if !is_late => {}
                () = signals.stop.recv() => {}
            }
            is_late = true;
            for child in self.children.iter_mut().filter(|child| child.is_alive()) {
                eprintln!("node {} does not stop: killed", child.id);
                child.kill();
            }
        }
    }
}

/// One other command.
async fn serve(mut connection: Connection, news: mpsc::Sender<Event>) {
    const REQUEST_MAX: Duration = Duration::from_secs(10);
    while let Ok(Ok(request)) = timeout(REQUEST_MAX, connection.receive()).await {
        let (reply, answer) = oneshot::channel();
        if news.send(Event::Asked { request, reply }).await.is_err() {
            return;
        }
        let Ok(answer) = answer.await else { return };
        if connection.send(&answer).await.is_err() {
            return;
        }
    }
}

fn log_tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let log: String = (0..100).map(|number| format!("{number}\n")).collect();
        let tail = log_tail(&log);
        assert!(tail.starts_with("85\n") && tail.ends_with("\n99"));
        assert_eq!(log_tail("one\n"), "one");
        assert_eq!(log_tail(""), "");
    }
}
