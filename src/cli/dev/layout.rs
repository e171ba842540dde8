//! Where the nodes of a development cluster keep their data and where they listen.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::cli::error::Failure;
use crate::config::Config;
use crate::types::random;

const DATA_DEFAULT: &str = "kontiki-data";
const NODES_DEFAULT: u16 = 3;
const BASE_PORT_DEFAULT: u16 = 9091;
const EPHEMERAL_PREFIX: &str = "kontiki-dev-";
const MEMORY_FILE: &str = "dev.json";
const LOCK_FILE: &str = "dev.lock";

/// What differs from a server's defaults: mistakes are cheap here, and waiting is not.
const CONFIGS: [(&str, &str); 2] =
    [("auto.create.topics.enable", "true"), ("controlled.shutdown.timeout.ms", "2000")];

/// The plan of one cluster.
#[derive(Debug)]
pub(super) struct Layout {
    /// Absolute.
    pub(super) data: PathBuf,
    pub(super) is_ephemeral: bool,
    pub(super) nodes: u16,
    pub(super) base_port: u16,
    set: Vec<(String, String)>,
    /// Nodes reach each other by addresses of their own, and come from such, so that somebody can stand between.
    pub(super) peers_apart: bool,
    /// Held for as long as the cluster runs; the operating system releases it however that ends.
    lock: Option<File>,
}

/// What a directory remembers of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Memory {
    pub(super) nodes: u16,
    pub(super) base_port: u16,
}

impl Memory {
    /// `None` when no cluster was started in the directory yet.
    pub(super) fn read(data: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(data.join(MEMORY_FILE)).ok()?).ok()
    }
}

impl Layout {
    /// In this directory, as it was before unless told otherwise.
    pub(super) fn durable(
        data: Option<PathBuf>,
        nodes: Option<u16>,
        base_port: Option<u16>,
        set: Vec<(String, String)>,
    ) -> Result<Self, Failure> {
        let data = data.unwrap_or_else(|| DATA_DEFAULT.into());
        let before = Memory::read(&data);
        let nodes = nodes.or(before.map(|before| before.nodes)).unwrap_or(NODES_DEFAULT);
        if let (Some(before), Some(base_port)) = (before, base_port)
            && base_port != before.base_port
        {
            return Err(Failure::refused(format!(
                "{} holds a cluster whose nodes know each other by ports from {} on; leave --base-port out, or choose \
                 another --data",
                data.display(),
                before.base_port,
            )));
        }
        let base_port = base_port.or(before.map(|before| before.base_port));
        if let Some(before) = before
            && nodes < before.nodes
        {
            return Err(Failure::refused(format!(
                "{} holds a cluster of {} nodes: with {nodes} of them, data could be missing and the quorum too; \
                 leave --nodes out, or choose another --data",
                data.display(),
                before.nodes,
            )));
        }
        let base_port = base_port.unwrap_or(BASE_PORT_DEFAULT);
        Ok(Self {
            data,
            is_ephemeral: false,
            nodes,
            base_port,
            set,
            peers_apart: false,
            lock: None,
        })
    }

    /// In a new temporary directory.
    pub(super) fn ephemeral(
        nodes: Option<u16>,
        base_port: Option<u16>,
        set: Vec<(String, String)>,
    ) -> Self {
        let root = std::env::temp_dir();
        remove_orphans(&root);
        let name = format!("{EPHEMERAL_PREFIX}{}-{}", std::process::id(), random::uuid());
        let nodes = nodes.unwrap_or(NODES_DEFAULT);
        let base_port = base_port.unwrap_or(BASE_PORT_DEFAULT);
        let data = root.join(name);
        Self { data, is_ephemeral: true, nodes, base_port, set, peers_apart: false, lock: None }
    }

    /// Checks the configs and the ports, and makes the directory.
    pub(super) fn prepare(&mut self) -> Result<(), Failure> {
        if u32::from(self.base_port) + 200 + u32::from(self.nodes) > u32::from(u16::MAX) {
            return Err(Failure::usage("--base-port is too high: ports end at 65535"));
        }
        let own = self.own_configs(1);
        let is_own = |key: &str| own.iter().any(|(own, _)| *own == key);
        if let Some((key, _)) = self.set.iter().find(|(key, _)| is_own(key)) {
            let problem =
                format!("--set {key}: it differs from node to node, so `kontiki dev` sets it");
            return Err(Failure::usage(problem));
        }
        Config::load(None, &self.configs(1))
            .map_err(|problems| Failure::usage(problems.to_string()))?;
        let cannot_use = |data: &Path, error: io::Error| {
            Failure::refused(format!(
                "cannot use {} for data: {error}; choose another directory with --data",
                data.display()
            ))
        };
        let lock = self.lock_directory().map_err(|error| cannot_use(&self.data, error))?;
        if lock.is_none() {
            let data = self.data.display();
            return Err(Failure::refused(format!(
                "a cluster runs in {data} already; `kontiki dev status --data {data}` shows it"
            )));
        }
        self.lock = lock;
        self.check_ports()?;
        self.remember().map_err(|error| cannot_use(&self.data, error))
    }

    /// `None` when another supervisor holds it.
    fn lock_directory(&mut self) -> io::Result<Option<File>> {
        fs::create_dir_all(&self.data)?;
        self.data = self.data.canonicalize()?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.data.join(LOCK_FILE))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(lock)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn remember(&self) -> io::Result<()> {
        let memory = Memory { nodes: self.nodes, base_port: self.base_port };
        fs::write(self.data.join(MEMORY_FILE), serde_json::to_vec(&memory)?)
    }

    fn check_ports(&self) -> Result<(), Failure> {
        let ports = self.ids().flat_map(|id| [self.client(id), self.peer(id), self.admin(id)]);
        let taken: Vec<String> = ports
            .filter(|port| {
                let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
                bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
            })
            .map(|port| port.to_string())
            .collect();
        if taken.is_empty() {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "in use: port {}; is another cluster running (`kontiki dev status`)? --base-port chooses other ports",
            taken.join(", ")
        )))
    }

    pub(super) fn ids(&self) -> std::ops::RangeInclusive<u16> {
        1..=self.nodes
    }

    pub(super) fn client(&self, id: u16) -> u16 {
        self.base_port + id
    }

    pub(super) fn peer(&self, id: u16) -> u16 {
        self.base_port + 100 + id
    }

    pub(super) fn admin(&self, id: u16) -> u16 {
        self.base_port + 200 + id
    }

    pub(super) fn log_file(&self, id: u16) -> PathBuf {
        self.data.join(format!("node-{id}.log"))
    }

    /// Configs of one node, the weakest first.
    pub(super) fn configs(&self, id: u16) -> Vec<(String, String)> {
        let defaults = CONFIGS.map(|(key, value)| (key, value.to_owned()));
        let all = defaults.into_iter().chain(self.own_configs(id));
        let all = all.map(|(key, value)| (key.to_owned(), value));
        all.chain(self.set.iter().cloned()).collect()
    }

    /// What makes this node this one.
    fn own_configs(&self, id: u16) -> Vec<(&'static str, String)> {
        let advertised = |id: u16| match self.peers_apart {
            true => SocketAddrV4::new(apart::seen_at(id), self.peer(id)).to_string(),
            false => local(self.peer(id)),
        };
        let voters = self.ids().map(|id| format!("{id}@{}", advertised(id)));
        let mut configs = vec![
            ("node.id", id.to_string()),
            ("controller.quorum.voters", voters.collect::<Vec<_>>().join(",")),
            ("data.dir", self.data.join(format!("node-{id}")).display().to_string()),
            ("listeners", local(self.client(id))),
            ("peer.listener", local(self.peer(id))),
            ("admin.listener", local(self.admin(id))),
        ];
        if self.peers_apart {
            configs.push(("advertised.peer.listener", advertised(id)));
            configs.push(("peer.source.address", apart::comes_from(id).to_string()));
        }
        configs
    }

    /// Forgets a cluster that was not to last.
    pub(super) fn clean_up(&self) {
        if self.is_ephemeral {
            // What cannot be removed now is removed by the next one.
            let _ = fs::remove_dir_all(&self.data);
        }
    }
}

/// Addresses of nodes between which somebody stands. Linux has all of 127.0.0.0/8.
pub(in crate::cli) mod apart {
    use std::net::Ipv4Addr;

    /// Where other nodes look for it. Its port is that of its peer listener.
    pub(in crate::cli) fn seen_at(id: u16) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 1, host(id))
    }

    /// Where its own connections come from.
    pub(in crate::cli) fn comes_from(id: u16) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, 2, host(id))
    }

    /// At most nine nodes are started.
    fn host(id: u16) -> u8 {
        u8::try_from(id).unwrap_or(u8::MAX)
    }
}

pub(super) fn local(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Removes directories of ephemeral clusters whose supervisor was killed.
fn remove_orphans(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix(EPHEMERAL_PREFIX)?.split('-').next()?.parse().ok())
            .and_then(Pid::from_raw);
        if pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::config::Durability;

    fn layout() -> Layout {
        let set = vec![("log.durability".to_owned(), "page-cache".to_owned())];
        Layout {
            data: "/d".into(),
            is_ephemeral: false,
            nodes: 3,
            base_port: 9091,
            set,
            peers_apart: false,
            lock: None,
        }
    }

    #[test]
    fn a_directory_has_one_cluster_at_a_time_and_keeps_its_ports() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = || Some(directory.path().join("data"));
        let mut first = Layout::durable(data(), None, Some(31_091), Vec::new()).expect("new");
        first.prepare().expect("nobody is there");
        let mut second = Layout::durable(data(), None, None, Vec::new()).expect("the same");
        let refused = second.prepare().expect_err("the first one runs");
        assert!(format!("{refused:?}").contains("a cluster runs in"), "{refused:?}");
        let moved =
            Layout::durable(data(), None, Some(32_091), Vec::new()).expect_err("ports stay");
        assert!(format!("{moved:?}").contains("leave --base-port out"), "{moved:?}");
        drop(first);
        second.prepare().expect("the first one is gone");
        assert_eq!(second.base_port, 31_091);
    }

    #[test]
    fn what_differs_between_nodes_cannot_be_set_for_all() {
        let set = vec![("node.id".to_owned(), "7".to_owned())];
        let refused = Layout { set, ..layout() }.prepare().expect_err("every node has its own");
        assert!(format!("{refused:?}").contains("node.id"), "{refused:?}");
    }

    #[test]
    fn ports_and_configs_follow_the_base_port_and_the_id() {
        let layout = layout();
        assert_eq!((layout.client(1), layout.peer(2), layout.admin(3)), (9092, 9193, 9294));
        let config = Config::load(None, &layout.configs(2)).expect("valid");
        assert_eq!(config.client.bind.port, 9093);
        assert_eq!(config.data_dir, Path::new("/d/node-2"));
        assert_eq!(config.voters.len(), 3);
        assert_eq!(config.durability, Durability::PageCache);
        assert!(config.auto_create_topics);
    }

    #[test]
    fn a_directory_remembers_its_cluster() {
        let directory = tempfile::tempdir().expect("a directory");
        let plan = |nodes, base_port| {
            let data = Some(directory.path().join("data"));
            Layout::durable(data, nodes, base_port, Vec::new()).expect("possible")
        };
        let mut first = plan(Some(1), Some(700));
        first.lock_directory().expect("a new directory");
        first.remember().expect("writable");
        let again = plan(None, None);
        assert_eq!((again.nodes, again.base_port), (1, 700));
        assert_eq!(plan(Some(2), None).nodes, 2);
    }

    #[test]
    fn fewer_nodes_than_before_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join(MEMORY_FILE), r#"{"nodes":3,"base_port":1}"#).expect("ok");
        let data = Some(directory.path().to_owned());
        assert!(Layout::durable(data, Some(1), None, Vec::new()).is_err());
    }

    #[test]
    fn directories_of_dead_supervisors_are_removed() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = |name: String| {
            let path = root.path().join(name);
            fs::create_dir(&path).expect("new");
            path
        };
        // No process can have this id: it is over the highest that Linux and macOS give.
        let orphan = dir(format!("{EPHEMERAL_PREFIX}{}-x", i32::MAX));
        let living = dir(format!("{EPHEMERAL_PREFIX}{}-x", std::process::id()));
        let other = dir("something-else".to_owned());
        remove_orphans(root.path());
        assert!(!orphan.exists() && living.exists() && other.exists());
    }
}
