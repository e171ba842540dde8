//! A node for the tests of this module: a small image, and a controller that only records what it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::registry::Registry;

use super::{AdminApi, Node};
use crate::controller::{
    ControllerReply, ControllerRequest, CreatableTopic, CreatedTopic, DeletedTopic, Refusal,
};
use crate::metadata::{
    BrokerImage, LeaderRecovery, MetadataImage, PartitionImage, RegisterBrokerRecord, TopicImage,
};
use crate::net::BoxFuture;
use crate::protocol::ErrorCode;
use crate::protocol::native::{ConfigView, QuorumMember, QuorumStatus};
use crate::types::{
    BrokerEpoch, ConfigResource, Endpoints, HostPort, LeaderEpoch, NodeId, PartitionEpoch, Uuid,
};

/// Knows brokers 1 (active) and 2 (fenced), and the topic `orders` with one partition.
pub(super) struct FakeNode {
    image: Mutex<Arc<MetadataImage>>,
    pub(super) readiness: Mutex<Result<(), String>>,
    /// What the controller was asked, in order.
    pub(super) asked: Mutex<Vec<(String, ControllerRequest)>>,
    /// Set: the controller refuses with it.
    pub(super) refusal: Mutex<Option<Refusal>>,
}

impl FakeNode {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            image: Mutex::new(Arc::new(image())),
            readiness: Mutex::new(Ok(())),
            asked: Mutex::default(),
            refusal: Mutex::default(),
        })
    }

    pub(super) fn api(self: &Arc<Self>) -> AdminApi {
        AdminApi { node: self.clone(), registry: Arc::new(Registry::default()) }
    }
}

pub(super) fn image() -> MetadataImage {
    let mut image = MetadataImage { index: 42, ..MetadataImage::default() };
    for (id, fenced) in [(1, false), (2, true)] {
        let endpoint = |port| HostPort { host: format!("node-{id}.test"), port };
        let endpoints =
            Endpoints { client: endpoint(9092), peer: endpoint(9192), admin: endpoint(9292) };
        let registration = RegisterBrokerRecord {
            node_id: NodeId(id),
            incarnation: Uuid([1; 16]),
            raft_node_id: 7,
            directory_ids: Vec::new(),
            endpoints,
            rack: None,
            features: BTreeMap::new(),
        };
        let broker = BrokerImage {
            registration,
            broker_epoch: BrokerEpoch(5),
            fenced,
            in_controlled_shutdown: false,
            shutdown_index: 0,
        };
        image.brokers.insert(NodeId(id), Arc::new(broker));
    }
    let partition = PartitionImage {
        replicas: vec![NodeId(1), NodeId(2)],
        isr: vec![NodeId(1)],
        elr: Vec::new(),
        last_known_elr: Vec::new(),
        leader: NodeId(1),
        leader_epoch: LeaderEpoch(3),
        partition_epoch: PartitionEpoch(4),
        adding: Vec::new(),
        removing: Vec::new(),
        recovery: LeaderRecovery::Recovered,
    };
    let topic_id = Uuid([9; 16]);
    let topic =
        TopicImage { topic_id, name: "orders".into(), partitions: vec![Arc::new(partition)] };
    image.topic_ids.insert(topic.name.clone(), topic_id);
    image.topics.insert(topic_id, Arc::new(topic));
    image
}

impl Node for FakeNode {
    fn image(&self) -> Arc<MetadataImage> {
        self.image.lock().clone()
    }

    fn quorum_status(&self) -> QuorumStatus {
        let peer = HostPort { host: "node-1.test".to_owned(), port: 9192 };
        QuorumStatus {
            cluster_id: Uuid([3; 16]),
            node_id: NodeId(1),
            leader_id: Some(NodeId(2)),
            term: 6,
            last_log_index: 43,
            applied_index: 42,
            voters: vec![QuorumMember {
                node_id: NodeId(1),
                raft_node_id: u64::MAX,
                peer,
                lag: None,
            }],
            learners: Vec::new(),
        }
    }

    fn readiness(&self) -> Result<(), String> {
        self.readiness.lock().clone()
    }

    fn describe_configs(&self, _: &ConfigResource) -> Result<Vec<ConfigView>, Refusal> {
        Ok(vec![ConfigView {
            name: "segment.bytes".to_owned(),
            value: Some("1073741824".to_owned()),
            source: "default".to_owned(),
            read_only: false,
            documentation: String::new(),
        }])
    }

    fn admin<'a>(
        &'a self,
        principal: &'a str,
        request: ControllerRequest,
        _: Duration,
    ) -> BoxFuture<'a, Result<ControllerReply, Refusal>> {
        self.asked.lock().push((principal.to_owned(), request.clone()));
        let refusal = self.refusal.lock().clone();
        let reply = match request {
            ControllerRequest::CreateTopics { topics, .. } => {
                let created = |topic: CreatableTopic| CreatedTopic {
                    name: topic.name,
                    topic_id: topic.topic_id,
                    partition_count: 3,
                    replication_factor: 1,
                };
                let result = |topic| refusal.clone().map_or_else(|| Ok(created(topic)), Err);
                let results = topics.into_iter().map(result).collect();
                Ok(ControllerReply::CreateTopics { results, index: 43 })
            }
            ControllerRequest::DeleteTopics { .. } => {
                let deleted = DeletedTopic { name: "orders".into(), topic_id: Uuid([9; 16]) };
                let results = vec![refusal.map_or(Ok(deleted), Err)];
                Ok(ControllerReply::DeleteTopics { results, index: 43 })
            }
            ControllerRequest::AlterConfigs { .. } => {
                let results = vec![refusal.map_or(Ok(()), Err)];
                Ok(ControllerReply::AlterConfigs { results, index: 43 })
            }
            ControllerRequest::Drain { .. } => {
                refusal.map_or(Ok(ControllerReply::Drain { index: 43 }), Err)
            }
            other => Err(Refusal::new(ErrorCode::InvalidRequest, format!("{other:?}"))),
        };
        Box::pin(async move { reply })
    }
}
