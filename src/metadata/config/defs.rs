//! The table of configs: Kafka 4.4's topic configs, and ours.

use std::fmt;

/// One config.
#[derive(Debug, PartialEq, Eq)]
pub struct ConfigDef {
    pub name: &'static str,
    pub kind: ConfigKind,
    /// In canonical spelling.
    pub default: &'static str,
    /// Its name on brokers, by which the default of all topics is set. `None`: only topics have it.
    pub cluster_name: Option<&'static str>,
    /// Otherwise it accepts only its default.
    pub implemented: bool,
    pub doc: &'static str,
}

/// What a value may be. Bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigKind {
    Boolean,
    Int {
        min: i32,
        max: i32,
    },
    Long {
        min: i64,
    },
    /// A decimal number from 0 to 1.
    Ratio,
    Choice(&'static [&'static str]),
    /// Separated by commas; any item when there are no choices.
    List(&'static [&'static str]),
}

impl fmt::Display for ConfigKind {
    /// What it takes, for a sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => write!(f, "true or false"),
            Self::Int { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Long { min: i64::MIN } => write!(f, "a whole number"),
            Self::Long { min } => write!(f, "a whole number from {min}"),
            Self::Ratio => write!(f, "a number from 0 to 1"),
            Self::Choice(choices) => write!(f, "one of {}", choices.join(", ")),
            Self::List([]) => write!(f, "a list"),
            Self::List(choices) => write!(f, "a list of {}", choices.join(", ")),
        }
    }
}

/// All topic configs, by name.
pub fn topic_defs() -> &'static [ConfigDef] {
    TOPIC_DEFS
}

pub fn topic_def(name: &str) -> Option<&'static ConfigDef> {
    let position = TOPIC_DEFS.binary_search_by(|def| def.name.cmp(name)).ok()?;
    TOPIC_DEFS.get(position)
}

/// Those whose default can be set for all topics.
pub(super) fn cluster_defs() -> impl Iterator<Item = &'static ConfigDef> {
    TOPIC_DEFS.iter().filter(|def| def.cluster_name.is_some())
}

/// By a name that it has on brokers.
pub fn cluster_def(name: &str) -> Option<&'static ConfigDef> {
    cluster_defs().find(|def| def.cluster_name == Some(name))
}

const TOPIC_DEFS: &[ConfigDef] = &[
    ConfigDef {
        name: "cleanup.policy",
        kind: ConfigKind::List(&["compact", "delete"]),
        default: "delete",
        cluster_name: Some("log.cleanup.policy"),
        implemented: true,
        doc: "What happens to old segments: `delete` drops them, `compact` keeps the last record of each key, both do both.",
    },
    ConfigDef {
        name: "compression.gzip.level",
        kind: ConfigKind::Int { min: -1, max: 9 },
        default: "-1",
        cluster_name: Some("compression.gzip.level"),
        implemented: true,
        doc: "Level at which the broker compresses with gzip; -1 is gzip's own default.",
    },
    ConfigDef {
        name: "compression.lz4.level",
        kind: ConfigKind::Int { min: 1, max: 17 },
        default: "9",
        cluster_name: Some("compression.lz4.level"),
        implemented: true,
        doc: "Level at which the broker compresses with lz4. 9 is the fast compressor; all others are slow and pack tighter.",
    },
    ConfigDef {
        name: "compression.type",
        kind: ConfigKind::Choice(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]),
        default: "producer",
        cluster_name: Some("compression.type"),
        implemented: true,
        doc: "How batches are stored; `producer` keeps them as they came.",
    },
    ConfigDef {
        name: "compression.zstd.level",
        kind: ConfigKind::Int { min: -131_072, max: 22 },
        default: "3",
        cluster_name: Some("compression.zstd.level"),
        implemented: true,
        doc: "Level at which the broker compresses with zstd.",
    },
    ConfigDef {
        name: "delete.retention.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "86400000",
        cluster_name: Some("log.cleaner.delete.retention.ms"),
        implemented: true,
        doc: "How long compaction keeps the tombstone of a deleted key, so that a slow reader still sees it.",
    },
    ConfigDef {
        name: "errors.deadletterqueue.group.enable",
        kind: ConfigKind::Boolean,
        default: "false",
        cluster_name: None,
        implemented: false,
        doc: "Whether share groups may use the topic as their dead letter queue.",
    },
    ConfigDef {
        name: "file.delete.delay.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "60000",
        cluster_name: Some("log.segment.delete.delay.ms"),
        implemented: true,
        doc: "How long a deleted file stays on disk under another name.",
    },
    ConfigDef {
        name: "flush.messages",
        kind: ConfigKind::Long { min: 1 },
        default: "9223372036854775807",
        cluster_name: Some("log.flush.interval.messages"),
        implemented: true,
        doc: "Records after which the log is flushed. With `log.durability` fsync they are flushed before they count anyway.",
    },
    ConfigDef {
        name: "flush.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "9223372036854775807",
        cluster_name: Some("log.flush.interval.ms"),
        implemented: true,
        doc: "Time after which records are flushed. With `log.durability` fsync they are flushed before they count anyway.",
    },
    ConfigDef {
        name: "follower.replication.throttled.replicas",
        kind: ConfigKind::List(&[]),
        default: "",
        cluster_name: None,
        implemented: false,
        doc: "Replicas, as partition:broker or `*`, whose traffic is limited on the follower.",
    },
    ConfigDef {
        name: "index.interval.bytes",
        kind: ConfigKind::Int { min: 0, max: i32::MAX },
        default: "4096",
        cluster_name: Some("log.index.interval.bytes"),
        implemented: true,
        doc: "Bytes of log between two entries of the offset index.",
    },
    ConfigDef {
        name: "leader.replication.throttled.replicas",
        kind: ConfigKind::List(&[]),
        default: "",
        cluster_name: None,
        implemented: false,
        doc: "Replicas, as partition:broker or `*`, whose traffic is limited on the leader.",
    },
    ConfigDef {
        name: "local.retention.bytes",
        kind: ConfigKind::Long { min: -2 },
        default: "-2",
        cluster_name: Some("log.local.retention.bytes"),
        implemented: false,
        doc: "Size of the local part of a tiered partition; -2 is `retention.bytes`.",
    },
    ConfigDef {
        name: "local.retention.ms",
        kind: ConfigKind::Long { min: -2 },
        default: "-2",
        cluster_name: Some("log.local.retention.ms"),
        implemented: false,
        doc: "Age of the local part of a tiered partition; -2 is `retention.ms`.",
    },
    ConfigDef {
        name: "log.durability",
        kind: ConfigKind::Choice(&["fsync", "page-cache"]),
        default: "fsync",
        cluster_name: Some("log.durability"),
        implemented: true,
        doc: "When a record counts as written: `fsync`, when it is on disk; `page-cache`, when the operating system has it.",
    },
    ConfigDef {
        name: "max.compaction.lag.ms",
        kind: ConfigKind::Long { min: 1 },
        default: "9223372036854775807",
        cluster_name: Some("log.cleaner.max.compaction.lag.ms"),
        implemented: true,
        doc: "Age at which a record must have been considered by compaction.",
    },
    ConfigDef {
        name: "max.decompressed.message.bytes",
        kind: ConfigKind::Int { min: 1, max: 2_147_483_639 },
        default: "2147483639",
        cluster_name: Some("max.decompressed.message.bytes"),
        implemented: true,
        doc: "Largest record that a compressed batch may hold.",
    },
    ConfigDef {
        name: "max.message.bytes",
        kind: ConfigKind::Int { min: 0, max: i32::MAX },
        default: "1048588",
        cluster_name: Some("message.max.bytes"),
        implemented: true,
        doc: "Largest batch, compressed, that is accepted.",
    },
    ConfigDef {
        name: "message.timestamp.after.max.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "3600000",
        cluster_name: Some("log.message.timestamp.after.max.ms"),
        implemented: true,
        doc: "How far a record's timestamp may be ahead of the broker's clock, with CreateTime.",
    },
    ConfigDef {
        name: "message.timestamp.before.max.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "9223372036854775807",
        cluster_name: Some("log.message.timestamp.before.max.ms"),
        implemented: true,
        doc: "How far a record's timestamp may be behind the broker's clock, with CreateTime.",
    },
    ConfigDef {
        name: "message.timestamp.type",
        kind: ConfigKind::Choice(&["CreateTime", "LogAppendTime"]),
        default: "CreateTime",
        cluster_name: Some("log.message.timestamp.type"),
        implemented: true,
        doc: "Whether a record has the producer's time or the broker's.",
    },
    ConfigDef {
        name: "min.cleanable.dirty.ratio",
        kind: ConfigKind::Ratio,
        default: "0.5",
        cluster_name: Some("log.cleaner.min.cleanable.ratio"),
        implemented: true,
        doc: "Share of a log that must be uncompacted before compaction runs.",
    },
    ConfigDef {
        name: "min.compaction.lag.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "0",
        cluster_name: Some("log.cleaner.min.compaction.lag.ms"),
        implemented: true,
        doc: "Age below which a record is not compacted.",
    },
    ConfigDef {
        name: "min.insync.replicas",
        kind: ConfigKind::Int { min: 1, max: i32::MAX },
        default: "1",
        cluster_name: Some("min.insync.replicas"),
        implemented: true,
        doc: "In-sync replicas that a write with acks=all needs. Where it is not set: 2 of three replicas or more, else 1.",
    },
    ConfigDef {
        name: "preallocate",
        kind: ConfigKind::Boolean,
        default: "false",
        cluster_name: Some("log.preallocate"),
        implemented: false,
        doc: "Whether a new segment takes its full size on disk at once.",
    },
    ConfigDef {
        name: "remote.copy.lag.bytes",
        kind: ConfigKind::Long { min: -1 },
        default: "-1",
        cluster_name: Some("log.remote.copy.lag.bytes"),
        implemented: false,
        doc: "Bytes that a tiered partition keeps before it copies a segment away.",
    },
    ConfigDef {
        name: "remote.copy.lag.ms",
        kind: ConfigKind::Long { min: -1 },
        default: "0",
        cluster_name: Some("log.remote.copy.lag.ms"),
        implemented: false,
        doc: "Time that a tiered partition waits before it copies a segment away.",
    },
    ConfigDef {
        name: "remote.log.copy.disable",
        kind: ConfigKind::Boolean,
        default: "false",
        cluster_name: None,
        implemented: false,
        doc: "Whether a tiered topic stops copying, and is read only.",
    },
    ConfigDef {
        name: "remote.log.delete.on.disable",
        kind: ConfigKind::Boolean,
        default: "false",
        cluster_name: None,
        implemented: false,
        doc: "Whether tiered data is deleted when tiering is switched off.",
    },
    ConfigDef {
        name: "remote.storage.enable",
        kind: ConfigKind::Boolean,
        default: "false",
        cluster_name: None,
        implemented: false,
        doc: "Whether old segments move to remote storage.",
    },
    ConfigDef {
        name: "retention.bytes",
        kind: ConfigKind::Long { min: i64::MIN },
        default: "-1",
        cluster_name: Some("log.retention.bytes"),
        implemented: true,
        doc: "Size of a partition above which old segments are deleted; -1 is no limit.",
    },
    ConfigDef {
        name: "retention.ms",
        kind: ConfigKind::Long { min: -1 },
        default: "604800000",
        cluster_name: Some("log.retention.ms"),
        implemented: true,
        doc: "Age at which old segments are deleted; -1 is never.",
    },
    ConfigDef {
        name: "segment.bytes",
        kind: ConfigKind::Int { min: 1_048_576, max: i32::MAX },
        default: "1073741824",
        cluster_name: Some("log.segment.bytes"),
        implemented: true,
        doc: "Size at which a new segment begins.",
    },
    ConfigDef {
        name: "segment.index.bytes",
        kind: ConfigKind::Int { min: 4, max: i32::MAX },
        default: "10485760",
        cluster_name: Some("log.index.size.max.bytes"),
        implemented: true,
        doc: "Largest size of an index file.",
    },
    ConfigDef {
        name: "segment.jitter.ms",
        kind: ConfigKind::Long { min: 0 },
        default: "0",
        cluster_name: Some("log.roll.jitter.ms"),
        implemented: true,
        doc: "Random part of `segment.ms`, so that segments do not all roll at once.",
    },
    ConfigDef {
        name: "segment.ms",
        kind: ConfigKind::Long { min: 1 },
        default: "604800000",
        cluster_name: Some("log.roll.ms"),
        implemented: true,
        doc: "Age at which a new segment begins.",
    },
    ConfigDef {
        name: "unclean.leader.election.enable",
        kind: ConfigKind::Boolean,
        default: "false",
        cluster_name: Some("unclean.leader.election.enable"),
        implemented: false,
        doc: "Whether a replica that lost records may lead when no other can.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_names_are_unique() {
        assert!(TOPIC_DEFS.is_sorted_by(|a, b| a.name < b.name));
        for def in cluster_defs() {
            let name = def.cluster_name.unwrap();
            assert_eq!(cluster_def(name), Some(def));
        }
        assert_eq!(topic_def("retention.ms").unwrap().default, "604800000");
        assert_eq!(topic_def("retention"), None);
    }
}
