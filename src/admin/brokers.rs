//! `/v1/cluster`, `/v1/quorum` and `/v1/brokers`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::problem::Problem;
use super::topics::is_under_replicated;
use crate::metadata::{BrokerImage, MetadataImage};
use crate::protocol::ErrorCode;
use crate::protocol::native::{QuorumMember, QuorumStatus};
use crate::types::NodeId;

#[derive(Debug, Serialize)]
pub(super) struct ClusterView {
    cluster_id: String,
    /// The node that answered.
    node_id: i32,
    controller_id: Option<i32>,
    metadata_index: u64,
    brokers: Counts,
    topics: usize,
    partitions: usize,
    /// Partitions that nobody leads: neither readable nor writable.
    leaderless_partitions: usize,
    /// Partitions with fewer replicas in sync than assigned.
    under_replicated_partitions: usize,
    /// Partitions that refuse `acks=all` because too few replicas are in sync.
    under_min_isr_partitions: usize,
}

#[derive(Debug, Serialize)]
struct Counts {
    registered: usize,
    active: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct QuorumView {
    cluster_id: String,
    node_id: i32,
    leader_id: Option<i32>,
    term: u64,
    last_log_index: u64,
    applied_index: u64,
    voters: Vec<MemberView>,
    learners: Vec<MemberView>,
}

#[derive(Debug, Serialize)]
struct MemberView {
    node_id: i32,
    /// As text: it does not fit into a JavaScript number.
    raft_node_id: String,
    peer: String,
    /// Entries behind the leader, where the answering node is the leader.
    lag: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct BrokersView {
    brokers: Vec<BrokerView>,
}

#[derive(Debug, Serialize)]
pub(super) struct BrokerView {
    node_id: i32,
    state: &'static str,
    rack: Option<String>,
    client: String,
    peer: String,
    admin: String,
    broker_epoch: i64,
    incarnation: String,
    /// Partitions that it leads, and that it has a replica of.
    leaders: usize,
    replicas: usize,
    /// Replicas that it cannot serve: their directory is offline, or their log is damaged.
    offline_replicas: usize,
    /// Log directories that failed, and why.
    offline_directories: BTreeMap<String, String>,
}

pub(super) fn cluster(image: &MetadataImage, status: &QuorumStatus) -> ClusterView {
    let mut view = ClusterView {
        cluster_id: status.cluster_id.to_string(),
        node_id: status.node_id.0,
        controller_id: status.leader_id.map(|id| id.0),
        metadata_index: image.index,
        brokers: Counts {
            registered: image.brokers.len(),
            active: image.brokers.values().filter(|broker| broker.is_active()).count(),
        },
        topics: image.topics.len(),
        partitions: 0,
        leaderless_partitions: 0,
        under_replicated_partitions: 0,
        under_min_isr_partitions: 0,
    };
    for topic in image.topics.values() {
        let min_isr = image.min_isr(&topic.name);
        for partition in &topic.partitions {
            view.partitions += 1;
            view.leaderless_partitions += usize::from(partition.leader.known().is_none());
            view.under_replicated_partitions += usize::from(is_under_replicated(partition));
            let is_under_min_isr = partition.isr.len() < min_isr.of(partition.replicas.len());
            view.under_min_isr_partitions += usize::from(is_under_min_isr);
        }
    }
    view
}

pub(super) fn quorum(status: &QuorumStatus) -> QuorumView {
    let member = |member: &QuorumMember| MemberView {
        node_id: member.node_id.0,
        raft_node_id: member.raft_node_id.to_string(),
        peer: member.peer.to_string(),
        lag: member.lag,
    };
    QuorumView {
        cluster_id: status.cluster_id.to_string(),
        node_id: status.node_id.0,
        leader_id: status.leader_id.map(|id| id.0),
        term: status.term,
        last_log_index: status.last_log_index,
        applied_index: status.applied_index,
        voters: status.voters.iter().map(member).collect(),
        learners: status.learners.iter().map(member).collect(),
    }
}

pub(super) fn brokers(image: &MetadataImage) -> BrokersView {
    BrokersView { brokers: image.brokers.values().map(|broker| view(image, broker)).collect() }
}

pub(super) fn broker(image: &MetadataImage, id: &str) -> Result<BrokerView, Problem> {
    let id = find_broker(image, id)?;
    let broker = image.broker(id).expect("it was found in this image");
    Ok(view(image, broker))
}

/// The broker that a path names.
pub(super) fn find_broker(image: &MetadataImage, text: &str) -> Result<NodeId, Problem> {
    let id = text.parse().ok().map(NodeId).filter(|id| image.brokers.contains_key(id));
    id.ok_or_else(|| {
        let known: Vec<String> = image.brokers.keys().map(NodeId::to_string).collect();
        let detail = match known.as_slice() {
            [] => format!("there is no broker {text:?}; none has registered yet"),
            known => format!("there is no broker {text:?}; there are {}", known.join(", ")),
        };
        Problem::not_found(ErrorCode::BrokerIdNotRegistered, detail)
    })
}

fn view(image: &MetadataImage, broker: &BrokerImage) -> BrokerView {
    let registration = &broker.registration;
    let id = registration.node_id;
    let offline = image.offline.get(&id);
    let partitions = || image.topics.values().flat_map(|topic| &topic.partitions);
    BrokerView {
        node_id: id.0,
        state: match broker {
            _ if broker.in_controlled_shutdown => "shutting-down",
            _ if broker.fenced => "fenced",
            _ => "active",
        },
        rack: registration.rack.clone(),
        client: registration.endpoints.client.to_string(),
        peer: registration.endpoints.peer.to_string(),
        admin: registration.endpoints.admin.to_string(),
        broker_epoch: broker.broker_epoch.0,
        incarnation: registration.incarnation.to_string(),
        leaders: partitions().filter(|partition| partition.leader == id).count(),
        replicas: partitions().filter(|partition| partition.replicas.contains(&id)).count(),
        offline_replicas: offline.map_or(0, |it| it.replicas.len()),
        offline_directories: offline.map(|it| it.directories.clone()).unwrap_or_default(),
    }
}
