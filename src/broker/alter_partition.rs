//! Takes the ISR changes that partitions of this broker propose to the active controller (replication.md 2.9).
//!
//! One request is in flight at a time and holds what all partitions propose by then.
//!
//! Invariant: a request whose outcome is unknown is sent again as it is, under the same number, so that the controller
//! can answer a copy with the first one's reply. What comes after it has a higher number.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{debug, info};

use super::control_plane::{ControlPlane, Unanswered};
use super::metrics::Metrics;
use super::partition::AlterReply;
use super::registry::Registry;
use crate::controller::{
    AlterPartition, AlterPartitionRefusal, AlterPartitionRequest, ControllerCall, ControllerReply,
    ControllerRequest,
};
use crate::metadata::PartitionImage;
use crate::net::Identity;
use crate::types::TopicIdPartition;

/// How long to wait for an answer before the same request is sent again, maybe to another controller.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_millis(50);

/// The partitions that have something to propose.
#[derive(Debug, Default)]
pub(super) struct IsrChanges {
    wanted: Mutex<Vec<TopicIdPartition>>,
    news: Notify,
}

impl IsrChanges {
    pub(super) fn want(&self, partition: TopicIdPartition) {
        self.wanted.lock().push(partition);
        self.news.notify_one();
    }

    async fn take(&self) -> Vec<TopicIdPartition> {
        loop {
            let mut wanted = std::mem::take(&mut *self.wanted.lock());
            if !wanted.is_empty() {
                wanted.sort_unstable();
                wanted.dedup();
                return wanted;
            }
            self.news.notified().await;
        }
    }
}

#[derive(Debug)]
pub(super) struct AlterPartitionSender {
    pub(super) control: Arc<dyn ControlPlane>,
    pub(super) identity: Arc<Identity>,
    pub(super) registry: Arc<Registry>,
    pub(super) changes: Arc<IsrChanges>,
    pub(super) metrics: Metrics,
}

impl AlterPartitionSender {
    pub(super) async fn run(self) {
        let mut sequence = 0;
        loop {
            let wanted = self.changes.take().await;
            let partitions: Vec<_> = wanted
                .into_iter()
                .filter_map(|id| self.registry.get(id)?.pending_alter())
                .collect();
            if partitions.is_empty() {
                continue;
            }
            sequence += 1;
            let (node_id, broker_epoch) = (self.identity.node_id, self.identity.broker_epoch());
            self.send(AlterPartitionRequest { node_id, broker_epoch, sequence, partitions }).await;
        }
    }

    /// Returns when the outcome is known and the partitions have been told.
    async fn send(&self, request: AlterPartitionRequest) {
        let call = ControllerCall {
            principal: format!("broker-{}", self.identity.node_id),
            request: ControllerRequest::AlterPartition(request.clone()),
        };
        loop {
            self.metrics.isr_change_requests.inc();
            match self.control.submit(call.clone(), ANSWER_TIMEOUT).await {
                Ok(Ok(ControllerReply::AlterPartition { results }))
                    if results.len() == request.partitions.len() =>
                {
                    return self.tell_all(&request.partitions, results).await;
                }
                // The next request proposes the same again, under the broker epoch of then.
                Ok(answer) => {
                    info!(?answer, "ISR changes refused as a whole");
                    tokio::time::sleep(RETRY).await;
                    request.partitions.iter().for_each(|sent| self.tell(sent, None));
                    return;
                }
                Err(Unanswered(reason)) => {
                    debug!(reason, sequence = request.sequence, "ISR changes unanswered");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    async fn tell_all(
        &self,
        sent: &[AlterPartition],
        results: Vec<Result<PartitionImage, AlterPartitionRefusal>>,
    ) {
        let (accepted, refused): (Vec<_>, Vec<_>) =
            sent.iter().zip(results).partition(|(_, result)| result.is_ok());
        for (sent, result) in accepted {
            debug!(?sent, ?result, "ISR changed");
            self.tell(sent, Some(result));
        }
        if refused.is_empty() {
            return;
        }
        // What is wanted again after a refusal is not wanted at once.
        tokio::time::sleep(RETRY).await;
        for (sent, result) in refused {
            debug!(?sent, ?result, "ISR change refused");
            self.tell(sent, Some(result));
        }
    }

    fn tell(&self, sent: &AlterPartition, reply: AlterReply) {
        if let Some(partition) = self.registry.get(sent.partition) {
            partition.on_alter_reply(sent, reply);
        }
    }
}
