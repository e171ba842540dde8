//! `replay`: how a batch changes an image. The only mutator of metadata.
//!
//! Records are facts that the active controller made from the same image, so a record that contradicts it means that
//! two nodes disagree about the past: the process stops, it never skips (replication.md 1.1 R5). After an error the
//! image is half changed and must not be used.

use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::{
    BATCH_VERSION, BrokerChangeRecord, BrokerImage, MetadataBatch, MetadataImage, MetadataRecord,
    OfflineImage, PartitionChangeRecord, PartitionRecord, RegisterBrokerRecord, TopicImage,
    TopicRecord,
};
use crate::codec;
use crate::types::{BrokerEpoch, ConfigResource, MetadataIndex, NodeId, TopicId};

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replayed {
    Applied,
    /// Its basis was not the last batch: decided against a state that is not this one. Identical on every node.
    Dropped,
}

/// A batch that contradicts the image. It is a fault: the process stops (replication.md 1.1 R5).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    #[error("metadata batch version {0} is newer than this node reads; upgrade this node")]
    NewerBatch(u16),
    #[error("metadata index {index} comes after {last}")]
    OutOfOrder { index: MetadataIndex, last: MetadataIndex },
    #[error("broker {0} is not registered, or not with this epoch")]
    UnknownBroker(NodeId),
    #[error("topic {0} does not exist")]
    UnknownTopic(TopicId),
    #[error("{0}")]
    Contradiction(String),
    #[error("digest of the metadata at {index} is {ours:032x} here, {theirs:032x} elsewhere")]
    Diverged { index: MetadataIndex, ours: u128, theirs: u128 },
}

fn contradiction<T>(what: impl Into<String>) -> Result<T, ReplayError> {
    Err(ReplayError::Contradiction(what.into()))
}

impl MetadataImage {
    /// Replays the entry at `index`. Dropped (identically everywhere) when its basis is not `batch_index`.
    pub fn replay(
        &mut self,
        index: MetadataIndex,
        batch: &MetadataBatch,
    ) -> Result<Replayed, ReplayError> {
        if batch.version > BATCH_VERSION {
            return Err(ReplayError::NewerBatch(batch.version));
        }
        if index <= self.index && self.index != 0 {
            return Err(ReplayError::OutOfOrder { index, last: self.index });
        }
        self.index = index;
        if batch.basis != self.batch_index {
            return Ok(Replayed::Dropped);
        }
        self.replay_records(index, &batch.records)?;
        self.time_ms = self.time_ms.max(batch.time_ms);
        self.batch_index = index;
        self.batch_count += 1;
        self.digest = self.next_digest(index, batch);
        Ok(Replayed::Applied)
    }

    /// For entries that hold no batch: blank ones and memberships.
    pub fn advance(&mut self, index: MetadataIndex) {
        self.index = self.index.max(index);
    }

    /// Part of a batch, as the controller sees its own decisions before they are proposed.
    pub(crate) fn replay_records(
        &mut self,
        index: MetadataIndex,
        records: &[MetadataRecord],
    ) -> Result<(), ReplayError> {
        records.iter().try_for_each(|record| self.replay_record(index, record))
    }

    fn replay_record(
        &mut self,
        index: MetadataIndex,
        record: &MetadataRecord,
    ) -> Result<(), ReplayError> {
        match record {
            MetadataRecord::RegisterBroker(record) => self.replay_registration(index, record),
            MetadataRecord::UnregisterBroker { node_id } => {
                self.sequences.remove(node_id);
                self.offline.remove(node_id);
                match self.brokers.remove(node_id) {
                    Some(_) => Ok(()),
                    None => Err(ReplayError::UnknownBroker(*node_id)),
                }
            }
            MetadataRecord::BrokerChange(record) => self.replay_broker_change(index, record),
            MetadataRecord::Topic(record) => self.replay_topic(record),
            MetadataRecord::RemoveTopic { topic_id } => {
                let Some(topic) = self.topics.remove(topic_id) else {
                    return Err(ReplayError::UnknownTopic(*topic_id));
                };
                self.topic_ids.remove(&topic.name);
                self.configs.remove(&ConfigResource::Topic(topic.name.clone()));
                Ok(())
            }
            MetadataRecord::Partition(record) => self.replay_partition(record),
            MetadataRecord::PartitionChange(record) => self.replay_partition_change(record),
            MetadataRecord::Config { resource, key, value } => {
                self.replay_config(resource, key, value.as_deref())
            }
            MetadataRecord::ProducerIds { next } => {
                if *next <= self.next_producer_id {
                    return contradiction(format!(
                        "producer ids go back from {} to {next}",
                        self.next_producer_id
                    ));
                }
                self.next_producer_id = *next;
                Ok(())
            }
            MetadataRecord::FeatureLevel { name, level } => {
                self.features.insert(name.clone(), *level);
                Ok(())
            }
            MetadataRecord::BrokerSequence { node_id, sequence, reply } => {
                if !self.brokers.contains_key(node_id) {
                    return Err(ReplayError::UnknownBroker(*node_id));
                }
                self.sequences.insert(*node_id, (*sequence, reply.clone()));
                Ok(())
            }
            MetadataRecord::Digest { index, digest } => {
                if (*index, *digest) != (self.batch_index, self.digest) {
                    return Err(ReplayError::Diverged {
                        index: self.batch_index,
                        ours: self.digest,
                        theirs: *digest,
                    });
                }
                Ok(())
            }
            MetadataRecord::Offline { node_id, broker_epoch, offline } => {
                if self.broker(*node_id).is_none_or(|known| known.broker_epoch != *broker_epoch) {
                    return Err(ReplayError::UnknownBroker(*node_id));
                }
                if **offline == OfflineImage::default() {
                    self.offline.remove(node_id);
                } else {
                    self.offline.insert(*node_id, offline.clone());
                }
                Ok(())
            }
        }
    }

    /// The same incarnation amends its registration; another one gets a new epoch and starts fenced.
    fn replay_registration(
        &mut self,
        index: MetadataIndex,
        record: &RegisterBrokerRecord,
    ) -> Result<(), ReplayError> {
        if let Some(broker) = self.brokers.get_mut(&record.node_id)
            && broker.registration.incarnation == record.incarnation
        {
            Arc::make_mut(broker).registration = record.clone();
            return Ok(());
        }
        let Ok(epoch) = i64::try_from(index) else {
            return contradiction(format!("index {index} is no broker epoch"));
        };
        let broker = BrokerImage {
            registration: record.clone(),
            broker_epoch: BrokerEpoch(epoch),
            fenced: true,
            in_controlled_shutdown: false,
            shutdown_index: 0,
        };
        self.brokers.insert(record.node_id, Arc::new(broker));
        // Requests are numbered per incarnation, and it says anew what it cannot serve before it is unfenced.
        self.sequences.remove(&record.node_id);
        self.offline.remove(&record.node_id);
        Ok(())
    }

    fn replay_broker_change(
        &mut self,
        index: MetadataIndex,
        record: &BrokerChangeRecord,
    ) -> Result<(), ReplayError> {
        let broker = match self.brokers.get_mut(&record.node_id) {
            Some(broker) if broker.broker_epoch == record.broker_epoch => Arc::make_mut(broker),
            _ => return Err(ReplayError::UnknownBroker(record.node_id)),
        };
        if let Some(fenced) = record.fenced {
            broker.fenced = fenced;
        }
        if let Some(in_controlled_shutdown) = record.in_controlled_shutdown {
            broker.in_controlled_shutdown = in_controlled_shutdown;
            broker.shutdown_index = if in_controlled_shutdown { index } else { 0 };
        }
        Ok(())
    }

    fn replay_topic(&mut self, record: &TopicRecord) -> Result<(), ReplayError> {
        let topic = TopicImage {
            topic_id: record.topic_id,
            name: record.name.clone(),
            partitions: Vec::new(),
        };
        let same_name = self.topic_ids.insert(record.name.clone(), record.topic_id);
        let same_id = self.topics.insert(record.topic_id, Arc::new(topic));
        if same_name.is_some() || same_id.is_some() {
            return contradiction(format!("topic {} ({}) exists", record.name, record.topic_id));
        }
        Ok(())
    }

    fn replay_partition(&mut self, record: &PartitionRecord) -> Result<(), ReplayError> {
        let topic = self.topic_mut(record.topic_id)?;
        if usize::try_from(record.partition) != Ok(topic.partitions.len()) {
            return contradiction(format!(
                "partition {}-{} comes after {} others",
                topic.name,
                record.partition,
                topic.partitions.len()
            ));
        }
        if let Err(reason) = record.state.check() {
            return contradiction(format!(
                "partition {}-{}: {reason}",
                topic.name, record.partition
            ));
        }
        topic.partitions.push(record.state.clone());
        Ok(())
    }

    fn replay_partition_change(
        &mut self,
        record: &PartitionChangeRecord,
    ) -> Result<(), ReplayError> {
        let topic = self.topic_mut(record.topic_id)?;
        let slot = usize::try_from(record.partition)
            .ok()
            .and_then(|partition| topic.partitions.get_mut(partition));
        let Some(slot) = slot else {
            return contradiction(format!("no partition {}-{}", topic.name, record.partition));
        };
        if let Err(reason) = record.state.check_follows(slot) {
            return contradiction(format!(
                "partition {}-{}: {reason}",
                topic.name, record.partition
            ));
        }
        *slot = record.state.clone();
        Ok(())
    }

    fn replay_config(
        &mut self,
        resource: &ConfigResource,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), ReplayError> {
        if let ConfigResource::Topic(name) = resource
            && !self.topic_ids.contains_key(name)
        {
            return contradiction(format!("config {key} of topic {name}, which does not exist"));
        }
        let mut configs = self.configs.get(resource).cloned().unwrap_or_default();
        match value {
            Some(value) => configs.insert(key.to_owned(), value.to_owned()),
            None => configs.remove(key),
        };
        if configs.is_empty() {
            self.configs.remove(resource);
        } else {
            self.configs.insert(resource.clone(), configs);
        }
        Ok(())
    }

    /// Copies the topic once per batch: afterwards nobody else holds the copy.
    fn topic_mut(&mut self, topic_id: TopicId) -> Result<&mut TopicImage, ReplayError> {
        self.topics.get_mut(&topic_id).map(Arc::make_mut).ok_or(ReplayError::UnknownTopic(topic_id))
    }

    /// Covers the batch, and what it made where that is more than what the record says.
    fn next_digest(&self, index: MetadataIndex, batch: &MetadataBatch) -> u128 {
        let mut hasher = Xxh3::new();
        hasher.update(&self.digest.to_le_bytes());
        hasher.update(&index.to_le_bytes());
        hasher.update(&codec::encode(batch));
        for record in &batch.records {
            let node_id = match record {
                MetadataRecord::RegisterBroker(record) => record.node_id,
                MetadataRecord::BrokerChange(record) => record.node_id,
                _ => continue,
            };
            hasher.update(&codec::encode(&self.brokers.get(&node_id)));
        }
        hasher.digest128()
    }
}

#[cfg(test)]
#[path = "replay_test.rs"]
mod tests;
