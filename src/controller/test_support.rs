//! A controller without a quorum, for tests: decides, and replays at once.

use std::sync::Arc;

use super::{
    ClusterDefaults, ControllerCall, ControllerReply, ControllerRequest, CreatableTopic,
    DecisionContext, DecisionRequest, Liveness, LivenessConfig, Refusal, RegisterBrokerRequest,
    Turn,
};
use crate::metadata::test_support::{batch, partition, registration, topic_records, uuid};
use crate::metadata::{
    MetadataBatch, MetadataImage, MetadataRecord, PartitionChangeRecord, PartitionImage, Replayed,
};
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, NodeId, TopicIdPartition};

pub(super) struct World {
    pub(super) image: MetadataImage,
    pub(super) liveness: Liveness,
    pub(super) defaults: ClusterDefaults,
    pub(super) seed: u64,
    /// Everything that was replayed.
    pub(super) log: Vec<MetadataBatch>,
}

pub(super) const CLUSTER: u8 = 200;

impl World {
    /// Brokers `1..=count`, active.
    pub(super) fn new(count: i32) -> Self {
        let defaults = ClusterDefaults {
            partition_count: 1,
            replication_factor: None,
            cluster_id: uuid(CLUSTER),
        };
        let mut world = Self {
            image: MetadataImage::default(),
            liveness: Liveness::new(LivenessConfig::default()),
            defaults,
            seed: 0,
            log: Vec::new(),
        };
        for node_id in 1..=count {
            world.register(node_id, 0, BrokerEpoch::NONE).unwrap();
            world.unfence(node_id).unwrap();
        }
        world
    }

    pub(super) fn run(&mut self, request: DecisionRequest) -> Result<ControllerReply, Refusal> {
        self.seed += 1;
        let context = DecisionContext {
            now_ms: 1000,
            seed: self.seed,
            liveness: &self.liveness,
            defaults: &self.defaults,
        };
        let before = self.image.clone();
        let mut turn = Turn::begin(&before, context);
        let pending = turn.decide(&request);
        let mut settled = self.image.index;
        if let Some(batch) = turn.finish(1) {
            settled += 1;
            assert_eq!(self.image.replay(settled, &batch), Ok(Replayed::Applied));
            self.log.push(batch);
        }
        pending.settled_at(settled)
    }

    pub(super) fn call(&mut self, request: ControllerRequest) -> Result<ControllerReply, Refusal> {
        self.run(DecisionRequest::Call(ControllerCall { principal: "test".to_owned(), request }))
    }

    pub(super) fn refused(&mut self, request: ControllerRequest) -> ErrorCode {
        self.call(request).unwrap_err().code
    }

    /// The records of the last batch, without those that every batch of its kind has.
    pub(super) fn last_records(&self) -> &[MetadataRecord] {
        &self.log.last().unwrap().records
    }

    pub(super) fn epoch(&self, node_id: i32) -> BrokerEpoch {
        self.image.broker(NodeId(node_id)).unwrap().broker_epoch
    }

    pub(super) fn register(
        &mut self,
        node_id: i32,
        life: u8,
        previous_broker_epoch: BrokerEpoch,
    ) -> Result<BrokerEpoch, Refusal> {
        let request = RegisterBrokerRequest {
            cluster_id: uuid(CLUSTER),
            registration: registration(node_id, life),
            previous_broker_epoch,
            supersede: true,
        };
        match self.call(ControllerRequest::RegisterBroker(request))? {
            ControllerReply::RegisterBroker { broker_epoch } => Ok(broker_epoch),
            other => panic!("not the reply to a registration: {other:?}"),
        }
    }

    pub(super) fn unfence(&mut self, node_id: i32) -> Result<ControllerReply, Refusal> {
        self.run(DecisionRequest::Unfence {
            node_id: NodeId(node_id),
            broker_epoch: self.epoch(node_id),
            applied_index: self.image.index,
        })
    }

    pub(super) fn fence(&mut self, node_id: i32) {
        let request = DecisionRequest::Fence {
            node_id: NodeId(node_id),
            broker_epoch: self.epoch(node_id),
            cause: "test".to_owned(),
        };
        self.run(request).unwrap();
    }

    /// A topic with id `uuid(id)`, whose partitions have exactly these replicas, all in sync.
    pub(super) fn create(&mut self, name: &str, id: u8, replicas: &[&[i32]]) {
        let partitions = replicas.iter().map(|replicas| partition(replicas)).collect();
        let batch = batch(&self.image, topic_records(name, id, partitions));
        assert_eq!(self.image.replay(self.image.index + 1, &batch), Ok(Replayed::Applied));
        self.log.push(batch);
    }

    /// The leader has found that this replica caught up.
    pub(super) fn rejoin(&mut self, id: TopicIdPartition, node_id: i32) {
        let mut state = PartitionImage::clone(self.image.partition(id).unwrap());
        state.isr.push(NodeId(node_id));
        state.partition_epoch = state.partition_epoch.next();
        let record = MetadataRecord::PartitionChange(PartitionChangeRecord {
            topic_id: id.topic_id,
            partition: id.partition,
            state: Arc::new(state),
        });
        let batch = batch(&self.image, vec![record]);
        assert_eq!(self.image.replay(self.image.index + 1, &batch), Ok(Replayed::Applied));
        self.log.push(batch);
    }

    pub(super) fn partition(&self, id: u8, partition: i32) -> &PartitionImage {
        let partition = TopicIdPartition { topic_id: uuid(id), partition };
        self.image.partition(partition).unwrap()
    }
}

/// With the cluster's defaults.
pub(super) fn creatable(name: &str, id: u8) -> CreatableTopic {
    CreatableTopic {
        name: name.to_owned(),
        topic_id: uuid(id),
        partition_count: -1,
        replication_factor: -1,
        assignments: Default::default(),
        configs: Vec::new(),
    }
}
