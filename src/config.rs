//! What an operator can set for one process.
//!
//! Keys are Kafka's where Kafka has them. One table, [`KEYS`], holds every key with its default and its meaning; it
//! feeds loading, validation, help and `DescribeConfigs`. Sources, strongest first: `--set key=value` and flags, the
//! properties file, the table. Loading reports all problems at once, and names the nearest known key for an unknown one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::metadata::config::{Durability, cluster_def};
use crate::storage::CompactionConfig;
use crate::types::{HostPort, NodeId, nearest};

/// One settable key of a process.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub default: &'static str,
    pub documentation: &'static str,
}

macro_rules! keys {
    ($($constant:ident $name:literal = $default:literal, $documentation:literal;)*) => {
        $(const $constant: &str = $name;)*
        /// Every key, in the order of the documentation.
        pub const KEYS: &[Key] = &[$(Key {
            name: $name,
            default: $default,
            documentation: $documentation,
        },)*];
    };
}

keys! {
    NODE_ID "node.id" = "", "Id of this node, 0 or more; unique in the cluster, never changed.";
    DATA_DIR "data.dir" = "kontiki-data",
        "Directory of this node. Holds the metadata log, and the partition logs unless log.dirs says otherwise.";
    LOG_DIRS "log.dirs" = "", "Directories of partition logs, separated by commas; default: logs in data.dir.";
    LOG_DIRS_MIN_FREE "log.dirs.min.free" = "",
        "Free bytes in a log directory below which clients cannot write there; default: 268435456, at most 5 % of the disk.";
    VOTERS "controller.quorum.voters" = "",
        "Initial voters of the metadata quorum as ID@HOST:PORT of their peer listeners, separated by commas; a node that is not listed joins as a learner. Default: this node alone.";
    LISTENERS "listeners" = "127.0.0.1:9092", "Where clients connect, HOST:PORT.";
    ADVERTISED_LISTENERS "advertised.listeners" = "",
        "What clients are told to connect to; default: listeners.";
    PEER_LISTENER "peer.listener" = "127.0.0.1:9192", "Where other nodes connect, HOST:PORT.";
    ADVERTISED_PEER_LISTENER "advertised.peer.listener" = "",
        "What other nodes are told to connect to; default: peer.listener.";
    PEER_SOURCE "peer.source.address" = "",
        "Address of this machine from which other nodes are connected to; default: the system chooses.";
    ADMIN_LISTENER "admin.listener" = "127.0.0.1:9292", "Where the admin HTTP port listens, HOST:PORT.";
    ADVERTISED_ADMIN_LISTENER "advertised.admin.listener" = "",
        "What people are told to open; default: admin.listener.";
    ALLOW_UNAUTHENTICATED "allow.unauthenticated.listeners" = "false",
        "Allows listeners on other addresses than loopback, although nothing authenticates who connects.";
    RACK "broker.rack" = "", "Rack of this node: replicas of a partition are spread over racks.";
    AUTO_CREATE "auto.create.topics.enable" = "false",
        "Create a topic when a client asks for the metadata of one that does not exist.";
    NUM_PARTITIONS "num.partitions" = "1", "Partitions of a topic whose creator did not say.";
    REPLICATION_FACTOR "default.replication.factor" = "0",
        "Replicas of a topic whose creator did not say; 0: three, or as many as there are brokers.";
    DURABILITY "log.durability" = "fsync",
        "When a record counts as written: fsync (on disk, in grouped flushes) or page-cache (in the kernel, as in Kafka).";
    HEARTBEAT_INTERVAL "broker.heartbeat.interval.ms" = "100", "Between two heartbeats to the active controller.";
    SESSION_TIMEOUT "broker.session.timeout.ms" = "700",
        "A broker without heartbeat for this long is fenced.";
    RETENTION_CHECK "log.retention.check.interval.ms" = "300000",
        "How often retention looks for what it may delete: what expires in one interval goes at its end.";
    CLEANER "log.cleaner.enable" = "true",
        "Compact the partitions of topics whose cleanup.policy says so.";
    CLEANER_MEMORY "log.cleaner.dedupe.buffer.size" = "134217728",
        "Most bytes of memory that compaction takes, all together, while it runs.";
    CLEANER_RATE "log.cleaner.io.max.bytes.per.second" = "9223372036854775807",
        "Most bytes that compaction reads and writes in a second.";
    RAFT_HEARTBEAT "controller.quorum.heartbeat.ms" = "50", "Between two Raft heartbeats.";
    ELECTION_TIMEOUT "controller.quorum.election.timeout.ms" = "150",
        "Lowest election timeout of the metadata quorum; the highest is twice as long.";
    REBALANCE "auto.leader.rebalance.enable" = "true",
        "Whether leadership goes back to the first replica of a partition by itself, once its broker has been there for a while.";
    IMBALANCE_INTERVAL "leader.imbalance.check.interval.seconds" = "30",
        "How often leaders are looked at; a broker must have been there for twice as long.";
    REPLICA_LAG_TIME "replica.lag.time.max.ms" = "10000",
        "A replica that has not caught up for this long leaves the ISR.";
    REQUEST_SIZE "socket.request.max.bytes" = "104857600", "Largest request of a client.";
    CONNECTIONS "max.connections" = "10000", "Connections of clients at a time.";
    CONNECTIONS_IDLE "connections.max.idle.ms" = "600000", "An idle connection of a client is closed after this.";
    FETCH_BYTES "fetch.max.bytes" = "57671680", "Most bytes of records in one fetch response.";
    CONTROLLED_SHUTDOWN_TIMEOUT "controlled.shutdown.timeout.ms" = "10000",
        "Longest that a stopping broker waits for its leaderships to move.";
}

/// The settings of one process, complete and valid.
#[derive(Debug, Clone)]
pub struct Config {
    pub node_id: NodeId,
    pub data_dir: PathBuf,
    pub log_dirs: Vec<PathBuf>,
    /// `None`: what suits the file system.
    pub log_dirs_min_free: Option<u64>,
    /// Peer listeners of the initial voters.
    pub voters: Vec<(NodeId, HostPort)>,
    pub client: Listener,
    pub peer: Listener,
    /// Where connections to other nodes come from.
    pub peer_source: Option<IpAddr>,
    pub admin: Listener,
    pub rack: Option<String>,
    pub auto_create_topics: bool,
    pub partition_count: i32,
    pub replication_factor: Option<i16>,
    pub durability: Durability,
    pub retention_check_interval: Duration,
    pub compaction: CompactionConfig,
    pub heartbeat_interval: Duration,
    pub session_timeout: Duration,
    pub raft_heartbeat: Duration,
    pub election_timeout: Duration,
    /// How often leadership goes back to first replicas; `None`: never by itself.
    pub balance: Option<Duration>,
    pub replica_lag_time_max: Duration,
    pub request_size_max: usize,
    pub connections_max: usize,
    pub connection_idle_max: Duration,
    pub fetch_bytes_max: usize,
    pub controlled_shutdown_timeout: Duration,
    /// Every key with its value as text, for display.
    pub texts: BTreeMap<String, String>,
}

/// An address to bind and the address to tell others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    pub bind: HostPort,
    pub advertised: HostPort,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<String>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl Config {
    /// Reads the properties file, if any, lets `overrides` win, and checks everything.
    pub fn load(file: Option<&Path>, overrides: &[(String, String)]) -> Result<Self, Problems> {
        let mut set = BTreeMap::new();
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Problems(vec![format!("cannot read {}: {error}", path.display())])
            })?;
            set.extend(parse_properties(&text)?);
        }
        set.extend(overrides.iter().cloned());
        Self::from_set(set)
    }

    fn from_set(set: BTreeMap<String, String>) -> Result<Self, Problems> {
        let own = set.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let unknown = set.keys().filter(|key| !KEYS.iter().any(|known| known.name == **key));
        let mut reader =
            Reader { problems: unknown.map(|key| unknown_key(key)).collect(), set: own };
        let config = reader.config();
        if reader.problems.is_empty() { Ok(config) } else { Err(Problems(reader.problems)) }
    }
}

fn unknown_key(key: &str) -> String {
    if cluster_def(key).is_some() {
        return format!("{key} belongs to the whole cluster: set it there, with an admin client");
    }
    match nearest(key, KEYS.iter().map(|known| known.name)) {
        Some(nearest) => format!("unknown key {key}; did you mean {nearest}?"),
        None => format!("unknown key {key}; `kontiki server --help` lists the keys"),
    }
}

/// `key=value` lines; `#` and `!` start comments, as in Java properties files.
fn parse_properties(text: &str) -> Result<Vec<(String, String)>, Problems> {
    let (mut set, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', '!']) {
            continue;
        }
        match line.split_once('=') {
            Some((key, value)) => set.push((key.trim().to_owned(), value.trim().to_owned())),
            None => problems.push(format!("line {}: {line:?} is not key=value", number + 1)),
        }
    }
    if problems.is_empty() { Ok(set) } else { Err(Problems(problems)) }
}

/// Takes values out of what was set, and collects what is wrong with them.
struct Reader<'a> {
    set: BTreeMap<&'a str, &'a str>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn config(&mut self) -> Config {
        let data_dir = PathBuf::from(self.text(DATA_DIR));
        let node_id = NodeId(self.number(NODE_ID, 0..=i64::from(i32::MAX)));
        let peer = self.listener(PEER_LISTENER, ADVERTISED_PEER_LISTENER);
        let mut voters = self.voters();
        if voters.is_empty() {
            voters.push((node_id, peer.advertised.clone()));
        }
        let log_dirs: Vec<PathBuf> =
            self.text(LOG_DIRS).split(',').filter(|d| !d.is_empty()).map(Into::into).collect();
        let durability = self.text(DURABILITY);
        if !["fsync", "page-cache"].contains(&durability) {
            self.problems.push(format!("{DURABILITY}={durability}: fsync or page-cache"));
        }
        let heartbeat_interval = self.duration(HEARTBEAT_INTERVAL);
        let session_timeout = self.duration(SESSION_TIMEOUT);
        if session_timeout < 2 * heartbeat_interval {
            let problem = format!("{SESSION_TIMEOUT} must be at least twice {HEARTBEAT_INTERVAL}");
            self.problems.push(problem);
        }
        let raft_heartbeat = self.duration(RAFT_HEARTBEAT);
        let election_timeout = self.duration(ELECTION_TIMEOUT);
        if election_timeout < 2 * raft_heartbeat {
            let problem = format!("{ELECTION_TIMEOUT} must be at least twice {RAFT_HEARTBEAT}");
            self.problems.push(problem);
        }
        let imbalance_interval = 1..=i64::from(i32::MAX);
        let imbalance_interval =
            Duration::from_secs(self.number(IMBALANCE_INTERVAL, imbalance_interval));
        Config {
            node_id,
            log_dirs: if log_dirs.is_empty() { vec![data_dir.join("logs")] } else { log_dirs },
            log_dirs_min_free: Some(self.text(LOG_DIRS_MIN_FREE))
                .filter(|text| !text.is_empty())
                .map(|_| self.parsed(LOG_DIRS_MIN_FREE, 0)),
            data_dir,
            voters,
            client: self.listener(LISTENERS, ADVERTISED_LISTENERS),
            peer,
            peer_source: match self.text(PEER_SOURCE) {
                "" => None,
                _ => Some(self.parsed(PEER_SOURCE, IpAddr::from([127, 0, 0, 1]))),
            },
            admin: self.listener(ADMIN_LISTENER, ADVERTISED_ADMIN_LISTENER),
            rack: Some(self.text(RACK).to_owned()).filter(|rack| !rack.is_empty()),
            auto_create_topics: self.parsed(AUTO_CREATE, false),
            partition_count: self.number(NUM_PARTITIONS, 1..=100_000),
            replication_factor: Some(self.number(REPLICATION_FACTOR, 0..=i64::from(i16::MAX)))
                .filter(|factor| *factor > 0),
            durability: if durability == "fsync" {
                Durability::Fsync
            } else {
                Durability::PageCache
            },
            retention_check_interval: self.duration(RETENTION_CHECK),
            compaction: CompactionConfig {
                enabled: self.parsed(CLEANER, true),
                memory_max: self.number(CLEANER_MEMORY, 16 << 20..=i64::from(u32::MAX)),
                bytes_per_second_max: self.number(CLEANER_RATE, 1024..=i64::MAX),
            },
            heartbeat_interval,
            session_timeout,
            raft_heartbeat,
            election_timeout,
            balance: self.parsed(REBALANCE, true).then_some(imbalance_interval),
            replica_lag_time_max: self.duration(REPLICA_LAG_TIME),
            request_size_max: self.number(REQUEST_SIZE, 1024..=i64::from(i32::MAX)),
            connections_max: self.number(CONNECTIONS, 1..=1_000_000),
            connection_idle_max: self.duration(CONNECTIONS_IDLE),
            fetch_bytes_max: self.number(FETCH_BYTES, 1024..=i64::from(i32::MAX)),
            controlled_shutdown_timeout: self.duration(CONTROLLED_SHUTDOWN_TIMEOUT),
            texts: KEYS
                .iter()
                .map(|key| (key.name.to_owned(), self.text(key.name).to_owned()))
                .collect(),
        }
    }

    fn text(&self, name: &str) -> &'a str {
        let default = || KEYS.iter().find(|key| key.name == name).map_or("", |key| key.default);
        self.set.get(name).copied().unwrap_or_else(default)
    }

    fn parsed<T: FromStr<Err: fmt::Display>>(&mut self, name: &str, otherwise: T) -> T {
        let text = self.text(name);
        text.parse().unwrap_or_else(|error| {
            let missing = text.is_empty() && !self.set.contains_key(name);
            self.problems.push(if missing {
                format!("{name} must be set")
            } else {
                format!("{name}={text}: {error}")
            });
            otherwise
        })
    }

    /// Bounds are inclusive and fit the type.
    fn number<T: TryFrom<i64> + Default>(
        &mut self,
        name: &str,
        bounds: std::ops::RangeInclusive<i64>,
    ) -> T {
        let problems = self.problems.len();
        let number = self.parsed(name, *bounds.start());
        let inside = Some(number).filter(|number| bounds.contains(number));
        if inside.is_none() && problems == self.problems.len() {
            let (low, high) = (bounds.start(), bounds.end());
            self.problems.push(format!("{name}={number}: must be between {low} and {high}"));
        }
        inside.and_then(|number| T::try_from(number).ok()).unwrap_or_default()
    }

    fn duration(&mut self, name: &str) -> Duration {
        Duration::from_millis(self.number(name, 1..=i64::from(i32::MAX)))
    }

    fn listener(&mut self, bind: &str, advertised: &str) -> Listener {
        let (bind_name, bind) = (bind, self.address(bind));
        let advertised =
            if self.set.contains_key(advertised) { self.address(advertised) } else { bind.clone() };
        if !is_loopback(&bind.host) && !self.parsed(ALLOW_UNAUTHENTICATED, false) {
            self.problems.push(format!(
                "{bind_name}={bind}: nothing authenticates who connects, so listeners stay on loopback; \
                 set {ALLOW_UNAUTHENTICATED}=true if the network keeps strangers out"
            ));
        }
        if ["0.0.0.0", "::"].contains(&advertised.host.as_str()) {
            self.problems.push(format!(
                "{bind_name}={bind}: others cannot connect to {advertised}; set what to tell them (advertised.*)"
            ));
        }
        Listener { bind, advertised }
    }

    fn address(&mut self, name: &str) -> HostPort {
        let text = self.text(name);
        HostPort::from_str(text.trim_start_matches("PLAINTEXT://")).unwrap_or_else(|error| {
            self.problems.push(format!("{name}={text}: {error}"));
            HostPort { host: "127.0.0.1".to_owned(), port: 0 }
        })
    }

    fn voters(&mut self) -> Vec<(NodeId, HostPort)> {
        let text = self.text(VOTERS);
        let mut voters = Vec::new();
        for voter in text.split(',').map(str::trim).filter(|voter| !voter.is_empty()) {
            let parsed = voter.split_once('@').and_then(|(id, address)| {
                let id = id.parse().ok().filter(|id| *id >= 0)?;
                Some((NodeId(id), address.parse().ok()?))
            });
            match parsed {
                Some((id, _)) if voters.iter().any(|(other, _)| *other == id) => {
                    self.problems.push(format!("{VOTERS}: node {id} stands there twice"));
                }
                Some(voter) => voters.push(voter),
                None => self.problems.push(format!("{VOTERS}: {voter:?} is not ID@HOST:PORT")),
            }
        }
        voters
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(set: &[(&str, &str)]) -> Result<Config, Problems> {
        let set: Vec<_> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Config::load(None, &set)
    }

    #[test]
    fn a_node_id_is_enough() {
        let config = load(&[("node.id", "7")]).expect("valid");
        assert_eq!(config.voters, vec![(NodeId(7), "127.0.0.1:9192".parse().expect("address"))]);
        assert_eq!(config.log_dirs, vec![PathBuf::from("kontiki-data/logs")]);
        assert_eq!(config.durability, Durability::Fsync);
    }

    #[test]
    fn all_problems_come_at_once() {
        let Problems(problems) = load(&[
            ("node.id", "-1"),
            ("num.partition", "3"),
            ("listeners", "0.0.0.0:9092"),
            ("controller.quorum.voters", "1@a:1,1@b:2,x"),
            ("log.durability", "maybe"),
            ("max.connections", "many"),
        ])
        .expect_err("invalid");
        let all = problems.join("\n");
        for part in [
            "node.id=-1: must be between",
            "did you mean num.partitions?",
            "allow.unauthenticated.listeners=true",
            "node 1 stands there twice",
            "\"x\" is not ID@HOST:PORT",
            "fsync or page-cache",
            "max.connections=many: invalid digit",
        ] {
            assert!(all.contains(part), "{part:?} is missing in:\n{all}");
        }
    }

    #[test]
    fn properties_are_java_like() {
        let set = parse_properties("# comment\n\n a = b=c \n").expect("valid");
        assert_eq!(set, vec![("a".to_owned(), "b=c".to_owned())]);
        assert!(parse_properties("nonsense").is_err());
    }
}
