//! A controller as a list of images: registrations, elections and the checks of AlterPartition (replication.md 1.4).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::controller::{AlterPartition, AlterPartitionRefusal};
use crate::metadata::{LeaderRecovery, PartitionImage};
use crate::protocol::ErrorCode;
use crate::types::random::Seeded;
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, PartitionEpoch};

pub(super) type AlterResult = Result<PartitionImage, AlterPartitionRefusal>;

#[derive(Debug, Clone)]
pub(super) struct Version {
    pub(super) partition: PartitionImage,
    /// Broker epoch, and whether it is active.
    pub(super) brokers: BTreeMap<NodeId, (BrokerEpoch, bool)>,
}

#[derive(Debug)]
pub(super) struct Controller {
    pub(super) versions: Vec<Arc<Version>>,
    /// Per broker incarnation its last numbered request and the answer.
    sequences: BTreeMap<(NodeId, BrokerEpoch), (u64, AlterResult)>,
}

impl Controller {
    pub(super) fn new(nodes: &[NodeId]) -> Self {
        let partition = PartitionImage {
            replicas: nodes.to_vec(),
            isr: nodes.to_vec(),
            elr: Vec::new(),
            last_known_elr: Vec::new(),
            leader: nodes[0],
            leader_epoch: LeaderEpoch(0),
            partition_epoch: PartitionEpoch(0),
            adding: Vec::new(),
            removing: Vec::new(),
            recovery: LeaderRecovery::Recovered,
        };
        let brokers = nodes.iter().map(|&node| (node, (BrokerEpoch(0), true))).collect();
        Self {
            versions: vec![Arc::new(Version { partition, brokers })],
            sequences: BTreeMap::new(),
        }
    }

    pub(super) fn latest(&self) -> &Version {
        self.versions.last().expect("there is a first version")
    }

    /// A new incarnation: fenced until it is unfenced. Returns its broker epoch.
    pub(super) fn register(&mut self, node: NodeId) -> BrokerEpoch {
        let epoch = BrokerEpoch(i64::try_from(self.versions.len()).expect("few versions"));
        self.change_broker(node, epoch, false);
        epoch
    }

    pub(super) fn set_active(&mut self, node: NodeId, active: bool) {
        let (epoch, was_active) = self.latest().brokers[&node];
        if was_active != active {
            self.change_broker(node, epoch, active);
        }
    }

    fn change_broker(&mut self, node: NodeId, epoch: BrokerEpoch, active: bool) {
        let mut next = Version::clone(self.latest());
        next.brokers.insert(node, (epoch, active));
        let mut isr = next.partition.isr.clone();
        if !active && isr.len() > 1 {
            // The last one stays, without leading: it is the only replica that is known to be complete.
            isr.retain(|&member| member != node);
        }
        elect(&mut next, isr, None);
        self.versions.push(Arc::new(next));
    }

    /// Moves the leadership to another ISR member, as a preferred election would.
    pub(super) fn move_leader(&mut self, random: &mut Seeded) {
        let mut next = self.latest().clone();
        let isr = next.partition.isr.clone();
        let wanted = isr[random.below(isr.len())];
        elect(&mut next, isr, Some(wanted));
        self.versions.push(Arc::new(next));
    }

    pub(super) fn alter(
        &mut self,
        from: NodeId,
        broker_epoch: BrokerEpoch,
        sequence: u64,
        request: &AlterPartition,
    ) -> Option<AlterResult> {
        if let Some((last, reply)) = self.sequences.get(&(from, broker_epoch))
            && sequence <= *last
        {
            return (sequence == *last).then_some(reply.clone());
        }
        let reply = self.judge(from, broker_epoch, request);
        self.sequences.insert((from, broker_epoch), (sequence, reply.clone()));
        Some(reply)
    }

    fn judge(
        &mut self,
        from: NodeId,
        broker_epoch: BrokerEpoch,
        request: &AlterPartition,
    ) -> AlterResult {
        let now = self.latest().clone();
        let refuse = |code| {
            let current = Some(now.partition.clone());
            Err(AlterPartitionRefusal { code, current: current.map(Box::new) })
        };
        if now.brokers[&from].0 != broker_epoch {
            return refuse(ErrorCode::StaleBrokerEpoch);
        }
        if request.leader_epoch < now.partition.leader_epoch {
            return refuse(ErrorCode::FencedLeaderEpoch);
        }
        assert_eq!(from, now.partition.leader, "only the leader of the epoch proposes under it");
        if request.partition_epoch < now.partition.partition_epoch {
            return refuse(ErrorCode::InvalidUpdateVersion);
        }
        let eligible = |&(node, epoch): &(NodeId, BrokerEpoch)| {
            let (registered, active) = now.brokers[&node];
            active && (epoch == BrokerEpoch::NONE || epoch == registered)
        };
        if !request.isr.iter().all(eligible) {
            return refuse(ErrorCode::IneligibleReplica);
        }
        let mut next = now.clone();
        next.partition.isr = request.isr.iter().map(|(node, _)| *node).collect();
        next.partition.partition_epoch = next.partition.partition_epoch.next();
        self.versions.push(Arc::new(next.clone()));
        Ok(next.partition)
    }
}

fn elect(next: &mut Version, isr: Vec<NodeId>, wanted: Option<NodeId>) {
    let old = next.partition.clone();
    let valid = |node: NodeId| isr.contains(&node) && next.brokers[&node].1;
    let candidates = wanted.into_iter().chain([old.leader]).chain(old.replicas.iter().copied());
    let leader = candidates.into_iter().find(|&node| valid(node)).unwrap_or(NodeId::NONE);
    if (leader, &isr) == (old.leader, &old.isr) {
        return;
    }
    let partition = &mut next.partition;
    partition.partition_epoch = old.partition_epoch.next();
    if leader != old.leader {
        partition.leader_epoch = old.leader_epoch.next();
    }
    (partition.leader, partition.isr) = (leader, isr);
}
