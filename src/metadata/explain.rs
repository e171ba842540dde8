//! Why a partition is as it is: who may lead it and who not, what is waited for, what is safe to do.
//!
//! Everything comes from the image, so any node can say it, and says the same.

use serde::{Deserialize, Serialize};

use super::{LeaderRecovery, MetadataImage, PartitionImage};
use crate::types::{NodeId, TopicIdPartition};

/// One partition, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub topic: String,
    pub partition: i32,
    pub state: PartitionState,
    /// What that means, in a sentence.
    pub summary: String,
    pub replicas: Vec<ReplicaVerdict>,
    pub waits_for: Vec<String>,
    /// What an operator can do, and what better not.
    pub advice: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionState {
    Healthy,
    /// It serves, with fewer replicas than it should have.
    Degraded,
    /// It can be read; writes with acks=all are refused.
    ReadOnly,
    /// Nobody leads it.
    Unavailable,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaVerdict {
    pub node_id: NodeId,
    pub is_leader: bool,
    pub in_sync: bool,
    pub may_lead: bool,
    pub reasons: Vec<String>,
}

impl MetadataImage {
    /// `None` when there is no such partition.
    pub fn explain(&self, topic: &str, partition: i32) -> Option<Explanation> {
        let image = self.topic(topic)?;
        let state = image.partition(partition)?;
        let id = TopicIdPartition { topic_id: image.topic_id, partition };
        let staying = state.replicas.len() - state.removing.len();
        let subject = Subject { image: self, id, state, min_isr: self.min_isr(topic).of(staying) };
        Some(Explanation {
            topic: topic.to_owned(),
            partition,
            state: subject.state_name(),
            summary: subject.summary(),
            replicas: state.replicas.iter().map(|node| subject.verdict(*node)).collect(),
            waits_for: subject.waits_for(),
            advice: subject.advice(),
        })
    }
}

struct Subject<'a> {
    image: &'a MetadataImage,
    id: TopicIdPartition,
    state: &'a PartitionImage,
    min_isr: usize,
}

impl Subject<'_> {
    fn state_name(&self) -> PartitionState {
        let mut settled =
            self.state.replicas.iter().filter(|node| !self.state.adding.contains(node));
        if self.state.leader == NodeId::NONE {
            PartitionState::Unavailable
        } else if self.state.isr.len() < self.min_isr {
            PartitionState::ReadOnly
        } else if settled.all(|node| self.state.isr.contains(node)) {
            PartitionState::Healthy
        } else {
            PartitionState::Degraded
        }
    }

    fn summary(&self) -> String {
        let (leader, in_sync) = (self.state.leader, self.state.isr.len());
        let count = self.state.replicas.len();
        match self.state_name() {
            PartitionState::Healthy => {
                format!("node {leader} leads, {in_sync} of {count} replicas are in sync")
            }
            PartitionState::Degraded => format!(
                "node {leader} leads; only {in_sync} of {count} replicas are in sync, enough for acks=all ({})",
                self.min_isr
            ),
            PartitionState::ReadOnly => format!(
                "node {leader} leads; acks=all is refused: {in_sync} of {count} replicas are in sync, min.insync.replicas is {}",
                self.min_isr
            ),
            PartitionState::Unavailable => {
                format!("nobody leads: of {count} replicas, none that has everything can serve")
            }
        }
    }

    fn verdict(&self, node_id: NodeId) -> ReplicaVerdict {
        let state = self.state;
        let in_sync = state.isr.contains(&node_id);
        let is_eligible = state.elr.contains(&node_id);
        let is_complete = if state.isr.is_empty() { is_eligible } else { in_sync };
        let mut reasons = self.absences(node_id);
        if in_sync {
            reasons.push("in sync: has everything that was acknowledged".to_owned());
        } else if is_eligible {
            reasons.push(
                "out of sync, but has everything that was acknowledged (eligible leader replica)"
                    .to_owned(),
            );
        } else if state.adding.contains(&node_id) {
            reasons.push("is being added, and catches up".to_owned());
        } else {
            reasons.push("out of sync: may lack acknowledged records".to_owned());
        }
        if state.last_known_elr.contains(&node_id) {
            reasons.push("led last, before nobody was left".to_owned());
        }
        if state.removing.contains(&node_id) {
            reasons.push("is removed when those who stay are in sync".to_owned());
        }
        ReplicaVerdict {
            node_id,
            is_leader: state.leader == node_id,
            in_sync,
            may_lead: is_complete && self.image.can_serve(node_id, self.id),
            reasons,
        }
    }

    /// Why the broker does not serve this replica, if it does not.
    fn absences(&self, node_id: NodeId) -> Vec<String> {
        let Some(broker) = self.image.broker(node_id) else {
            return vec![format!("broker {node_id} is not registered")];
        };
        let mut absences = Vec::new();
        if broker.fenced {
            absences.push(format!("broker {node_id} is fenced: it is down or cut off"));
        }
        if broker.in_controlled_shutdown {
            absences.push(format!("broker {node_id} is stopping, or drained"));
        }
        if !self.image.is_online(node_id, self.id) {
            let directories = self.image.offline.get(&node_id).map(|offline| &offline.directories);
            let failed = directories.into_iter().flatten();
            let failed: Vec<String> = failed.map(|(path, why)| format!("{path}: {why}")).collect();
            absences.push(match failed.is_empty() {
                true => "its log is damaged, and waits for repair from the leader".to_owned(),
                false => format!(
                    "its log directory failed, or its log is damaged ({})",
                    failed.join("; ")
                ),
            });
        }
        absences
    }

    /// Who has everything and would lead or be in sync if it came back.
    fn complete(&self) -> &[NodeId] {
        if self.state.isr.is_empty() { &self.state.elr } else { &self.state.isr }
    }

    fn waits_for(&self) -> Vec<String> {
        let state = self.state;
        if state.leader == NodeId::NONE {
            let complete = self.complete();
            if complete.is_empty() {
                return vec![match state.last_known_elr[..] {
                    [last] => format!("node {last}, which led last, to come back"),
                    _ => "a replica that has everything; none is known".to_owned(),
                }];
            }
            return vec![format!("one of {} to come back", list(complete))];
        }
        let mut waits = Vec::new();
        for node in state.replicas.iter().filter(|node| !state.isr.contains(node)) {
            if state.removing.contains(node) {
                continue;
            }
            waits.push(match self.image.can_serve(*node, self.id) {
                true => format!("node {node} to catch up"),
                false => format!("node {node} to come back"),
            });
        }
        if state.recovery == LeaderRecovery::Recovering {
            waits.push(format!("node {} to recover after an unclean election", state.leader));
        }
        waits
    }

    fn advice(&self) -> Vec<String> {
        let state = self.state;
        let mut advice = Vec::new();
        if state.leader == NodeId::NONE {
            let complete = self.complete();
            let first = complete.iter().chain(&state.last_known_elr).next();
            advice.extend(first.map(|node| {
                format!("start node {node}, or mend its disk: then it leads, and nothing is lost")
            }));
            advice.push(
                "do not wipe any replica: one that is behind may be all that is left".to_owned(),
            );
            return advice;
        }
        if state.isr.len() < self.min_isr {
            advice.push(format!(
                "bring replicas back, or lower min.insync.replicas to {} if fewer copies are acceptable",
                state.isr.len()
            ));
        }
        advice.push(match state.isr.len().checked_sub(1) {
            Some(0) => format!("do not stop node {}: no other replica is in sync", state.leader),
            Some(left) if left >= self.min_isr => "any one node may stop: writes go on".to_owned(),
            _ => format!("do not stop any of {}: acks=all would be refused", list(&state.isr)),
        });
        advice
    }
}

fn list(nodes: &[NodeId]) -> String {
    let ids: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    match &ids[..] {
        [one] => format!("node {one}"),
        _ => format!("nodes {}", ids.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metadata::test_support::{apply, image_with_topic, nodes};
    use crate::metadata::{BrokerChangeRecord, MetadataRecord, PartitionChangeRecord};

    /// Partition 0 of a topic on brokers 1, 2, 3: those in sync, those eligible, the leader, and who is fenced.
    fn explain(isr: &[i32], elr: &[i32], leader: i32, fenced: &[i32]) -> Explanation {
        let mut image = image_with_topic("t", 1);
        let topic = image.topic("t").unwrap().clone();
        let mut records: Vec<_> = (fenced.iter())
            .map(|id| {
                let broker = image.broker(NodeId(*id)).unwrap();
                MetadataRecord::BrokerChange(BrokerChangeRecord {
                    node_id: NodeId(*id),
                    broker_epoch: broker.broker_epoch,
                    fenced: Some(true),
                    in_controlled_shutdown: None,
                })
            })
            .collect();
        let old = &topic.partitions[0];
        let state = PartitionImage {
            isr: nodes(isr),
            elr: nodes(elr),
            leader: NodeId(leader),
            leader_epoch: old.leader_epoch.next(),
            partition_epoch: old.partition_epoch.next(),
            ..PartitionImage::clone(old)
        };
        if state != **old {
            records.push(MetadataRecord::PartitionChange(PartitionChangeRecord {
                topic_id: topic.topic_id,
                partition: 0,
                state: Arc::new(state),
            }));
        }
        apply(&mut image, records);
        image.explain("t", 0).unwrap()
    }

    #[test]
    fn a_healthy_partition_says_what_may_stop() {
        let explanation = explain(&[1, 2, 3], &[], 2, &[]);
        assert_eq!(explanation.state, PartitionState::Healthy);
        assert_eq!(explanation.advice, ["any one node may stop: writes go on"]);
        assert!(explanation.replicas.iter().all(|replica| replica.may_lead));
        assert!(explanation.waits_for.is_empty());
    }

    #[test]
    fn a_fenced_replica_is_waited_for() {
        let explanation = explain(&[1, 2], &[], 1, &[3]);
        assert_eq!(explanation.state, PartitionState::Degraded);
        assert_eq!(explanation.waits_for, ["node 3 to come back"]);
        let third = &explanation.replicas[2];
        assert!(!third.may_lead && !third.in_sync);
        assert!(third.reasons[0].contains("fenced"), "{third:?}");
        assert_eq!(
            explanation.advice,
            ["do not stop any of nodes 1, 2: acks=all would be refused"]
        );
    }

    #[test]
    fn too_few_in_sync_is_read_only() {
        let explanation = explain(&[1], &[2], 1, &[2]);
        assert_eq!(explanation.state, PartitionState::ReadOnly);
        assert!(explanation.summary.contains("min.insync.replicas is 2"), "{explanation:?}");
        assert_eq!(explanation.waits_for, ["node 2 to come back", "node 3 to catch up"]);
        assert!(!explanation.replicas[1].may_lead, "the ISR is not empty");
    }

    #[test]
    fn without_a_leader_it_says_who_would_lead() {
        let explanation = explain(&[], &[2, 3], NodeId::NONE.0, &[2, 3]);
        assert_eq!(explanation.state, PartitionState::Unavailable);
        assert_eq!(explanation.waits_for, ["one of nodes 2, 3 to come back"]);
        assert!(explanation.advice[0].starts_with("start node 2"), "{explanation:?}");
        assert!(explanation.replicas.iter().all(|replica| !replica.may_lead));
        assert!(explanation.replicas[0].reasons[0].contains("may lack"), "{explanation:?}");
    }
}
