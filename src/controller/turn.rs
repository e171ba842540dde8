//! One turn of the controller loop: many requests, one batch (design D3).

use super::brokers::provisional_index;
use super::{
    ControllerCall, ControllerReply, ControllerRequest, DecisionContext, DecisionRequest, Refusal,
    decide,
};
use crate::metadata::{BATCH_VERSION, Cause, MetadataBatch, MetadataImage, MetadataRecord};
use crate::protocol::ErrorCode;
use crate::types::random::Seeded;
use crate::types::{BrokerEpoch, MetadataIndex};

/// Every so many batches one tells the digest of the image, for the others to compare.
const DIGEST_EVERY: u64 = 256;
/// Longest text of a cause.
const CAUSE_SIZE_MAX: usize = 200;

/// Collects what is decided against one applied image. Dropping it forgets everything.
#[derive(Debug)]
pub struct Turn<'a> {
    applied: &'a MetadataImage,
    /// With the records of this turn.
    image: MetadataImage,
    context: DecisionContext<'a>,
    seeds: Seeded,
    records: Vec<MetadataRecord>,
    causes: Vec<Cause>,
}

/// An answer that may be given once the turn's batch is applied; or, if the turn made no batch, once leadership was
/// confirmed (replication.md 1.1 R3). If the batch is dropped, it must not be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingReply {
    reply: Result<ControllerReply, Refusal>,
    provisional: MetadataIndex,
}

impl PendingReply {
    /// `index` is that of the applied batch, or of the image if there was none.
    pub fn settled_at(mut self, settled: MetadataIndex) -> Result<ControllerReply, Refusal> {
        match &mut self.reply {
            Ok(ControllerReply::RegisterBroker { broker_epoch }) => {
                let is_new = u64::try_from(broker_epoch.0) == Ok(self.provisional);
                if let (true, Ok(epoch)) = (is_new, i64::try_from(settled)) {
                    *broker_epoch = BrokerEpoch(epoch);
                }
            }
            Ok(
                ControllerReply::CreateTopics { index, .. }
                | ControllerReply::DeleteTopics { index, .. }
                | ControllerReply::AlterConfigs { index, .. }
                | ControllerReply::CreatePartitions { index, .. }
                | ControllerReply::Drain { index }
                | ControllerReply::UnregisterBroker { index }
                | ControllerReply::ElectLeaders { index, .. }
                | ControllerReply::Reassign { index, .. },
            ) => *index = settled,
            Ok(
                ControllerReply::Done
                | ControllerReply::Heartbeat(_)
                | ControllerReply::AlterPartition { .. }
                | ControllerReply::AllocateProducerIds { .. },
            )
            | Err(_) => {}
        }
        self.reply
    }
}

impl<'a> Turn<'a> {
    pub fn begin(applied: &'a MetadataImage, context: DecisionContext<'a>) -> Self {
        Self {
            applied,
            image: applied.clone(),
            context,
            seeds: Seeded(context.seed),
            records: Vec::new(),
            causes: Vec::new(),
        }
    }

    /// Decides a request against the image and everything that this turn has decided before.
    /// For requests that nobody waits for (fencing), drop the reply.
    pub fn decide(&mut self, request: &DecisionRequest) -> PendingReply {
        let provisional = provisional_index(self.applied);
        let context = DecisionContext { seed: self.seeds.number(), ..self.context };
        let decision = decide(&self.image, &context, request);
        if let Err(error) = self.image.replay_records(provisional, &decision.records) {
            // A bug of ours. In the log these records would stop every node, one after the other, for ever.
            self.image = self.applied.clone();
            self.image
                .replay_records(provisional, &self.records)
                .expect("these records were replayed on this image before");
            let reason = format!("the controller contradicts itself: {error}");
            let reply = Err(Refusal::new(ErrorCode::UnknownServerError, reason));
            return PendingReply { reply, provisional };
        }
        if !decision.records.is_empty() {
            self.causes.push(cause(request, decision.records.len()));
        }
        self.records.extend(decision.records);
        PendingReply { reply: decision.reply, provisional }
    }

    /// How many records wait, so that the loop can end a turn that grows too large.
    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    /// The batch to propose; `None` when nothing changed.
    pub fn finish(mut self, controller_epoch: u64) -> Option<MetadataBatch> {
        if self.records.is_empty() {
            return None;
        }
        if self.applied.batch_count % DIGEST_EVERY == DIGEST_EVERY - 1 {
            self.records.push(MetadataRecord::Digest {
                index: self.applied.batch_index,
                digest: self.applied.digest,
            });
        }
        Some(MetadataBatch {
            version: BATCH_VERSION,
            basis: self.applied.batch_index,
            controller_epoch,
            time_ms: self.context.now_ms.max(self.applied.time_ms),
            causes: self.causes,
            records: self.records,
        })
    }
}

/// For the audit trail.
fn cause(request: &DecisionRequest, record_count: usize) -> Cause {
    let controller = || "controller".to_owned();
    let (principal, mut request) = match request {
        DecisionRequest::Call(ControllerCall { principal, request }) => {
            (principal.clone(), describe(request))
        }
        DecisionRequest::Fence { node_id, cause, .. } => {
            (controller(), format!("fence broker {node_id}: {cause}"))
        }
        DecisionRequest::Unfence { node_id, .. } => {
            (controller(), format!("unfence broker {node_id}"))
        }
        DecisionRequest::ElectPreferred { partitions } => {
            (controller(), format!("elect the first replicas of {} partitions", partitions.len()))
        }
        DecisionRequest::BeginControlledShutdown { node_id, .. } => {
            (format!("broker-{node_id}"), "begin controlled shutdown".to_owned())
        }
        DecisionRequest::Relieve { node_id, .. } => {
            (controller(), format!("lead nothing on broker {node_id}: its disk is stalled"))
        }
    };
    if request.len() > CAUSE_SIZE_MAX {
        let end = (0..=CAUSE_SIZE_MAX).rev().find(|end| request.is_char_boundary(*end));
        request.truncate(end.unwrap_or(0));
        request.push('…');
    }
    Cause { principal, request, record_count: u32::try_from(record_count).unwrap_or(u32::MAX) }
}

fn describe(request: &ControllerRequest) -> String {
    match request {
        ControllerRequest::RegisterBroker(request) => {
            format!("register broker {}", request.registration.node_id)
        }
        ControllerRequest::Heartbeat(request) => format!("heartbeat of broker {}", request.node_id),
        ControllerRequest::AlterPartition(request) => {
            format!("alter ISR of {} partitions", request.partitions.len())
        }
        ControllerRequest::AllocateProducerIds { node_id, .. } => {
            format!("allocate producer ids for broker {node_id}")
        }
        ControllerRequest::CreateTopics { topics, .. } => {
            let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
            format!("create topics {}", names.join(", "))
        }
        ControllerRequest::CreatePartitions { topics, .. } => {
            let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
            format!("create partitions of {}", names.join(", "))
        }
        ControllerRequest::DeleteTopics { topics } => format!("delete {} topics", topics.len()),
        ControllerRequest::AlterConfigs { changes, .. } => {
            let resources: Vec<String> =
                changes.iter().map(|change| format!("{:?}", change.resource)).collect();
            format!("alter configs of {}", resources.join(", "))
        }
        ControllerRequest::Drain { node_id } => format!("drain broker {node_id}"),
        ControllerRequest::UnregisterBroker { node_id } => format!("unregister broker {node_id}"),
        ControllerRequest::AddVoter { node_id } => format!("add voter {node_id}"),
        ControllerRequest::RemoveVoter { node_id } => format!("remove voter {node_id}"),
        ControllerRequest::TransferController { node_id } => {
            format!("transfer the controller to {node_id}")
        }
        ControllerRequest::ElectLeaders { .. } => "elect first replicas".to_owned(),
        ControllerRequest::Reassign { partitions } => {
            format!("reassign {} partitions", partitions.len())
        }
        ControllerRequest::ReportOffline(request) => format!(
            "broker {} cannot serve {} replicas; directories {:?}",
            request.node_id,
            request.offline.replicas.len(),
            request.offline.directories
        ),
    }
}

#[cfg(test)]
#[path = "turn_test.rs"]
mod tests;
