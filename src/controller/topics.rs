//! Creation and deletion of topics (replication.md 1.6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::placement::{place, usable_brokers};
use super::request::refuse;
use super::{
    ControllerReply, CreatableTopic, CreatedTopic, Decision, DecisionContext, DeletedTopic,
    RECORDS_MAX, Refusal, TopicSelector,
};
use crate::metadata::config::validate_topic;
use crate::metadata::{
    LeaderRecovery, MetadataImage, MetadataRecord, PartitionImage, PartitionRecord, TopicImage,
    TopicRecord,
};
use crate::protocol::ErrorCode;
use crate::types::random::Seeded;
use crate::types::{ConfigResource, LeaderEpoch, NodeId, PartitionEpoch, TopicId};

/// Replicas that a topic gets where nobody said how many, if there are as many brokers.
const DEFAULT_REPLICATION_FACTOR: usize = 3;
const NAME_SIZE_MAX: usize = 249;

pub(super) fn create(
    image: &MetadataImage,
    context: &DecisionContext<'_>,
    topics: &[CreatableTopic],
    validate_only: bool,
) -> Decision {
    let mut random = Seeded(context.seed);
    let mut creation = Creation::new(image, context, topics);
    let results = topics.iter().map(|topic| creation.topic(topic, random.number())).collect();
    let records = if validate_only { Vec::new() } else { creation.records };
    Decision { records, reply: Ok(ControllerReply::CreateTopics { results, index: image.index }) }
}

/// One request that creates topics, each on its own.
struct Creation<'a> {
    image: &'a MetadataImage,
    context: &'a DecisionContext<'a>,
    /// Names that appear more than once in the request.
    repeated: BTreeSet<&'a str>,
    /// Names that exist or are being created, with '.' as '_', because metrics cannot tell the two apart.
    taken: BTreeMap<String, Arc<str>>,
    ids: BTreeSet<TopicId>,
    records: Vec<MetadataRecord>,
}

fn collision_key(name: &str) -> String {
    name.replace('.', "_")
}

impl<'a> Creation<'a> {
    fn new(
        image: &'a MetadataImage,
        context: &'a DecisionContext<'a>,
        topics: &'a [CreatableTopic],
    ) -> Self {
        let mut names = BTreeSet::new();
        let repeated = topics
            .iter()
            .map(|topic| topic.name.as_str())
            .filter(|name| !names.insert(*name))
            .collect();
        let may_collide = topics.iter().any(|topic| topic.name.contains(['.', '_']));
        let taken = match may_collide {
            true => {
                image.topic_ids.keys().map(|name| (collision_key(name), name.clone())).collect()
            }
            false => BTreeMap::new(),
        };
        Self { image, context, repeated, taken, ids: BTreeSet::new(), records: Vec::new() }
    }

    fn topic(&mut self, topic: &CreatableTopic, seed: u64) -> Result<CreatedTopic, Refusal> {
        self.check_name(&topic.name)?;
        if topic.topic_id.is_zero()
            || self.image.topic_by_id(topic.topic_id).is_some()
            || self.ids.contains(&topic.topic_id)
        {
            return refuse(ErrorCode::InvalidRequest, "the request carries no new topic id");
        }
        let configs = check_configs(&topic.configs)?;
        let assignments = if topic.assignments.is_empty() {
            self.place(topic, configs.len(), seed)?
        } else {
            self.check_assignments(topic)?
        };
        if self.records.len() + 1 + configs.len() + assignments.len() > RECORDS_MAX {
            return too_many(&topic.name);
        }
        let created = CreatedTopic {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partition_count: i32::try_from(assignments.len()).expect("bounded by RECORDS_MAX"),
            replication_factor: i16::try_from(assignments[0].len()).expect("at most all brokers"),
        };
        let name: Arc<str> = topic.name.as_str().into();
        self.ids.insert(topic.topic_id);
        self.taken.insert(collision_key(&name), name.clone());
        self.push_records(name, topic.topic_id, configs, assignments);
        Ok(created)
    }

    fn check_name(&self, name: &str) -> Result<(), Refusal> {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > NAME_SIZE_MAX || !name.chars().all(legal) {
            return refuse(
                ErrorCode::InvalidTopicException,
                format!(
                    "{name:?} is no topic name: those have 1 to {NAME_SIZE_MAX} characters of \
                     a-z, A-Z, 0-9, '.', '_' and '-'"
                ),
            );
        }
        if name == "." || name == ".." {
            return refuse(ErrorCode::InvalidTopicException, "a topic cannot be named '.' or '..'");
        }
        if self.repeated.contains(name) {
            return refuse(ErrorCode::InvalidRequest, format!("topic {name} appears twice"));
        }
        if self.image.topic_ids.contains_key(name) {
            return refuse(ErrorCode::TopicAlreadyExists, format!("topic {name} exists"));
        }
        if let Some(other) = self.taken.get(&collision_key(name)) {
            return refuse(
                ErrorCode::InvalidTopicException,
                format!("{name} collides with topic {other}: metrics show '.' as '_'"),
            );
        }
        Ok(())
    }

    fn place(
        &self,
        topic: &CreatableTopic,
        config_count: usize,
        seed: u64,
    ) -> Result<Vec<Vec<NodeId>>, Refusal> {
        let defaults = self.context.defaults;
        let partition_count = match topic.partition_count {
            -1 => defaults.partition_count,
            count => count,
        };
        let partition_count = match usize::try_from(partition_count) {
            Ok(count) if count > 0 => count,
            _ => {
                return refuse(
                    ErrorCode::InvalidPartitions,
                    "the number of partitions must be larger than 0, or -1 for the default",
                );
            }
        };
        let replication_factor = match (topic.replication_factor, defaults.replication_factor) {
            (-1, None) => DEFAULT_REPLICATION_FACTOR.min(usable_brokers(self.image)).max(1),
            (-1, Some(factor)) | (factor, _) => match usize::try_from(factor) {
                Ok(factor) if factor > 0 => factor,
                _ => {
                    return refuse(
                        ErrorCode::InvalidReplicationFactor,
                        "the replication factor must be larger than 0, or -1 for the default",
                    );
                }
            },
        };
        // Before anything of that size is made.
        if self.records.len() + 1 + config_count + partition_count > RECORDS_MAX {
            return too_many(&topic.name);
        }
        place(self.image, partition_count, replication_factor, seed)
    }

    fn check_assignments(&self, topic: &CreatableTopic) -> Result<Vec<Vec<NodeId>>, Refusal> {
        if topic.partition_count != -1 || topic.replication_factor != -1 {
            return refuse(
                ErrorCode::InvalidRequest,
                "with manual assignments, partition count and replication factor must both be -1",
            );
        }
        let invalid = |reason: String| refuse(ErrorCode::InvalidReplicaAssignment, reason);
        let mut assignments: Vec<Vec<NodeId>> = Vec::with_capacity(topic.assignments.len());
        for (expected, (&partition, replicas)) in (0..).zip(&topic.assignments) {
            if partition != expected {
                return invalid(format!(
                    "partitions must be numbered from 0: {expected} is missing"
                ));
            }
            if replicas.is_empty() {
                return invalid(format!("partition {partition} has no replicas"));
            }
            if assignments.first().is_some_and(|first| first.len() != replicas.len()) {
                return invalid(format!(
                    "partition {partition} has {} replicas, partition 0 has another number",
                    replicas.len()
                ));
            }
            check_replicas(self.image, usize::try_from(partition).unwrap_or(0), replicas)?;
            assignments.push(replicas.clone());
        }
        Ok(assignments)
    }

    fn push_records(
        &mut self,
        name: Arc<str>,
        topic_id: TopicId,
        configs: BTreeMap<&str, String>,
        assignments: Vec<Vec<NodeId>>,
    ) {
        self.records.push(MetadataRecord::Topic(TopicRecord { topic_id, name: name.clone() }));
        self.records.extend(configs.into_iter().map(|(key, value)| MetadataRecord::Config {
            resource: ConfigResource::Topic(name.clone()),
            key: key.to_owned(),
            value: Some(value),
        }));
        for (partition, replicas) in (0..).zip(assignments) {
            let state = Arc::new(new_partition(self.image, replicas));
            let record = PartitionRecord { topic_id, partition, state };
            self.records.push(MetadataRecord::Partition(record));
        }
    }
}

/// Whether a new partition may have these replicas.
pub(super) fn check_replicas(
    image: &MetadataImage,
    partition: usize,
    replicas: &[NodeId],
) -> Result<(), Refusal> {
    let invalid = |reason: String| refuse(ErrorCode::InvalidReplicaAssignment, reason);
    for (i, replica) in replicas.iter().enumerate() {
        if replicas[..i].contains(replica) {
            return invalid(format!("partition {partition} names broker {replica} twice"));
        }
        if image.broker(*replica).is_none() {
            return invalid(format!("broker {replica} is not registered"));
        }
    }
    if !replicas.iter().any(|replica| image.is_active(*replica)) {
        return invalid(format!("no replica of partition {partition} is active"));
    }
    Ok(())
}

fn too_many<T>(name: &str) -> Result<T, Refusal> {
    refuse(
        ErrorCode::PolicyViolation,
        format!(
            "with topic {name} the request would make more than {RECORDS_MAX} records; split it"
        ),
    )
}

fn check_configs(configs: &[(String, Option<String>)]) -> Result<BTreeMap<&str, String>, Refusal> {
    let mut checked = BTreeMap::new();
    for (key, value) in configs {
        let Some(value) = value else {
            return refuse(ErrorCode::InvalidConfig, format!("config {key} has no value"));
        };
        let value = validate_topic(key, value)
            .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.to_string()))?;
        if checked.insert(key.as_str(), value).is_some() {
            return refuse(ErrorCode::InvalidConfig, format!("config {key} appears twice"));
        }
    }
    Ok(checked)
}

/// Whoever is active has everything, for there is nothing yet.
pub(super) fn new_partition(image: &MetadataImage, replicas: Vec<NodeId>) -> PartitionImage {
    let isr: Vec<NodeId> = replicas.iter().copied().filter(|node| image.is_active(*node)).collect();
    PartitionImage {
        leader: isr.first().copied().unwrap_or(NodeId::NONE),
        replicas,
        isr,
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
        adding: Vec::new(),
        removing: Vec::new(),
        recovery: LeaderRecovery::Recovered,
    }
}

pub(super) fn delete(image: &MetadataImage, selectors: &[TopicSelector]) -> Decision {
    let mut records = Vec::new();
    let mut deleted: BTreeSet<TopicId> = BTreeSet::new();
    let mut results = Vec::with_capacity(selectors.len());
    for selector in selectors {
        results.push(find(image, selector).and_then(|topic| {
            if !deleted.insert(topic.topic_id) {
                return refuse(
                    ErrorCode::InvalidRequest,
                    format!("topic {} appears twice", topic.name),
                );
            }
            records.push(MetadataRecord::RemoveTopic { topic_id: topic.topic_id });
            Ok(DeletedTopic { name: topic.name.clone(), topic_id: topic.topic_id })
        }));
    }
    Decision { records, reply: Ok(ControllerReply::DeleteTopics { results, index: image.index }) }
}

fn find<'a>(image: &'a MetadataImage, selector: &TopicSelector) -> Result<&'a TopicImage, Refusal> {
    let (found, code) = match selector {
        TopicSelector::Name(name) => (image.topic(name), ErrorCode::UnknownTopicOrPartition),
        TopicSelector::Id(id) => (image.topic_by_id(*id), ErrorCode::UnknownTopicId),
    };
    let found = found.map(|topic| &**topic);
    found.ok_or_else(|| match selector {
        TopicSelector::Name(name) => Refusal::new(code, format!("there is no topic {name}")),
        TopicSelector::Id(id) => Refusal::new(code, format!("there is no topic with id {id}")),
    })
}

#[cfg(test)]
#[path = "topics_test.rs"]
mod tests;
