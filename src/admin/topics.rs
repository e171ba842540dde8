//! `/v1/topics`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::problem::Problem;
use crate::controller::{ConfigChange, ConfigOperation, CreatableTopic};
use crate::metadata::{MetadataImage, PartitionImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::native::ConfigView;
use crate::types::{ConfigResource, NodeId, nearest, random};

#[derive(Debug, Serialize)]
pub(super) struct TopicsView {
    topics: Vec<TopicSummary>,
}

#[derive(Debug, Serialize)]
struct TopicSummary {
    name: String,
    topic_id: String,
    partition_count: usize,
    replication_factor: usize,
    leaderless_partitions: usize,
    under_replicated_partitions: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct TopicView {
    #[serde(flatten)]
    summary: TopicSummary,
    /// Effective values, defaults included.
    configs: BTreeMap<String, ConfigValue>,
    partitions: Vec<PartitionView>,
}

#[derive(Debug, Serialize)]
struct ConfigValue {
    value: Option<String>,
    source: String,
}

#[derive(Debug, Serialize)]
pub(super) struct PartitionsView {
    partitions: Vec<PartitionView>,
}

#[derive(Debug, Serialize)]
struct PartitionView {
    partition: usize,
    /// Null while nobody leads it.
    leader: Option<i32>,
    leader_epoch: i32,
    partition_epoch: i32,
    replicas: Vec<i32>,
    isr: Vec<i32>,
    elr: Vec<i32>,
}

/// The body of a creation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTopicBody {
    pub(super) name: String,
    /// Left out: the cluster's default.
    partition_count: Option<i32>,
    /// Left out: the cluster's default.
    replication_factor: Option<i16>,
    /// Partition to replicas, preferred leader first, instead of the two above.
    #[serde(default)]
    assignments: BTreeMap<i32, Vec<i32>>,
    #[serde(default)]
    configs: BTreeMap<String, String>,
    /// Checks everything and creates nothing.
    #[serde(default)]
    pub(super) validate_only: bool,
}

/// The body of a change of configs. Null goes back to the default.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AlterTopicBody {
    configs: BTreeMap<String, Option<String>>,
    #[serde(default)]
    pub(super) validate_only: bool,
}

impl CreateTopicBody {
    pub(super) fn into_request(self) -> CreatableTopic {
        let replicas = |replicas: Vec<i32>| replicas.into_iter().map(NodeId).collect();
        CreatableTopic {
            name: self.name,
            topic_id: random::uuid(),
            partition_count: self.partition_count.unwrap_or(-1),
            replication_factor: self.replication_factor.unwrap_or(-1),
            assignments: self.assignments.into_iter().map(|(p, r)| (p, replicas(r))).collect(),
            configs: self.configs.into_iter().map(|(key, value)| (key, Some(value))).collect(),
        }
    }
}

impl AlterTopicBody {
    pub(super) fn into_change(self, topic: &str) -> Result<ConfigChange, Problem> {
        if self.configs.is_empty() {
            return Err(Problem::bad_request("`configs` is empty: there is nothing to change"));
        }
        let operation =
            |value: Option<String>| value.map_or(ConfigOperation::Delete, ConfigOperation::Set);
        Ok(ConfigChange {
            resource: ConfigResource::Topic(topic.into()),
            operations: self
                .configs
                .into_iter()
                .map(|(key, value)| (key, operation(value)))
                .collect(),
        })
    }
}

pub(super) fn topics(image: &MetadataImage) -> TopicsView {
    // By name, as people look for them.
    let in_order = image.topic_ids.values().filter_map(|id| image.topic_by_id(*id));
    TopicsView { topics: in_order.map(|topic| summary(topic)).collect() }
}

pub(super) fn topic(topic: &TopicImage, configs: Vec<ConfigView>) -> TopicView {
    let value = |config: ConfigView| {
        (config.name, ConfigValue { value: config.value, source: config.source })
    };
    TopicView {
        summary: summary(topic),
        configs: configs.into_iter().map(value).collect(),
        partitions: partitions(topic).partitions,
    }
}

pub(super) fn partitions(topic: &TopicImage) -> PartitionsView {
    let ids = |nodes: &[NodeId]| nodes.iter().map(|id| id.0).collect();
    let view = |(partition, image): (usize, &Arc<PartitionImage>)| PartitionView {
        partition,
        leader: image.leader.known().map(|id| id.0),
        leader_epoch: image.leader_epoch.0,
        partition_epoch: image.partition_epoch.0,
        replicas: ids(&image.replicas),
        isr: ids(&image.isr),
        elr: ids(&image.elr),
    };
    PartitionsView { partitions: topic.partitions.iter().enumerate().map(view).collect() }
}

/// The topic that a path names.
pub(super) fn find_topic<'a>(
    image: &'a MetadataImage,
    name: &str,
) -> Result<&'a TopicImage, Problem> {
    image.topic(name).map(|topic| &**topic).ok_or_else(|| {
        let detail = match nearest(name, image.topic_ids.keys().map(|known| &**known)) {
            Some(known) => format!("there is no topic {name:?}; did you mean {known:?}?"),
            None => format!("there is no topic {name:?}"),
        };
        Problem::not_found(ErrorCode::UnknownTopicOrPartition, detail)
    })
}

/// Fewer replicas in sync than assigned.
pub(super) fn is_under_replicated(partition: &PartitionImage) -> bool {
    partition.isr.len() < partition.replicas.len()
}

fn summary(topic: &TopicImage) -> TopicSummary {
    let count = |holds: fn(&PartitionImage) -> bool| {
        topic.partitions.iter().filter(|partition| holds(partition)).count()
    };
    TopicSummary {
        name: topic.name.to_string(),
        topic_id: topic.topic_id.to_string(),
        partition_count: topic.partitions.len(),
        replication_factor: topic.replication_factor(),
        leaderless_partitions: count(|partition| partition.leader.known().is_none()),
        under_replicated_partitions: count(is_under_replicated),
    }
}
