//! `kontiki dev`: three nodes by one command.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use kontiki::client::{Client, ConsumerConfig, NewTopic, ProducerConfig, Record, StartAt};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use super::harness::{DEADLINE, Ports, eventually, kontiki, request};

/// A running `kontiki dev`. Ended when dropped, and its nodes with it.
struct Dev {
    child: Child,
    /// What it printed when all nodes were ready.
    nodes: Vec<Value>,
}

impl Dev {
    fn start(arguments: &[&str]) -> Self {
        let mut command = kontiki();
        command.args(["dev", "--output", "json"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the built binary starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints a line");
        let banner: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"));
        Self { child, nodes: banner["nodes"].as_array().expect("nodes").clone() }
    }

    fn text<'a>(&'a self, index: usize, key: &str) -> &'a str {
        self.nodes[index][key].as_str().unwrap_or_else(|| panic!("{key} of {:?}", self.nodes))
    }

    fn pids(&self) -> Vec<Pid> {
        let pid =
            |node: &Value| i32::try_from(node["pid"].as_i64().expect("a pid")).expect("small");
        self.nodes.iter().map(|node| Pid::from_raw(pid(node)).expect("not 0")).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn all_gone(pids: &[Pid]) {
    eventually("every node has ended", || async {
        let left: Vec<_> = pids.iter().filter(|pid| test_kill_process(**pid).is_ok()).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} run")) }
    })
    .await;
}

/// Nine ports: three nodes at base+N, base+100+N and base+200+N.
pub(crate) fn base_port() -> (Vec<Ports>, u16) {
    let mut held = Vec::new();
    loop {
        let ports = Ports::reserve();
        let base = ports.port(0);
        let free = |offset: u16| {
            (1..=3).all(|id| std::net::TcpListener::bind(("127.0.0.1", base + offset + id)).is_ok())
        };
        let fits = [0, 100, 200].into_iter().all(free);
        held.push(ports);
        if fits {
            return (held, base);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_is_a_cluster_that_ends_with_it() {
    let (_held, base) = base_port();
    let base = base.to_string();
    let mut dev = Dev::start(&["--ephemeral", "--base-port", &base]);
    let pids = dev.pids();
    assert_eq!(pids.len(), 3);

    let client = Client::connect(&[dev.text(0, "kafka")]).await.expect("ready when it says so");
    client.admin().create_topic(NewTopic::new("greetings")).await.expect("created");
    let producer = client.producer(ProducerConfig::default());
    let sent = producer.send(Record::to("greetings").value("hello")).await.expect("taken");
    sent.await.expect("acknowledged");
    let mut consumer = client.consumer(ConsumerConfig::default());
    consumer.assign_topic("greetings", StartAt::Earliest).await.expect("exists");
    let chunk = tokio::time::timeout(DEADLINE, consumer.next()).await.expect("in time");
    let records = chunk.expect("readable").records;
    assert_eq!(records[0].value.as_deref(), Some(&b"hello"[..]));
    for index in 0..3 {
        let port = dev.text(index, "admin").rsplit(':').next().expect("HOST:PORT").parse();
        let answer = request(port.expect("a port"), "GET", "/readyz", None).expect("answered");
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    dev.signal(Signal::INT);
    let status = dev.child.wait().expect("our own child");
    assert!(status.success(), "Ctrl-C is a proper end: {status:?}");
    all_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_orphan_is_left_when_it_is_killed() {
    let (_held, base) = base_port();
    let base = base.to_string();
    let dev = Dev::start(&["--ephemeral", "--base-port", &base]);
    let pids = dev.pids();
    drop(dev);
    all_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_can_be_killed_and_started_and_the_data_outlives_the_command() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().to_str().expect("a plain path");
    let (_held, base) = base_port();
    let base = base.to_string();
    let arguments = ["--data", data, "--base-port", &base];

    let mut dev = Dev::start(&arguments);
    let client = Client::connect(&[dev.text(0, "kafka")]).await.expect("ready when it says so");
    client.admin().create_topic(NewTopic::new("greetings")).await.expect("created");
    act(&["kill", "2"], directory.path());
    let killed = dev.pids()[1];
    all_gone(&[killed]).await;
    act(&["start", "2"], directory.path());
    let status = act(&["status", "--output", "json"], directory.path());
    assert!(status.contains("\"id\""), "{status}");
    dev.signal(Signal::TERM);
    assert!(dev.child.wait().expect("our own child").success());

    let dev = Dev::start(&arguments);
    let client = Client::connect(&[dev.text(2, "kafka")]).await.expect("ready when it says so");
    client.admin().describe_topic("greetings").await.expect("still there");
}

/// `kontiki dev VERB`, on the cluster in a directory.
fn act(arguments: &[&str], data: &Path) -> String {
    let mut command: Command = kontiki();
    command.arg("dev").args(arguments).arg("--data").arg(data);
    let output = command.output().expect("the built binary starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said} {output:?}");
    said
}
