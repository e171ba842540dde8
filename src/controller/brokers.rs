//! The life of a broker: registration, fencing, controlled shutdown (replication.md 1.2, 1.5).
//!
//! `registered -> unfenced -> (controlled shutdown) -> fenced`, and another incarnation is another life: whatever the
//! old one led or had in sync is taken from it in the batch that registers the new one, even if its session never
//! expired. It may have lost what it had in memory, and must not go on under the same leader epoch.

use super::sweep::Sweep;
use super::{ControllerReply, Decision, DecisionContext, Liveness, Refusal, RegisterBrokerRequest};
use crate::metadata::{
    BrokerChangeRecord, BrokerImage, MetadataImage, MetadataRecord, RegisterBrokerRecord,
};
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, MetadataIndex, NodeId};

type Decided = Result<Decision, Refusal>;

/// A batch of this turn gets a later index than the applied image; which one is known only when it is applied, see
/// [`super::PendingReply::settled_at`].
pub(super) fn provisional_index(image: &MetadataImage) -> MetadataIndex {
    image.index + 1
}

pub(super) fn register(
    image: &MetadataImage,
    context: &DecisionContext<'_>,
    request: &RegisterBrokerRequest,
) -> Decided {
    let registration = &request.registration;
    let node_id = registration.node_id;
    if request.cluster_id != context.defaults.cluster_id {
        return Err(Refusal::new(
            ErrorCode::InconsistentClusterId,
            format!(
                "node {node_id} belongs to cluster {}, this is cluster {}",
                request.cluster_id, context.defaults.cluster_id
            ),
        ));
    }
    check_registration(image, registration)?;
    let register = MetadataRecord::RegisterBroker(registration.clone());
    let Some(known) = image.broker(node_id) else {
        return Ok(registered(vec![register], provisional_epoch(image)));
    };
    if known.registration.incarnation == registration.incarnation {
        let amended = known.registration != *registration;
        let records = if amended { vec![register] } else { Vec::new() };
        return Ok(registered(records, known.broker_epoch));
    }
    let alive = !known.fenced || context.liveness.has_session(node_id, known.broker_epoch);
    if alive && !request.supersede {
        return Err(Refusal::new(
            ErrorCode::DuplicateBrokerRegistration,
            format!(
                "another process is registered as node {node_id} and was heard of a moment ago; \
                 node ids are unique in a cluster"
            ),
        ));
    }
    let unclean = request.previous_broker_epoch != known.broker_epoch;
    let others = others(image, node_id);
    let unclean_shutdown = unclean.then_some(node_id);
    let sweep = Sweep { unclean_shutdown, ..Sweep::new(image, &others) };
    let mut records = sweep.without(node_id);
    records.push(register);
    Ok(registered(records, provisional_epoch(image)))
}

fn registered(records: Vec<MetadataRecord>, broker_epoch: BrokerEpoch) -> Decision {
    Decision { records, reply: Ok(ControllerReply::RegisterBroker { broker_epoch }) }
}

fn provisional_epoch(image: &MetadataImage) -> BrokerEpoch {
    BrokerEpoch(i64::try_from(provisional_index(image)).unwrap_or(i64::MAX))
}

fn check_registration(
    image: &MetadataImage,
    registration: &RegisterBrokerRecord,
) -> Result<(), Refusal> {
    let invalid = |reason: String| Err(Refusal::new(ErrorCode::InvalidRegistration, reason));
    let node_id = registration.node_id;
    if node_id.0 < 0 {
        return invalid(format!("{node_id} is no node id: they are not negative"));
    }
    let directories = &registration.directory_ids;
    if directories.is_empty() {
        return invalid(format!("node {node_id} has no log directory"));
    }
    for (i, directory) in directories.iter().enumerate() {
        if directory.is_zero() || directories[..i].contains(directory) {
            return invalid(format!("log directory id {directory} is reserved or appears twice"));
        }
        let owner = image
            .brokers
            .values()
            .map(|broker| &broker.registration)
            .find(|other| other.node_id != node_id && other.directory_ids.contains(directory));
        if let Some(owner) = owner {
            return invalid(format!(
                "log directory {directory} belongs to node {}; a directory is never copied or shared",
                owner.node_id
            ));
        }
    }
    for (name, level) in image.features.iter().filter(|(_, level)| **level != 0) {
        let supported = registration.features.get(name);
        if !supported.is_some_and(|(min, max)| (min..=max).contains(&level)) {
            return Err(Refusal::new(
                ErrorCode::UnsupportedVersion,
                format!(
                    "the cluster uses {name} level {level}, which node {node_id} does not support"
                ),
            ));
        }
    }
    Ok(())
}

/// The active ones without this one, which is about to be another than the image says.
fn others(image: &MetadataImage, node_id: NodeId) -> impl Fn(NodeId) -> bool {
    move |node| node != node_id && image.is_active(node)
}

/// No effect on another life of the broker, or a second time.
pub(super) fn fence(image: &MetadataImage, node_id: NodeId, broker_epoch: BrokerEpoch) -> Decision {
    let concerned = image
        .broker(node_id)
        .is_some_and(|broker| broker.broker_epoch == broker_epoch && !broker.fenced);
    if !concerned {
        return Decision::nothing();
    }
    let others = others(image, node_id);
    let sweep = Sweep::new(image, &others);
    let mut records = sweep.without(node_id);
    // A drained broker stays drained: it has not registered again.
    records.push(change(node_id, broker_epoch, Some(true), None));
    Decision::done(records)
}

pub(super) fn unfence(
    image: &MetadataImage,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
    applied_index: MetadataIndex,
) -> Decided {
    let broker = registered_broker(image, node_id, broker_epoch)?;
    if !broker.fenced {
        return Ok(Decision::nothing());
    }
    if i64::try_from(applied_index).is_ok_and(|index| index < broker_epoch.0) {
        return Err(Refusal::new(
            ErrorCode::OperationNotAttempted,
            format!("node {node_id} has not caught up to its own registration"),
        ));
    }
    let comes_back = !broker.in_controlled_shutdown;
    let acceptable = |node| match node == node_id {
        true => comes_back,
        false => image.is_active(node),
    };
    let sweep = Sweep::new(image, &acceptable);
    let mut records = vec![change(node_id, broker_epoch, Some(false), None)];
    records.extend(sweep.all(|partition| {
        let concerned = partition.leader == NodeId::NONE && partition.replicas.contains(&node_id);
        concerned.then(|| partition.clone())
    }));
    Ok(Decision::done(records))
}

/// Leaders move first. Where nobody else is in sync the partition stops when the broker does, so it stops now.
pub(super) fn begin_controlled_shutdown(
    image: &MetadataImage,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
) -> Decided {
    let broker = registered_broker(image, node_id, broker_epoch)?;
    if broker.fenced || broker.in_controlled_shutdown {
        return Ok(Decision::nothing());
    }
    Ok(Decision::done(leave(image, node_id, broker_epoch)))
}

fn leave(image: &MetadataImage, node_id: NodeId, broker_epoch: BrokerEpoch) -> Vec<MetadataRecord> {
    let others = others(image, node_id);
    let sweep = Sweep::new(image, &others);
    let mut records = vec![change(node_id, broker_epoch, None, Some(true))];
    records.extend(sweep.without(node_id));
    records
}

/// The broker's disk is stuck, though it is alive. Where nobody else could lead it goes on leading: it may be only slow.
pub(super) fn relieve(
    image: &MetadataImage,
    liveness: &Liveness,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
) -> Decided {
    registered_broker(image, node_id, broker_epoch)?;
    let acceptable = |node| node != node_id && image.is_active(node) && !liveness.is_stalled(node);
    let records = Sweep::new(image, &acceptable).without_where(node_id, |partition| {
        partition.leader == node_id && partition.isr.iter().any(|member| acceptable(*member))
    });
    Ok(Decision::done(records))
}

/// Like a controlled shutdown, but asked for by an operator, so it refuses where that would stop a partition.
pub(super) fn drain(image: &MetadataImage, node_id: NodeId) -> Decided {
    let broker = image.broker(node_id).ok_or_else(|| unregistered(node_id))?;
    let reply = Ok(ControllerReply::Drain { index: image.index });
    if broker.in_controlled_shutdown {
        return Ok(Decision { records: Vec::new(), reply });
    }
    let records = leave(image, node_id, broker.broker_epoch);
    let stopped = records.iter().find_map(|record| match record {
        MetadataRecord::PartitionChange(change) if change.state.leader == NodeId::NONE => {
            let topic = image.topic_by_id(change.topic_id)?;
            Some(format!("{}-{}", topic.name, change.partition))
        }
        _ => None,
    });
    if let Some(partition) = stopped {
        return Err(Refusal::new(
            ErrorCode::PolicyViolation,
            format!(
                "node {node_id} is the only in-sync replica of {partition}, which would have no leader; \
                 wait for another replica, or stop the node if that is acceptable"
            ),
        ));
    }
    Ok(Decision { records, reply })
}

pub(super) fn unregister(image: &MetadataImage, node_id: NodeId) -> Decided {
    if image.broker(node_id).is_none() {
        return Err(unregistered(node_id));
    }
    let others = others(image, node_id);
    let sweep = Sweep { unclean_shutdown: Some(node_id), ..Sweep::new(image, &others) };
    let mut records = sweep.without(node_id);
    records.push(MetadataRecord::UnregisterBroker { node_id });
    Ok(Decision { records, reply: Ok(ControllerReply::UnregisterBroker { index: image.index }) })
}

/// The registration that a request of a broker speaks for.
pub(super) fn registered_broker(
    image: &MetadataImage,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
) -> Result<&BrokerImage, Refusal> {
    let broker = image.broker(node_id).ok_or_else(|| unregistered(node_id))?;
    if broker.broker_epoch != broker_epoch {
        return Err(Refusal::new(
            ErrorCode::StaleBrokerEpoch,
            format!(
                "node {node_id} is registered with broker epoch {}, not {broker_epoch}",
                broker.broker_epoch
            ),
        ));
    }
    Ok(broker)
}

pub(super) fn unregistered(node_id: NodeId) -> Refusal {
    Refusal::new(ErrorCode::BrokerIdNotRegistered, format!("no broker is registered as {node_id}"))
}

fn change(
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
    fenced: Option<bool>,
    in_controlled_shutdown: Option<bool>,
) -> MetadataRecord {
    MetadataRecord::BrokerChange(BrokerChangeRecord {
        node_id,
        broker_epoch,
        fenced,
        in_controlled_shutdown,
    })
}

#[cfg(test)]
#[path = "brokers_test.rs"]
mod tests;
