//! Three nodes.

use std::collections::BTreeMap;
use std::path::Path;

use kontiki::client::{Client, NewTopic};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::http::{Response, request};
use super::node::Node;
use super::ports::Ports;
use super::wait::eventually;

/// How many clusters run at a time, however many tests run: six processes are enough for two cores.
static CLUSTERS: Semaphore = Semaphore::const_new(2);

/// Three `kontiki server` processes on ports and directories of their own. Whatever way a test ends, they end with it.
#[derive(Debug)]
pub(crate) struct Cluster {
    nodes: BTreeMap<i32, Node>,
    ports: Ports,
    directory: Option<TempDir>,
    /// Parts of ERROR lines that the scenario provokes.
    expected_errors: Vec<&'static str>,
    _permit: SemaphorePermit<'static>,
}

impl Cluster {
    /// Started and ready.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With settings besides those that place the nodes.
    pub(crate) async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_in(settings, |_| Vec::new()).await
    }

    /// And with settings of each node.
    pub(crate) async fn start_in(
        settings: &[(&str, &str)],
        each: impl Fn(i32) -> Vec<(String, String)>,
    ) -> Self {
        let mut cluster = Self::prepare(settings, each).await;
        for node in cluster.nodes.values_mut() {
            node.start();
        }
        cluster.ready().await;
        cluster
    }

    async fn prepare(
        settings: &[(&str, &str)],
        each: impl Fn(i32) -> Vec<(String, String)>,
    ) -> Self {
        let permit = CLUSTERS.acquire().await.expect("never closed");
        let directory = tempfile::Builder::new().prefix("kontiki-cluster-").tempdir();
        let directory = directory.expect("a temporary directory can be made");
        let ports = Ports::reserve();
        let voters: Vec<String> =
            (1..=3).map(|id| format!("{id}@127.0.0.1:{}", peer_port(&ports, id))).collect();
        let node = |id: i32| {
            let address = |port: u16| format!("127.0.0.1:{port}");
            let data = directory.path().join(format!("node-{id}"));
            let mut own = vec![
                ("node.id".to_owned(), id.to_string()),
                ("data.dir".to_owned(), data.display().to_string()),
                ("controller.quorum.voters".to_owned(), voters.join(",")),
                ("listeners".to_owned(), address(client_port(&ports, id))),
                ("peer.listener".to_owned(), address(peer_port(&ports, id))),
                ("admin.listener".to_owned(), address(admin_port(&ports, id))),
            ];
            own.extend(
                settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
            );
            own.extend(each(id));
            Node::new(own, &directory.path().join(format!("node-{id}.log")))
        };
        let nodes = (1..=3).map(|id| (id, node(id))).collect();
        let directory = Some(directory);
        Self { nodes, ports, directory, expected_errors: Vec::new(), _permit: permit }
    }

    pub(crate) fn node(&mut self, id: i32) -> &mut Node {
        self.nodes.get_mut(&id).expect("nodes are 1, 2 and 3")
    }

    pub(crate) fn ids(&self) -> Vec<i32> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.as_ref().expect("until it is dropped").path()
    }

    pub(crate) fn client_port(&self, id: i32) -> u16 {
        client_port(&self.ports, id)
    }

    pub(crate) fn peer_port(&self, id: i32) -> u16 {
        peer_port(&self.ports, id)
    }

    /// A port that no node of this cluster uses.
    pub(crate) fn spare_port(&self, i: u16) -> u16 {
        assert!(i < 3);
        self.ports.port(9 + i)
    }

    pub(crate) fn bootstrap(&self) -> Vec<String> {
        (1..=3).map(|id| format!("127.0.0.1:{}", self.client_port(id))).collect()
    }

    pub(crate) async fn client(&self) -> Client {
        eventually("a client finds the cluster", || async {
            Client::connect(&self.bootstrap()).await.map_err(|error| error.to_string())
        })
        .await
    }

    /// Three replicas of each partition.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) {
        let topic = NewTopic::new(name).partitions(partitions).replication_factor(3);
        self.client().await.admin().create_topic(topic).await.expect("created");
    }

    pub(crate) async fn delete_topic(&self, name: &str) {
        self.client().await.admin().delete_topic(name).await.expect("deleted");
    }

    /// Waits until every running node says that it is ready, and the partitions are back in full sync.
    pub(crate) async fn ready(&mut self) {
        for id in self.ids() {
            if self.node(id).is_up() {
                self.node_ready(id).await;
            }
        }
    }

    pub(crate) async fn node_ready(&mut self, id: i32) {
        eventually(&format!("node {id} is ready"), || {
            let running = self.node(id).is_running();
            let answer = self.get(id, "/readyz");
            async move {
                assert!(running, "node {id} ended by itself");
                match answer? {
                    Response { status: 200, .. } => Ok(()),
                    response => Err(response.body),
                }
            }
        })
        .await;
    }

    /// Waits until the node itself says that nobody should be sent to it.
    pub(crate) async fn node_not_ready(&self, id: i32) {
        eventually(&format!("node {id} says that it is not ready"), || async {
            let answer = self.get(id, "/readyz")?;
            if answer.status == 503 { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }

    /// Waits until every partition has all its replicas in sync, as every running node sees it.
    pub(crate) async fn in_sync(&mut self) {
        for id in self.ids() {
            if !self.node(id).is_up() {
                continue;
            }
            eventually("all replicas are in sync", || async {
                let cluster = self.get(id, "/v1/cluster")?.json();
                let lagging = &cluster["under_replicated_partitions"];
                if lagging == 0 { Ok(()) } else { Err(format!("{lagging} are not: {cluster}")) }
            })
            .await;
        }
    }

    pub(crate) fn get(&self, id: i32, path: &str) -> Result<Response, String> {
        self.http(id, "GET", path, None)
    }

    pub(crate) fn http(
        &self,
        id: i32,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, String> {
        request(admin_port(&self.ports, id), method, path, body)
    }

    /// Who leads the partition, as a live node sees it.
    pub(crate) async fn leader(&self, topic: &str, partition: usize) -> i32 {
        self.other_leader(topic, partition, &[]).await
    }

    /// Waits until somebody else than these leads the partition.
    pub(crate) async fn other_leader(&self, topic: &str, partition: usize, not: &[i32]) -> i32 {
        eventually(&format!("{topic}-{partition} has a leader besides {not:?}"), || async {
            let view = self.get(self.any(), &format!("/v1/topics/{topic}/partitions"))?;
            if view.status != 200 {
                return Err(view.body);
            }
            let view = view.json();
            node_id(&view["partitions"][partition]["leader"], not).ok_or_else(|| view.to_string())
        })
        .await
    }

    /// The active controller, as a live node sees it.
    pub(crate) async fn controller(&self) -> i32 {
        self.other_controller(&[]).await
    }

    /// Waits until somebody else than these is the active controller.
    pub(crate) async fn other_controller(&self, not: &[i32]) -> i32 {
        eventually(&format!("there is an active controller besides {not:?}"), || async {
            let view = self.get(self.any(), "/v1/quorum")?.json();
            node_id(&view["leader_id"], not).ok_or_else(|| view.to_string())
        })
        .await
    }

    /// A node that can be asked.
    pub(crate) fn any(&self) -> i32 {
        let up = self.nodes.iter().find(|(_, node)| node.is_up());
        *up.expect("a node is up").0
    }

    pub(crate) fn kill(&mut self, id: i32) {
        self.node(id).kill();
    }

    pub(crate) fn pause(&mut self, id: i32) {
        self.node(id).pause();
    }

    pub(crate) fn resume(&mut self, id: i32) {
        self.node(id).resume();
    }

    /// SIGTERM; it must end cleanly.
    pub(crate) async fn stop(&mut self, id: i32) {
        let exit = self.node(id).stop().await;
        assert!(exit.status.success(), "node {id} ended with {:?}", exit.status);
    }

    pub(crate) fn launch(&mut self, id: i32) {
        self.node(id).start();
    }

    /// Back, and serving.
    pub(crate) async fn restart(&mut self, id: i32) {
        self.launch(id);
        self.node_ready(id).await;
    }

    /// ERROR lines that hold `part` are what this scenario is about.
    pub(crate) fn expect_errors(&mut self, part: &'static str) {
        self.expected_errors.push(part);
    }

    /// The end of a scenario that went well: every node still runs or was ended by the test, and no log has a panic, or an
    /// ERROR that nobody provoked.
    pub(crate) fn finish(&self) {
        for (id, node) in &self.nodes {
            for line in node.log().lines() {
                let is_error = line.contains(" ERROR ") || line.contains("panicked at");
                let expected = self.expected_errors.iter().any(|part| line.contains(part));
                assert!(!is_error || expected, "node {id} logged: {line}");
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in self.nodes.values_mut() {
            node.kill();
        }
        if !std::thread::panicking() {
            return;
        }
        let directory = self.directory.take().map(TempDir::keep);
        eprintln!("logs and data are kept in {directory:?}");
        for (id, node) in &self.nodes {
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            eprintln!("--- node {id}, end of {}\n{}", node.log_path().display(), last.join("\n"));
        }
    }
}

fn node_id(value: &Value, not: &[i32]) -> Option<i32> {
    let id = i32::try_from(value.as_i64()?).ok()?;
    (!not.contains(&id)).then_some(id)
}

fn client_port(ports: &Ports, id: i32) -> u16 {
    ports.port(offset(id))
}

fn peer_port(ports: &Ports, id: i32) -> u16 {
    ports.port(offset(id) + 3)
}

fn admin_port(ports: &Ports, id: i32) -> u16 {
    ports.port(offset(id) + 6)
}

fn offset(id: i32) -> u16 {
    u16::try_from(id - 1).expect("nodes are 1, 2 and 3")
}
