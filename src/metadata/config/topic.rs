//! What holds for one topic, typed.

use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use imbl::OrdMap;

use super::defs::topic_defs;
use super::value::list_items;
use crate::metadata::MetadataImage;
use crate::record::Compression;
use crate::types::{ConfigResource, NodeId, TimestampMs};

/// When a record counts (design D9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on disk.
    Fsync,
    /// When the operating system has it.
    PageCache,
}

/// Which time a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    CreateTime,
    LogAppendTime,
}

/// What happens to old segments; both may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CleanupPolicy {
    /// Only the last record of each key stays.
    pub compact: bool,
    /// They go by age and size.
    pub delete: bool,
}

/// `min.insync.replicas` of a topic; `None` where nobody set it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MinIsr(pub Option<u32>);

impl MinIsr {
    /// How many in-sync replicas an acknowledgement of all needs, of a partition with so many replicas: never more
    /// than there are. Unset, it is 2 when there are three replicas or more, else 1.
    pub fn of(self, replica_count: usize) -> usize {
        let wanted = match self.0 {
            Some(count) => count as usize,
            None if replica_count >= 3 => 2,
            None => 1,
        };
        wanted.min(replica_count)
    }
}

/// The configs of a topic that something reads, valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicConfig {
    pub segment_bytes: u32,
    pub segment_ms: TimestampMs,
    pub segment_jitter_ms: TimestampMs,
    /// -1: no limit.
    pub retention_ms: TimestampMs,
    /// -1: no limit.
    pub retention_bytes: i64,
    pub segment_index_bytes: u32,
    pub index_interval_bytes: u32,
    pub max_message_bytes: u32,
    pub max_decompressed_message_bytes: u32,
    /// `None`: as the producer did. Read it through [`TopicConfig::compression`].
    pub compression_type: Option<Compression>,
    pub compression_gzip_level: i32,
    pub compression_lz4_level: i32,
    pub compression_zstd_level: i32,
    pub message_timestamp_type: TimestampType,
    pub message_timestamp_before_max_ms: TimestampMs,
    pub message_timestamp_after_max_ms: TimestampMs,
    pub file_delete_delay_ms: TimestampMs,
    /// With page-cache durability: records after which they are flushed, and time.
    pub flush_messages: i64,
    pub flush_ms: TimestampMs,
    pub cleanup_policy: CleanupPolicy,
    pub delete_retention_ms: TimestampMs,
    pub min_compaction_lag_ms: TimestampMs,
    pub max_compaction_lag_ms: TimestampMs,
    /// `min.cleanable.dirty.ratio`, in millionths.
    pub min_cleanable_dirty_ppm: u32,
    /// Read it through [`TopicConfig::min_isr`].
    pub min_insync_replicas: Option<u32>,
    /// `None`: the broker's.
    pub durability: Option<Durability>,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_jitter_ms: 0,
            retention_ms: 7 * 24 * 3_600_000,
            retention_bytes: -1,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            max_message_bytes: (1 << 20) + 12,
            max_decompressed_message_bytes: 2_147_483_639,
            compression_type: None,
            compression_gzip_level: Compression::Gzip.default_level(),
            compression_lz4_level: Compression::Lz4.default_level(),
            compression_zstd_level: Compression::Zstd.default_level(),
            message_timestamp_type: TimestampType::CreateTime,
            message_timestamp_before_max_ms: TimestampMs::MAX,
            message_timestamp_after_max_ms: 3_600_000,
            file_delete_delay_ms: 60_000,
            flush_messages: i64::MAX,
            flush_ms: TimestampMs::MAX,
            cleanup_policy: CleanupPolicy { compact: false, delete: true },
            delete_retention_ms: 24 * 3_600_000,
            min_compaction_lag_ms: 0,
            max_compaction_lag_ms: TimestampMs::MAX,
            min_cleanable_dirty_ppm: 500_000,
            min_insync_replicas: None,
            durability: None,
        }
    }
}

static BUILT_IN: LazyLock<Arc<TopicConfig>> = LazyLock::new(Arc::default);

impl TopicConfig {
    /// How many in-sync replicas an acknowledgement of all needs, of a partition with so many replicas.
    pub fn min_isr(&self, replica_count: usize) -> usize {
        MinIsr(self.min_insync_replicas).of(replica_count)
    }

    /// What retention goes by.
    pub fn retention(&self) -> (CleanupPolicy, TimestampMs, i64) {
        (self.cleanup_policy, self.retention_ms, self.retention_bytes)
    }

    /// Age at which a segment ends: one with records that must be compacted cannot stay the active one.
    pub fn roll_ms(&self) -> TimestampMs {
        let is_compacted = self.cleanup_policy.compact;
        if is_compacted { self.segment_ms.min(self.max_compaction_lag_ms) } else { self.segment_ms }
    }

    /// The codec in which batches are stored, and its level; `None`: the producer's.
    pub fn compression(&self) -> Option<(Compression, i32)> {
        let compression = self.compression_type?;
        let level = match compression {
            Compression::Gzip => self.compression_gzip_level,
            Compression::Lz4 => self.compression_lz4_level,
            Compression::Zstd => self.compression_zstd_level,
            Compression::None | Compression::Snappy => compression.default_level(),
        };
        Some((compression, level))
    }

    /// Values were validated when they were set. One that is not valid any more, because a later version is stricter,
    /// is passed over: metadata that is already agreed on must not stop a broker.
    fn set(&mut self, key: &str, value: &str) {
        match key {
            "segment.bytes" => assign(&mut self.segment_bytes, value),
            "segment.ms" => assign(&mut self.segment_ms, value),
            "segment.jitter.ms" => assign(&mut self.segment_jitter_ms, value),
            "retention.ms" => assign(&mut self.retention_ms, value),
            "retention.bytes" => assign(&mut self.retention_bytes, value),
            "flush.messages" => assign(&mut self.flush_messages, value),
            "flush.ms" => assign(&mut self.flush_ms, value),
            "file.delete.delay.ms" => assign(&mut self.file_delete_delay_ms, value),
            "segment.index.bytes" => assign(&mut self.segment_index_bytes, value),
            "index.interval.bytes" => assign(&mut self.index_interval_bytes, value),
            "max.message.bytes" => assign(&mut self.max_message_bytes, value),
            "max.decompressed.message.bytes" => {
                assign(&mut self.max_decompressed_message_bytes, value);
            }
            "compression.type" => {
                self.compression_type = match value {
                    "uncompressed" => Some(Compression::None),
                    codec => Compression::from_name(codec),
                }
            }
            "compression.gzip.level" => assign(&mut self.compression_gzip_level, value),
            "compression.lz4.level" => assign(&mut self.compression_lz4_level, value),
            "compression.zstd.level" => assign(&mut self.compression_zstd_level, value),
            "message.timestamp.type" => {
                self.message_timestamp_type = match value {
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => TimestampType::CreateTime,
                }
            }
            "message.timestamp.before.max.ms" => {
                assign(&mut self.message_timestamp_before_max_ms, value);
            }
            "message.timestamp.after.max.ms" => {
                assign(&mut self.message_timestamp_after_max_ms, value);
            }
            "cleanup.policy" => {
                let has = |policy| list_items(value).any(|item| item == policy);
                self.cleanup_policy =
                    CleanupPolicy { compact: has("compact"), delete: has("delete") };
            }
            "delete.retention.ms" => assign(&mut self.delete_retention_ms, value),
            "min.compaction.lag.ms" => assign(&mut self.min_compaction_lag_ms, value),
            "max.compaction.lag.ms" => assign(&mut self.max_compaction_lag_ms, value),
            "min.cleanable.dirty.ratio" => {
                self.min_cleanable_dirty_ppm = parse_ratio(value).unwrap_or_default();
            }
            "min.insync.replicas" => self.min_insync_replicas = value.parse().ok(),
            "log.durability" => self.durability = Durability::from_str(value).ok(),
            _ => {}
        }
    }
}

fn assign<T: FromStr>(field: &mut T, value: &str) {
    if let Ok(value) = value.parse() {
        *field = value;
    }
}

/// A number from 0 to 1, in canonical spelling, in millionths.
fn parse_ratio(value: &str) -> Option<u32> {
    const MILLION: u32 = 1_000_000;
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let fraction: String = fraction.chars().chain("000000".chars()).take(6).collect();
    Some(whole.parse::<u32>().ok()?.checked_mul(MILLION)? + fraction.parse::<u32>().ok()?)
}

impl Durability {
    /// As configs spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::PageCache => "page-cache",
        }
    }
}

/// A text that is neither `fsync` nor `page-cache`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither fsync nor page-cache")]
pub struct InvalidDurability(String);

impl FromStr for Durability {
    type Err = InvalidDurability;

    fn from_str(text: &str) -> Result<Self, InvalidDurability> {
        match text {
            "fsync" => Ok(Self::Fsync),
            "page-cache" => Ok(Self::PageCache),
            _ => Err(InvalidDurability(text.to_owned())),
        }
    }
}

impl MetadataImage {
    /// What holds for a topic on a broker: its own configs, then the broker's dynamic defaults, then those of all
    /// brokers, then the built-in ones. Also answers for topics that do not exist. Not for hot paths: keep the result
    /// until a delta names the topic.
    pub fn topic_config(&self, topic: &str, node_id: NodeId) -> Arc<TopicConfig> {
        let of_topic = self.topic_configs(topic);
        let of_broker = self.configs.get(&ConfigResource::Broker(node_id));
        let of_cluster = self.configs.get(&ConfigResource::Cluster);
        if of_topic.is_none() && of_broker.is_none() && of_cluster.is_none() {
            return BUILT_IN.clone();
        }
        let mut config = TopicConfig::default();
        for def in topic_defs() {
            let own = of_topic.and_then(|configs| configs.get(def.name));
            let default = || {
                let name = def.cluster_name?;
                of_broker.and_then(|it| it.get(name)).or_else(|| of_cluster?.get(name))
            };
            if let Some(value) = own.or_else(default) {
                config.set(def.name, value);
            }
        }
        Arc::new(config)
    }

    /// `min.insync.replicas` of a topic, without making all of its config.
    pub fn min_isr(&self, topic: &str) -> MinIsr {
        const KEY: &str = "min.insync.replicas";
        let own = self.topic_configs(topic).and_then(|configs| configs.get(KEY));
        let default = || self.configs.get(&ConfigResource::Cluster)?.get(KEY);
        MinIsr(own.or_else(default).and_then(|value| value.parse().ok()))
    }

    /// What was set for the topic itself.
    pub fn topic_configs(&self, topic: &str) -> Option<&OrdMap<String, String>> {
        let (name, _) = self.topic_ids.get_key_value(topic)?;
        self.configs.get(&ConfigResource::Topic(name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MetadataRecord;
    use crate::metadata::config::{topic_def, validate_topic};
    use crate::metadata::test_support::*;

    fn set(resource: ConfigResource, key: &str, value: &str) -> MetadataRecord {
        MetadataRecord::Config { resource, key: key.into(), value: Some(value.into()) }
    }

    #[test]
    fn the_topic_wins_over_the_cluster_and_the_cluster_over_the_built_in() {
        let mut image = image_with_topic("a", 1);
        assert_eq!(*image.topic_config("a", NodeId(1)), TopicConfig::default());
        apply(
            &mut image,
            vec![
                set(ConfigResource::Cluster, "log.segment.bytes", "2000000"),
                set(ConfigResource::Cluster, "message.max.bytes", "77"),
                set(ConfigResource::Topic("a".into()), "segment.bytes", "3000000"),
                set(ConfigResource::Topic("a".into()), "log.durability", "page-cache"),
                set(ConfigResource::Cluster, "min.insync.replicas", "1"),
            ],
        );
        let config = image.topic_config("a", NodeId(1));
        assert_eq!((config.segment_bytes, config.max_message_bytes), (3_000_000, 77));
        assert_eq!(config.durability, Some(Durability::PageCache));
        assert_eq!(image.topic_config("other", NodeId(1)).segment_bytes, 2_000_000);
        let broker = ConfigResource::Broker(NodeId(1));
        apply(&mut image, vec![set(broker.clone(), "log.segment.bytes", "4000000")]);
        apply(&mut image, vec![set(broker, "message.max.bytes", "78")]);
        let config = image.topic_config("a", NodeId(1));
        assert_eq!((config.segment_bytes, config.max_message_bytes), (3_000_000, 78));
        assert_eq!(image.topic_config("other", NodeId(1)).segment_bytes, 4_000_000);
        assert_eq!(image.topic_config("other", NodeId(2)).segment_bytes, 2_000_000);
        assert_eq!((config.min_isr(3), image.min_isr("a")), (1, MinIsr(Some(1))));
    }

    #[test]
    fn typed_defaults_are_those_of_the_table() {
        let mut from_table = TopicConfig::default();
        for def in topic_defs().iter().filter(|def| def.name != "min.insync.replicas") {
            from_table.set(def.name, def.default);
        }
        assert_eq!(
            from_table,
            TopicConfig { durability: Some(Durability::Fsync), ..Default::default() }
        );
    }

    #[test]
    fn every_implemented_config_has_an_effect() {
        let other_values = [
            ("cleanup.policy", "compact"),
            ("delete.retention.ms", "5"),
            ("max.compaction.lag.ms", "5"),
            ("min.cleanable.dirty.ratio", "0.25"),
            ("min.compaction.lag.ms", "5"),
            ("segment.bytes", "2000000"),
            ("segment.ms", "5"),
            ("segment.jitter.ms", "5"),
            ("retention.ms", "5"),
            ("retention.bytes", "5"),
            ("file.delete.delay.ms", "5"),
            ("flush.messages", "5"),
            ("flush.ms", "5"),
            ("segment.index.bytes", "4096"),
            ("index.interval.bytes", "5"),
            ("max.message.bytes", "5"),
            ("max.decompressed.message.bytes", "5"),
            ("compression.type", "uncompressed"),
            ("compression.gzip.level", "5"),
            ("compression.lz4.level", "5"),
            ("compression.zstd.level", "-5"),
            ("message.timestamp.type", "LogAppendTime"),
            ("message.timestamp.before.max.ms", "5"),
            ("message.timestamp.after.max.ms", "5"),
            ("min.insync.replicas", "5"),
            ("log.durability", "page-cache"),
        ];
        for (key, value) in other_values {
            assert_eq!(validate_topic(key, value), Ok(value.to_owned()));
            let mut config = TopicConfig::default();
            config.set(key, value);
            assert_ne!(config, TopicConfig::default(), "{key}");
        }
        let implemented = topic_defs().iter().filter(|def| def.implemented).count();
        assert_eq!(implemented, other_values.len());
        assert!(topic_def("log.durability").is_some());
    }

    #[test]
    fn compaction_is_typed() {
        let mut config = TopicConfig::default();
        config.set("cleanup.policy", "delete,compact");
        assert_eq!(config.cleanup_policy, CleanupPolicy { compact: true, delete: true });
        config.set("cleanup.policy", "compact");
        assert_eq!(config.cleanup_policy, CleanupPolicy { compact: true, delete: false });
        for (ratio, ppm) in [("0", 0), ("1", 1_000_000), ("0.25", 250_000), ("0.00000051", 0)] {
            config.set("min.cleanable.dirty.ratio", ratio);
            assert_eq!(config.min_cleanable_dirty_ppm, ppm, "{ratio}");
        }
    }

    #[test]
    fn the_minimum_isr_is_two_of_three_and_never_more_than_there_are() {
        let unset: Vec<usize> = (1..=5).map(|replicas| MinIsr(None).of(replicas)).collect();
        assert_eq!(unset, [1, 1, 2, 2, 2]);
        assert_eq!(MinIsr(Some(3)).of(2), 2);
    }
}
