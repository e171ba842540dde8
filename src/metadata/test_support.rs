//! Images for tests.

use std::collections::BTreeMap;

use super::{
    BATCH_VERSION, BrokerChangeRecord, LeaderRecovery, MetadataBatch, MetadataImage,
    MetadataRecord, PartitionChangeRecord, PartitionImage, PartitionRecord, RegisterBrokerRecord,
    Replayed, TopicImage, TopicRecord,
};
use crate::types::{
    BrokerEpoch, Endpoints, HostPort, LeaderEpoch, MetadataIndex, NodeId, PartitionEpoch, Uuid,
};

pub(crate) fn uuid(n: u8) -> Uuid {
    Uuid([n; 16])
}

pub(crate) fn nodes(ids: &[i32]) -> Vec<NodeId> {
    ids.iter().map(|id| NodeId(*id)).collect()
}

/// The registration of `node_id`, with an incarnation of its own per `life`.
pub(crate) fn registration(node_id: i32, life: u8) -> RegisterBrokerRecord {
    let address = |port| HostPort { host: format!("node-{node_id}"), port };
    let directory = uuid(u8::try_from(100 + node_id).unwrap());
    RegisterBrokerRecord {
        node_id: NodeId(node_id),
        incarnation: Uuid([
            u8::try_from(node_id).unwrap(),
            life,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
        ]),
        raft_node_id: directory.raft_node_id(),
        directory_ids: vec![directory],
        endpoints: Endpoints { client: address(1), peer: address(2), admin: address(3) },
        rack: None,
        features: BTreeMap::new(),
    }
}

pub(crate) fn batch(image: &MetadataImage, records: Vec<MetadataRecord>) -> MetadataBatch {
    MetadataBatch {
        version: BATCH_VERSION,
        basis: image.batch_index,
        controller_epoch: 1,
        time_ms: 1,
        causes: Vec::new(),
        records,
    }
}

/// Replays records as the next entry.
pub(crate) fn apply(image: &mut MetadataImage, records: Vec<MetadataRecord>) -> MetadataIndex {
    let (index, batch) = (image.index + 1, batch(image, records));
    assert_eq!(image.replay(index, &batch), Ok(Replayed::Applied));
    index
}

/// Brokers `1..=count`, all active.
pub(crate) fn image_with_brokers(count: i32) -> MetadataImage {
    let mut image = MetadataImage::default();
    for id in 1..=count {
        let index = apply(&mut image, vec![MetadataRecord::RegisterBroker(registration(id, 0))]);
        apply(&mut image, vec![unfenced(id, BrokerEpoch(i64::try_from(index).unwrap()))]);
    }
    image
}

pub(crate) fn unfenced(node_id: i32, broker_epoch: BrokerEpoch) -> MetadataRecord {
    MetadataRecord::BrokerChange(BrokerChangeRecord {
        node_id: NodeId(node_id),
        broker_epoch,
        fenced: Some(false),
        in_controlled_shutdown: None,
    })
}

/// A partition with the first of its replicas as leader and all of them in sync.
pub(crate) fn partition(replicas: &[i32]) -> PartitionImage {
    PartitionImage {
        replicas: nodes(replicas),
        isr: nodes(replicas),
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        leader: NodeId(replicas[0]),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: PartitionEpoch(0),
        adding: Vec::new(),
        removing: Vec::new(),
        recovery: LeaderRecovery::Recovered,
    }
}

/// Records of a topic whose id is `uuid(id)`.
pub(crate) fn topic_records(
    name: &str,
    id: u8,
    partitions: Vec<PartitionImage>,
) -> Vec<MetadataRecord> {
    let topic = TopicRecord { topic_id: uuid(id), name: name.into() };
    let partitions = (0..).zip(partitions).map(|(partition, state)| {
        let state = state.into();
        MetadataRecord::Partition(PartitionRecord { topic_id: uuid(id), partition, state })
    });
    std::iter::once(MetadataRecord::Topic(topic)).chain(partitions).collect()
}

/// Three active brokers and one topic, id `uuid(1)`, of three replicas each led by broker 1.
pub(crate) fn image_with_topic(name: &str, partition_count: usize) -> MetadataImage {
    let mut image = image_with_brokers(3);
    apply(&mut image, topic_records(name, 1, vec![partition(&[1, 2, 3]); partition_count]));
    image
}

/// A change that gives the partition another leader.
pub(crate) fn led_by(topic: &TopicImage, number: i32, leader: i32) -> MetadataRecord {
    let old = topic.partition(number).unwrap();
    let mut state = PartitionImage::clone(old);
    state.leader = NodeId(leader);
    state.leader_epoch = old.leader_epoch.next();
    state.partition_epoch = old.partition_epoch.next();
    MetadataRecord::PartitionChange(PartitionChangeRecord {
        topic_id: topic.topic_id,
        partition: number,
        state: state.into(),
    })
}
