//! Metrics of the broker. Their names are stable and documented in `docs/metrics.md`.
//!
//! Counters are bumped where things happen; what can be told from the image is counted when somebody asks.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::compaction_metrics::CompactionMetrics;
use super::publication::Publication;
use crate::storage::LogDirs;
use crate::types::NodeId;

/// Cheap to clone: all clones count together.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    pub(super) produced_batches: Counter,
    pub(super) produced_bytes: Counter,
    pub(super) produce_refusals: Counter,
    pub(super) fetched_bytes: Counter,
    pub(super) replicated_in_bytes: Counter,
    pub(super) replicated_out_bytes: Counter,
    pub(super) isr_change_requests: Counter,
    pub(super) reconcile_failures: Counter,
    pub(super) heartbeats_unanswered: Counter,
    observed: Arc<OnceLock<Observed>>,
    compaction: CompactionMetrics,
}

impl Metrics {
    /// Adds all of them to the registry of the process.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("kontiki_broker");
        let mut count = |name: &str, help: &str, counter: &Counter| {
            registry.register(name, help, counter.clone());
        };
        count("produced_batches", "Batches appended for clients", &self.produced_batches);
        count("produce_refusals", "Batches of clients refused", &self.produce_refusals);
        count(
            "isr_change_requests",
            "AlterPartition requests sent to the active controller",
            &self.isr_change_requests,
        );
        count(
            "reconcile_failures",
            "Replicas that could not be held as the metadata asks",
            &self.reconcile_failures,
        );
        count(
            "heartbeats_unanswered",
            "Heartbeats that no controller answered in time",
            &self.heartbeats_unanswered,
        );
        for (name, help, counter) in [
            ("produced", "Bytes of batches appended for clients", &self.produced_bytes),
            ("fetched", "Bytes of batches read for clients", &self.fetched_bytes),
            ("replicated_in", "Bytes of batches appended from leaders", &self.replicated_in_bytes),
            ("replicated_out", "Bytes of batches sent to followers", &self.replicated_out_bytes),
        ] {
            registry.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        registry.register_collector(Box::new(FromImage(self.observed.clone())));
        registry.register_collector(Box::new(self.compaction.clone()));
    }

    /// From now on the figures of compaction are shown.
    pub(super) fn observe_compaction(&self, logs: &LogDirs) {
        self.compaction.observe(logs);
    }

    /// From now on the figures that come from the image are shown.
    pub(super) fn observe(&self, node_id: NodeId, publication: Arc<Publication>, logs: LogDirs) {
        // A second broker over the same metrics shows the first one's image.
        let _ = self.observed.set(Observed { node_id, publication, logs });
    }
}

struct Observed {
    node_id: NodeId,
    publication: Arc<Publication>,
    logs: LogDirs,
}

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").field("node_id", &self.node_id).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct FromImage(Arc<OnceLock<Observed>>);

/// What the image says about this broker's replicas.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replicas {
    held: u64,
    led: u64,
    led_under_replicated: u64,
    led_under_min_isr: u64,
    leaderless: u64,
    offline: u64,
    offline_directories: u64,
}

impl Observed {
    fn replicas(&self) -> Replicas {
        let (image, mut counted) = (self.publication.image(), Replicas::default());
        if let Some(offline) = image.offline.get(&self.node_id) {
            counted.offline = offline.replicas.len() as u64;
            counted.offline_directories = offline.directories.len() as u64;
        }
        for topic in image.topics.values() {
            let min_isr = image.min_isr(&topic.name);
            for partition in &topic.partitions {
                if !partition.replicas.contains(&self.node_id) {
                    continue;
                }
                counted.held += 1;
                counted.leaderless += u64::from(partition.leader.known().is_none());
                if partition.leader == self.node_id {
                    counted.led += 1;
                    let (isr, replicas) = (partition.isr.len(), partition.replicas.len());
                    counted.led_under_replicated += u64::from(isr < replicas);
                    counted.led_under_min_isr += u64::from(isr < min_isr.of(replicas));
                }
            }
        }
        counted
    }
}

impl Collector for FromImage {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(observed) = self.0.get() else { return Ok(()) };
        let replicas = observed.replicas();
        for (name, help, value) in [
            ("replicas", "Replicas of this broker", replicas.held),
            ("leaders", "Partitions that this broker leads", replicas.led),
            (
                "under_replicated_partitions",
                "Led partitions with fewer in-sync replicas than replicas",
                replicas.led_under_replicated,
            ),
            (
                "under_min_isr_partitions",
                "Led partitions with fewer in-sync replicas than min.insync.replicas",
                replicas.led_under_min_isr,
            ),
            (
                "leaderless_partitions",
                "Partitions with a replica here that nobody leads",
                replicas.leaderless,
            ),
            (
                "offline_replicas",
                "Replicas here that cannot serve: their directory is offline or their log is damaged",
                replicas.offline,
            ),
            (
                "offline_log_directories",
                "Log directories that failed",
                replicas.offline_directories,
            ),
            (
                "full_log_directories",
                "Log directories with less room than log.dirs.min.free, where clients cannot write",
                observed.logs.full_count() as u64,
            ),
            (
                "disk_stall_milliseconds",
                "How long some log disk has not done what it was asked to do",
                u64::try_from(observed.logs.stall().as_millis()).unwrap_or(u64::MAX),
            ),
            (
                "metadata_applied_index",
                "Last metadata index that all partitions here follow",
                observed.publication.applied_index(),
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let (damages, repairs) = observed.logs.damages().found_and_repaired();
        for (name, help, value) in [
            ("damaged_logs", "Logs found damaged below what was synced", damages),
            ("repaired_logs", "Damaged logs that a leader has repaired", repairs),
        ] {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_is_documented() {
        let (metrics, mut registry) = (Metrics::default(), Registry::default());
        metrics.register(&mut registry);
        let directory = tempfile::tempdir().expect("a directory");
        let storage = crate::storage::StorageConfig::test_min(directory.path());
        let (logs, _) = LogDirs::open(storage, Arc::new(|_| {})).expect("an empty directory");
        metrics.observe(NodeId(1), Arc::new(Publication::new()), logs);
        metrics.produced_bytes.inc_by(5);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("into memory");
        for line in [
            "kontiki_broker_produced_bytes_total 5",
            "kontiki_broker_produced_batches_total 0",
            "kontiki_broker_leaders 0",
            "kontiki_broker_damaged_logs_total 0",
            "kontiki_broker_metadata_applied_index 0",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in\n{text}");
        }
    }
}
