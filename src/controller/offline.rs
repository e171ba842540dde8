//! Replicas that cannot serve although their broker is alive (replication.md 1.4): their log directory is offline, or
//! their log is damaged. The broker reports all of them whenever that changes; here follows what it means for leaders.

use std::sync::Arc;

use super::brokers::registered_broker;
use super::sweep::Sweep;
use super::{Decision, Refusal, ReportOfflineRequest};
use crate::metadata::{MetadataImage, MetadataRecord, OfflineImage, PartitionImage};
use crate::types::{NodeId, TopicIdPartition};

pub(super) fn report(
    image: &MetadataImage,
    request: &ReportOfflineRequest,
) -> Result<Decision, Refusal> {
    let node_id = request.node_id;
    registered_broker(image, node_id, request.broker_epoch)?;
    let before = image.offline.get(&node_id).cloned().unwrap_or_default();
    let offline = assigned(image, node_id, &request.offline);
    if offline == *before {
        return Ok(Decision::nothing());
    }
    let mut after = image.clone();
    after.offline.insert(node_id, Arc::new(offline.clone()));
    let acceptable = |node| after.is_active(node);
    let sweep = |unclean_shutdown| Sweep { unclean_shutdown, ..Sweep::new(&after, &acceptable) };
    let (safe, lossy) = (sweep(None), sweep(Some(node_id)));
    let mut records = Vec::new();
    for &id in offline.replicas.symmetric_difference(&before.replicas) {
        let Some((topic, old)) = image.topic_and_partition(id) else { continue };
        let mut wanted = PartitionImage::clone(old);
        if offline.replicas.contains(&id) {
            wanted.isr.retain(|member| *member != node_id);
        }
        let sweep = if request.lossy.contains(&id) { &lossy } else { &safe };
        records.extend(sweep.change(id, old, wanted, image.min_isr(&topic.name)));
    }
    records.push(MetadataRecord::Offline {
        node_id,
        broker_epoch: request.broker_epoch,
        offline: Arc::new(offline),
    });
    Ok(Decision::done(records))
}

/// Without what the broker does not know yet that it does not hold any more.
fn assigned(image: &MetadataImage, node_id: NodeId, reported: &OfflineImage) -> OfflineImage {
    let is_assigned = |id: &&TopicIdPartition| {
        image.partition(**id).is_some_and(|partition| partition.replicas.contains(&node_id))
    };
    OfflineImage {
        directories: reported.directories.clone(),
        replicas: reported.replicas.iter().filter(is_assigned).copied().collect(),
    }
}

#[cfg(test)]
#[path = "offline_test.rs"]
mod tests;
