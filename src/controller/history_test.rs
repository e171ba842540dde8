//! Random histories of requests keep the invariants of replication.md 7 that concern metadata alone: 1 (replay agrees),
//! 2, 4, 5, 6, 7 and 9.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::test_support::*;
use super::{
    AlterPartition, AlterPartitionRequest, ConfigChange, ConfigOperation, ControllerReply,
    ControllerRequest, DecisionRequest, ReportOfflineRequest, TopicSelector,
};
use crate::metadata::{MetadataDelta, MetadataImage, OfflineImage, PartitionImage, Replayed};
use crate::types::{BrokerEpoch, ConfigResource, NodeId, TopicId, TopicIdPartition};

const BROKERS: i32 = 4;

/// One request; numbers are reduced to what exists.
#[derive(Debug, Clone)]
enum Step {
    Register {
        node: i32,
        clean: bool,
    },
    Fence {
        node: i32,
    },
    /// With the broker epoch of an earlier life.
    FenceStale {
        node: i32,
    },
    Unfence {
        node: i32,
    },
    ControlledShutdown {
        node: i32,
    },
    Drain {
        node: i32,
    },
    Unregister {
        node: i32,
    },
    Create {
        replicas: i16,
        partitions: i32,
    },
    Delete {
        topic: usize,
    },
    MinIsr {
        topic: Option<usize>,
        count: Option<u8>,
    },
    /// The leader of a partition proposes those of its replicas whose bit is set.
    Alter {
        topic: usize,
        partition: usize,
        members: u8,
        resend: bool,
    },
    ProducerIds {
        node: i32,
    },
    /// A broker says that it cannot serve the replicas whose bit is set, and whether they may have lost something.
    Offline {
        node: i32,
        replicas: u8,
        lossy: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = || 1..=BROKERS;
    let topic = || 0..4_usize;
    let step = prop_oneof![
        3 => (node(), any::<bool>()).prop_map(|(node, clean)| Step::Register { node, clean }),
        4 => node().prop_map(|node| Step::Fence { node }),
        1 => node().prop_map(|node| Step::FenceStale { node }),
        6 => node().prop_map(|node| Step::Unfence { node }),
        1 => node().prop_map(|node| Step::ControlledShutdown { node }),
        1 => node().prop_map(|node| Step::Drain { node }),
        1 => node().prop_map(|node| Step::Unregister { node }),
        2 => (1..=4_i16, 1..=3_i32)
            .prop_map(|(replicas, partitions)| Step::Create { replicas, partitions }),
        1 => topic().prop_map(|topic| Step::Delete { topic }),
        1 => (proptest::option::of(topic()), proptest::option::of(1..=3_u8))
            .prop_map(|(topic, count)| Step::MinIsr { topic, count }),
        8 => (topic(), 0..3_usize, any::<u8>(), any::<bool>()).prop_map(
            |(topic, partition, members, resend)| Step::Alter { topic, partition, members, resend }
        ),
        1 => node().prop_map(|node| Step::ProducerIds { node }),
        4 => (node(), any::<u8>(), any::<bool>())
            .prop_map(|(node, replicas, lossy)| Step::Offline { node, replicas, lossy }),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The world, and what its requests need to remember.
struct History {
    world: World,
    lives: u8,
    topics: u8,
    sequence: u64,
    last_alter: Option<(AlterPartitionRequest, ControllerReply)>,
    producer_ids: i64,
    broker_epochs: BTreeSet<BrokerEpoch>,
}

impl History {
    fn new() -> Self {
        Self {
            world: World::new(BROKERS),
            lives: 0,
            topics: 0,
            sequence: 0,
            last_alter: None,
            producer_ids: 0,
            broker_epochs: BTreeSet::new(),
        }
    }

    /// Refusals are legal answers: what matters is what the image becomes.
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Register { node, clean } => self.register(node, clean),
            Step::Fence { node } => self.fence(node, 0),
            Step::FenceStale { node } => self.fence(node, 1),
            Step::Unfence { node } => {
                if self.world.image.broker(NodeId(node)).is_some() {
                    let _ = self.world.unfence(node);
                }
            }
            Step::ControlledShutdown { node } => {
                if let Some(broker) = self.world.image.broker(NodeId(node)) {
                    let broker_epoch = broker.broker_epoch;
                    let node_id = NodeId(node);
                    let begin = DecisionRequest::BeginControlledShutdown { node_id, broker_epoch };
                    self.world.run(begin).unwrap();
                }
            }
            Step::Drain { node } => self.call(ControllerRequest::Drain { node_id: NodeId(node) }),
            Step::Unregister { node } => {
                self.call(ControllerRequest::UnregisterBroker { node_id: NodeId(node) });
            }
            Step::Create { replicas, partitions } => {
                self.topics += 1;
                let mut topic = creatable(&format!("t{}", self.topics), self.topics);
                topic.replication_factor = replicas;
                topic.partition_count = partitions;
                let topics = vec![topic];
                self.call(ControllerRequest::CreateTopics { topics, validate_only: false });
            }
            Step::Delete { topic } => {
                if let Some(id) = self.topic(topic) {
                    self.call(ControllerRequest::DeleteTopics {
                        topics: vec![TopicSelector::Id(id)],
                    });
                }
            }
            Step::MinIsr { topic, count } => self.set_min_isr(topic, count),
            Step::Alter { topic, partition, members, resend } => {
                self.alter(topic, partition, members, resend);
            }
            Step::ProducerIds { node } => self.allocate(node),
            Step::Offline { node, replicas, lossy } => self.report_offline(node, replicas, lossy),
        }
    }

    fn call(&mut self, request: ControllerRequest) {
        let _ = self.world.call(request);
    }

    fn topic(&self, choice: usize) -> Option<TopicId> {
        let topics = &self.world.image.topics;
        topics.keys().nth(choice % topics.len().max(1)).copied()
    }

    fn register(&mut self, node: i32, clean: bool) {
        self.lives += 1;
        let known = self.world.image.broker(NodeId(node)).map(|broker| broker.broker_epoch);
        let previous = known.filter(|_| clean).unwrap_or(BrokerEpoch::NONE);
        let epoch = self.world.register(node, self.lives, previous).unwrap();
        assert!(self.broker_epochs.insert(epoch), "broker epoch {epoch} was given twice");
        assert_eq!(u64::try_from(epoch.0), Ok(self.world.image.index));
    }

    fn fence(&mut self, node: i32, lives_ago: i64) {
        let Some(broker) = self.world.image.broker(NodeId(node)) else { return };
        let broker_epoch = BrokerEpoch(broker.broker_epoch.0 - lives_ago);
        let before = self.world.image.clone();
        let cause = "test".to_owned();
        let fence = DecisionRequest::Fence { node_id: NodeId(node), broker_epoch, cause };
        self.world.run(fence).unwrap();
        if lives_ago > 0 {
            assert_eq!(self.world.image, before, "an older life has no effect");
        }
    }

    fn set_min_isr(&mut self, topic: Option<usize>, count: Option<u8>) {
        let resource = match topic {
            None => ConfigResource::Cluster,
            Some(topic) => {
                let Some(id) = self.topic(topic) else { return };
                ConfigResource::Topic(self.world.image.topic_by_id(id).unwrap().name.clone())
            }
        };
        let operation = match count {
            Some(count) => ConfigOperation::Set(count.to_string()),
            None => ConfigOperation::Delete,
        };
        let operations = vec![("min.insync.replicas".to_owned(), operation)];
        let changes = vec![ConfigChange { resource, operations }];
        self.call(ControllerRequest::AlterConfigs { changes, validate_only: false });
    }

    fn alter(&mut self, topic: usize, partition: usize, members: u8, resend: bool) {
        if resend && let Some((request, reply)) = &self.last_alter {
            let alive = self
                .world
                .image
                .broker(request.node_id)
                .is_some_and(|broker| broker.broker_epoch == request.broker_epoch);
            let is_last = self.world.image.sequences.get(&request.node_id).map(|(last, _)| *last)
                == Some(request.sequence);
            if alive && is_last {
                let before = self.world.image.clone();
                let again = self.world.call(ControllerRequest::AlterPartition(request.clone()));
                assert_eq!(again.as_ref(), Ok(reply), "a resend gets the first answer");
                assert_eq!(self.world.image, before, "a resend has no effect");
            }
            return;
        }
        let Some(topic_id) = self.topic(topic) else { return };
        let partitions = &self.world.image.topic_by_id(topic_id).unwrap().partitions;
        let partition = partition % partitions.len();
        let current = &partitions[partition];
        let Some(leader) = current.leader.known() else { return };
        let chosen = (0..)
            .zip(&current.replicas)
            .filter(|(bit, replica)| **replica == leader || members & (1_u8 << bit) != 0);
        self.sequence += 1;
        let request = AlterPartitionRequest {
            node_id: leader,
            broker_epoch: self.world.image.broker(leader).unwrap().broker_epoch,
            sequence: self.sequence,
            partitions: vec![AlterPartition {
                partition: TopicIdPartition {
                    topic_id,
                    partition: i32::try_from(partition).unwrap(),
                },
                leader_epoch: current.leader_epoch,
                partition_epoch: current.partition_epoch,
                isr: chosen.map(|(_, replica)| (*replica, BrokerEpoch::NONE)).collect(),
                recovered: true,
            }],
        };
        let reply = self.world.call(ControllerRequest::AlterPartition(request.clone())).unwrap();
        self.last_alter = Some((request, reply));
    }

    fn report_offline(&mut self, node: i32, replicas: u8, lossy: bool) {
        let Some(broker) = self.world.image.broker(NodeId(node)) else { return };
        let broker_epoch = broker.broker_epoch;
        let chosen = (0..8).zip(partitions(&self.world.image));
        let replicas: BTreeSet<_> = chosen
            .filter(|(bit, _)| replicas & (1_u8 << bit) != 0)
            .map(|(_, (id, _))| id)
            .collect();
        let request = ReportOfflineRequest {
            node_id: NodeId(node),
            broker_epoch,
            lossy: if lossy { replicas.clone() } else { BTreeSet::new() },
            offline: Arc::new(OfflineImage { directories: Default::default(), replicas }),
        };
        self.world.call(ControllerRequest::ReportOffline(request)).unwrap();
    }

    fn allocate(&mut self, node: i32) {
        let Some(broker) = self.world.image.broker(NodeId(node)) else { return };
        let broker_epoch = broker.broker_epoch;
        let node_id = NodeId(node);
        let reply =
            self.world.call(ControllerRequest::AllocateProducerIds { node_id, broker_epoch });
        let Ok(ControllerReply::AllocateProducerIds { first, count }) = reply else {
            panic!("no block: {reply:?}")
        };
        assert!(first >= self.producer_ids, "blocks overlap");
        self.producer_ids = first + count;
    }
}

fn partitions(image: &MetadataImage) -> impl Iterator<Item = (TopicIdPartition, &PartitionImage)> {
    image.topics.iter().flat_map(|(topic_id, topic)| {
        (0..).zip(&topic.partitions).map(|(partition, state)| {
            (TopicIdPartition { topic_id: *topic_id, partition }, &**state)
        })
    })
}

/// Invariants 4, 5 and 6, of a state.
fn check_state(image: &MetadataImage) {
    for (id, partition) in partitions(image) {
        assert_eq!(partition.check(), Ok(()), "{id:?} {partition:?}");
        let name = &image.topic_by_id(id.topic_id).unwrap().name;
        let min_isr = image.min_isr(name).of(partition.replicas.len());
        assert!(
            partition.elr.is_empty() || partition.isr.len() < min_isr,
            "{id:?} has eligible leaders beside a full ISR: {partition:?}"
        );
        for member in &partition.isr {
            assert!(image.can_serve(*member, id), "{id:?} has {member} in sync: {partition:?}");
        }
        if let Some(leader) = partition.leader.known() {
            assert!(image.can_serve(leader, id), "{id:?} is led by {leader}");
            assert!(partition.last_known_elr.is_empty());
        } else {
            let complete = partition.isr.iter().chain(&partition.elr);
            let candidates: Vec<_> = complete.filter(|node| image.can_serve(**node, id)).collect();
            assert!(candidates.is_empty(), "{id:?} has no leader, beside {candidates:?}");
        }
    }
}

/// Invariants 2 and 9, of a step.
fn check_step(old: &MetadataImage, new: &MetadataImage) {
    for change in MetadataDelta::between(old, new).partitions {
        if let (Some(old), Some(new)) = (change.old, change.new) {
            assert!(new.partition_epoch > old.partition_epoch);
            assert!(new.leader_epoch >= old.leader_epoch);
            assert!(new.leader == old.leader || new.leader_epoch > old.leader_epoch);
        }
    }
    assert!(new.next_producer_id >= old.next_producer_id);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_histories_keep_the_invariants(steps in steps()) {
        let mut history = History::new();
        let mut images = vec![history.world.image.clone()];
        for step in &steps {
            history.run(step);
            let image = history.world.image.clone();
            check_step(images.last().unwrap(), &image);
            check_state(&image);
            images.push(image);
        }

        // Whoever replays the log has the same image, also from a snapshot in its middle.
        let log = &history.world.log;
        let mut again = MetadataImage::default();
        let mut from_snapshot = MetadataImage::default();
        for (position, batch) in log.iter().enumerate() {
            let index = again.index + 1;
            prop_assert_eq!(again.replay(index, batch), Ok(Replayed::Applied));
            prop_assert_eq!(from_snapshot.replay(index, batch), Ok(Replayed::Applied));
            prop_assert_eq!(again.clone().replay(index + 1, batch), Ok(Replayed::Dropped));
            if position == log.len() / 2 {
                from_snapshot = MetadataImage::from_snapshot(&again.to_snapshot()).unwrap();
            }
        }
        prop_assert_eq!(&again, &history.world.image);
        prop_assert_eq!(&from_snapshot, &history.world.image);
        prop_assert_eq!(again.digest, history.world.image.digest);

        // One delta over everything is the difference of the ends.
        let (first, last) = (&images[0], &history.world.image);
        let delta = MetadataDelta::between(first, last);
        let changed: BTreeSet<_> = delta.partitions.iter().map(|change| change.partition).collect();
        for (id, state) in partitions(last) {
            let was = first.partition(id).map(|partition| &**partition);
            prop_assert_eq!(changed.contains(&id), was != Some(state));
        }
    }
}

/// What one decision makes depends on nothing but its arguments.
#[test]
fn deciding_twice_decides_the_same() {
    let history = || {
        let mut history = History::new();
        for (replicas, partitions) in [(3, 3), (2, 2), (1, 3)] {
            history.run(&Step::Create { replicas, partitions });
        }
        history.run(&Step::Fence { node: 2 });
        history.world.log
    };
    assert_eq!(history(), history());
}
