//! The metadata image as Kafka clients see it.

use std::sync::Arc;

use crate::metadata::{BrokerImage, MetadataImage, PartitionImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{LeaderIdAndEpoch, NodeEndpoint, Text};
use crate::protocol::native::PartitionError;
use crate::types::{NodeId, TopicIdPartition, Uuid};

/// Topics that only brokers write.
const INTERNAL_TOPICS: &[&str] = &["__consumer_offsets", "__transaction_state"];

/// What anyone may do with a topic as long as nothing is forbidden: read, write, create, delete, alter, describe,
/// describe and alter configs. One bit per operation of Kafka's.
pub(super) const TOPIC_OPERATIONS: i32 = 0b1101_1111_1000;

/// And with the cluster: create, alter, describe, act as a broker, describe and alter configs, write idempotently.
pub(super) const CLUSTER_OPERATIONS: i32 = 0b1_1111_1010_0000;

pub(super) fn is_internal(topic: &str) -> bool {
    INTERNAL_TOPICS.contains(&topic)
}

/// Whether clients can reach this broker.
pub(super) fn is_live(image: &MetadataImage, id: NodeId) -> bool {
    image.broker(id).is_some_and(|broker| !broker.fenced)
}

/// Brokers of some kind, by id.
pub(super) fn endpoints(
    image: &MetadataImage,
    is_listed: impl Fn(&BrokerImage) -> bool,
) -> Vec<NodeEndpoint> {
    image.brokers.values().filter(|broker| is_listed(broker)).map(|b| endpoint(b)).collect()
}

fn live_endpoint(image: &MetadataImage, id: NodeId) -> Option<NodeEndpoint> {
    image.broker(id).filter(|broker| !broker.fenced).map(|broker| endpoint(broker))
}

fn endpoint(broker: &BrokerImage) -> NodeEndpoint {
    let client = &broker.registration.endpoints.client;
    NodeEndpoint {
        node_id: broker.registration.node_id.0,
        host: client.host.clone().into(),
        port: client.port.into(),
        rack: broker.registration.rack.clone().map(Text::from),
    }
}

/// A live broker for admin requests: the active controller itself where it can be, else the lowest id. Any broker
/// would do, because all of them forward.
pub(super) fn controller_id(image: &MetadataImage, leader: Option<NodeId>) -> i32 {
    let live = |id: &NodeId| is_live(image, *id);
    let id = leader.filter(live).or_else(|| image.brokers.keys().copied().find(live));
    id.unwrap_or(NodeId::NONE).0
}

/// The leader that clients should go to, with the error of a partition that has none.
pub(super) fn live_leader(
    image: &MetadataImage,
    partition: &PartitionImage,
) -> (ErrorCode, NodeId) {
    if is_live(image, partition.leader) {
        (ErrorCode::None, partition.leader)
    } else {
        (ErrorCode::LeaderNotAvailable, NodeId::NONE)
    }
}

/// Node ids as the wire has them.
pub(super) fn ids(nodes: &[NodeId]) -> Vec<i32> {
    nodes.iter().map(|id| id.0).collect()
}

/// Replicas whose broker is away, or cannot serve them.
pub(super) fn offline(
    image: &MetadataImage,
    id: TopicIdPartition,
    partition: &PartitionImage,
) -> Vec<i32> {
    let is_away = |node: &&NodeId| !is_live(image, **node) || !image.is_online(**node, id);
    let away = partition.replicas.iter().filter(is_away);
    away.map(|id| id.0).collect()
}

/// The topic that a request names, by id where the version has ids, else by name.
pub(super) fn topic<'a>(
    image: &'a MetadataImage,
    name: &str,
    id: Uuid,
    by_id: bool,
) -> Result<&'a Arc<TopicImage>, ErrorCode> {
    if by_id {
        image.topic_by_id(id).ok_or(ErrorCode::UnknownTopicId)
    } else {
        image.topic(name).ok_or(ErrorCode::UnknownTopicOrPartition)
    }
}

/// A topic that vanished since it was looked up, in the words of a request that named it.
pub(super) fn vanished(code: ErrorCode, by_id: bool) -> ErrorCode {
    match code {
        ErrorCode::UnknownTopicId if !by_id => ErrorCode::UnknownTopicOrPartition,
        code => code,
    }
}

/// Tells clients that asked the wrong broker which one to ask (KIP-951), so that they need not ask for metadata.
#[derive(Debug)]
pub(super) struct LeaderHints<'a> {
    image: &'a MetadataImage,
    pub(super) endpoints: Vec<NodeEndpoint>,
}

impl<'a> LeaderHints<'a> {
    pub(super) fn new(image: &'a MetadataImage) -> Self {
        Self { image, endpoints: Vec::new() }
    }

    /// The leader to put beside this error, if it is one that a move causes. Remembers where that leader is.
    pub(super) fn hint(
        &mut self,
        partition: TopicIdPartition,
        error: &PartitionError,
    ) -> LeaderIdAndEpoch {
        let moved = [ErrorCode::NotLeaderOrFollower, ErrorCode::FencedLeaderEpoch];
        if !moved.contains(&error.code) {
            return LeaderIdAndEpoch::default();
        }
        let known = self.image.partition(partition).map(|p| (p.leader, p.leader_epoch));
        // The partition may have heard of its next leader before the published image did, or the other way round.
        let newest = error.leader.into_iter().chain(known).max_by_key(|(_, epoch)| *epoch);
        let Some((leader, epoch)) = newest else { return LeaderIdAndEpoch::default() };
        let Some(endpoint) = live_endpoint(self.image, leader) else {
            return LeaderIdAndEpoch::default();
        };
        if !self.endpoints.iter().any(|known| known.node_id == leader.0) {
            self.endpoints.push(endpoint);
        }
        LeaderIdAndEpoch { leader_id: leader.0, leader_epoch: epoch.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::test_support::image_with_topic;
    use crate::types::LeaderEpoch;

    fn moved(leader: Option<(i32, i32)>) -> PartitionError {
        PartitionError {
            code: ErrorCode::NotLeaderOrFollower,
            message: String::new(),
            leader: leader.map(|(id, epoch)| (NodeId(id), LeaderEpoch(epoch))),
            record_errors: Vec::new(),
        }
    }

    #[test]
    fn hints_name_the_newest_known_leader_and_each_node_once() {
        let image = image_with_topic("t", 2);
        let topic = image.topic("t").expect("created");
        let id = |partition| TopicIdPartition { topic_id: topic.topic_id, partition };
        let in_image = topic.partitions[0].leader.0;
        let other = topic.partitions[0].replicas.iter().find(|r| r.0 != in_image).expect("two").0;
        let mut hints = LeaderHints::new(&image);

        let from_image = hints.hint(id(0), &moved(None));
        assert_eq!(from_image.leader_id, in_image);
        let newer = hints.hint(id(0), &moved(Some((other, 1000))));
        assert_eq!((newer.leader_id, newer.leader_epoch), (other, 1000));
        let older = hints.hint(id(0), &moved(Some((other, -5))));
        assert_eq!(older, from_image);
        let away = hints.hint(id(0), &moved(Some((99, 1000))));
        assert_eq!(away, LeaderIdAndEpoch::default());
        let full = PartitionError { code: ErrorCode::KafkaStorageError, ..moved(None) };
        assert_eq!(hints.hint(id(1), &full), LeaderIdAndEpoch::default());

        let mut named: Vec<_> = hints.endpoints.iter().map(|node| node.node_id).collect();
        named.sort_unstable();
        let mut expected = vec![in_image, other];
        expected.sort_unstable();
        assert_eq!(named, expected);
    }

    #[test]
    fn the_controller_is_always_a_live_broker() {
        let image = image_with_topic("t", 1);
        assert_eq!(controller_id(&image, Some(NodeId(2))), 2);
        assert_eq!(controller_id(&image, Some(NodeId(77))), 1);
        assert_eq!(controller_id(&image, None), 1);
        assert_eq!(controller_id(&MetadataImage::default(), Some(NodeId(1))), -1);
    }
}
