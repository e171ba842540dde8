//! What changed between two images, however many batches lie between them.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use super::{BrokerImage, MetadataImage, PartitionImage, TopicImage};
use crate::types::{ConfigResource, NodeId, TopicId, TopicIdPartition};

/// The difference between two images. Subscribers apply it in the order of replication.md 1.8.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataDelta {
    pub brokers: Vec<BrokerDelta>,
    pub topics_added: Vec<TopicId>,
    pub topics_removed: Vec<TopicId>,
    pub partitions: Vec<PartitionDelta>,
    /// Topics (of the new image) whose effective config may differ, also by a default of brokers. Added ones are not here.
    pub topics_reconfigured: Vec<TopicId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerDelta {
    pub node_id: NodeId,
    /// `None`: registered for the first time.
    pub old: Option<Arc<BrokerImage>>,
    /// `None`: unregistered.
    pub new: Option<Arc<BrokerImage>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionDelta {
    pub partition: TopicIdPartition,
    /// `None`: created.
    pub old: Option<Arc<PartitionImage>>,
    /// `None`: deleted.
    pub new: Option<Arc<PartitionImage>>,
}

impl MetadataDelta {
    /// Costs time for what changed; shared parts of the two maps are skipped by pointer.
    pub fn between(old: &MetadataImage, new: &MetadataImage) -> Self {
        let mut delta = Self::default();
        for change in old.brokers.diff(&new.brokers) {
            let (node_id, old, new) = sides(change);
            delta.brokers.push(BrokerDelta { node_id, old, new });
        }
        for change in old.topics.diff(&new.topics) {
            let (topic_id, old, new) = sides(change);
            match (&old, &new) {
                (None, _) => delta.topics_added.push(topic_id),
                (_, None) => delta.topics_removed.push(topic_id),
                _ => {}
            }
            delta.push_partitions(topic_id, old.as_deref(), new.as_deref());
        }
        delta.push_reconfigured(old, new);
        delta
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn push_partitions(
        &mut self,
        topic_id: TopicId,
        old: Option<&TopicImage>,
        new: Option<&TopicImage>,
    ) {
        let old = old.map_or(&[][..], |topic| &topic.partitions);
        let new = new.map_or(&[][..], |topic| &topic.partitions);
        for (number, partition) in (0_i32..).zip(0..old.len().max(new.len())) {
            let (old, new) = (old.get(partition), new.get(partition));
            // Equality of `Arc`s of `Eq` types compares pointers first.
            if old != new {
                self.partitions.push(PartitionDelta {
                    partition: TopicIdPartition { topic_id, partition: number },
                    old: old.cloned(),
                    new: new.cloned(),
                });
            }
        }
    }

    fn push_reconfigured(&mut self, old: &MetadataImage, new: &MetadataImage) {
        let survives = |id: &TopicId| old.topics.contains_key(id);
        for change in old.configs.diff(&new.configs) {
            let resource = match change {
                DiffItem::Add(resource, _) | DiffItem::Remove(resource, _) => resource,
                DiffItem::Update { new: (resource, _), .. } => resource,
            };
            match resource {
                ConfigResource::Topic(name) => {
                    let id = new.topic_ids.get(name).copied().filter(survives);
                    self.topics_reconfigured.extend(id);
                }
                // Which of them are defaults here, only this broker knows.
                ConfigResource::Cluster | ConfigResource::Broker(_) => {
                    self.topics_reconfigured.extend(new.topics.keys().copied().filter(survives));
                }
            }
        }
        self.topics_reconfigured.sort_unstable();
        self.topics_reconfigured.dedup();
    }
}

fn sides<K: Copy, V: Clone>(change: DiffItem<'_, '_, K, V>) -> (K, Option<V>, Option<V>) {
    match change {
        DiffItem::Add(key, new) => (*key, None, Some(new.clone())),
        DiffItem::Remove(key, old) => (*key, Some(old.clone()), None),
        DiffItem::Update { old: (key, old), new: (_, new) } => {
            (*key, Some(old.clone()), Some(new.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::test_support::*;
    use crate::metadata::{MetadataRecord, TopicRecord};

    fn changed(image: &MetadataImage, records: &[MetadataRecord]) -> MetadataImage {
        let mut image = image.clone();
        apply(&mut image, records.to_vec());
        image
    }

    #[test]
    fn equal_images_differ_in_nothing() {
        let image = image_with_topic("a", 3);
        assert!(MetadataDelta::between(&image, &image.clone()).is_empty());
        let reread = MetadataImage::from_snapshot(&image.to_snapshot()).unwrap();
        assert!(MetadataDelta::between(&image, &reread).is_empty());
    }

    #[test]
    fn one_changed_partition_is_all_that_differs() {
        let old = image_with_topic("a", 3);
        let topic = old.topic("a").unwrap();
        let new = changed(&old, &[led_by(topic, 1, 2)]);
        let delta = MetadataDelta::between(&old, &new);
        assert_eq!(delta.partitions.len(), 1);
        assert_eq!(delta.partitions[0].partition.partition, 1);
        assert_eq!(delta.partitions[0].old.as_ref(), topic.partition(1));
        assert_eq!(delta.partitions[0].new.as_ref(), new.topic("a").unwrap().partition(1));
        assert_eq!((delta.brokers.len(), delta.topics_added.len()), (0, 0));
    }

    #[test]
    fn a_topic_of_the_same_name_is_another_topic() {
        let old = image_with_topic("a", 1);
        let id = old.topic("a").unwrap().topic_id;
        let again = TopicRecord { topic_id: uuid(99), name: "a".into() };
        let new = changed(
            &old,
            &[MetadataRecord::RemoveTopic { topic_id: id }, MetadataRecord::Topic(again)],
        );
        let delta = MetadataDelta::between(&old, &new);
        assert_eq!((delta.topics_added, delta.topics_removed), (vec![uuid(99)], vec![id]));
        assert_eq!(delta.partitions.len(), 1);
        assert_eq!(delta.partitions[0].new, None);
    }

    #[test]
    fn a_cluster_default_reconfigures_every_topic_that_was_there() {
        let old = image_with_topic("a", 1);
        let id = old.topic("a").unwrap().topic_id;
        let new = changed(
            &old,
            &[
                MetadataRecord::Config {
                    resource: ConfigResource::Cluster,
                    key: "log.segment.bytes".into(),
                    value: Some("2097152".into()),
                },
                MetadataRecord::Topic(TopicRecord { topic_id: uuid(50), name: "b".into() }),
            ],
        );
        let delta = MetadataDelta::between(&old, &new);
        assert_eq!(delta.topics_reconfigured, vec![id]);
        assert_eq!(delta.topics_added, vec![uuid(50)]);
    }
}
