//! What the tools for operators need: importing batches with their offsets, and reading one replica.

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::error::cause;
use super::retry::{Retry, is_retriable};
use super::{Admin, Error};
use crate::protocol::native::{
    ImportReply, ImportRequest, Kind, Produced, ReadReplicaReply, ReadReplicaRequest, ReplicaRange,
};
use crate::types::{NodeId, Offset, TopicIdPartition};

impl Admin {
    /// Appends batches that have their offsets already to a partition that ends at `expected_end`. Done when all in-sync
    /// replicas have them. The leader leaves out what it has, so trying again is safe.
    pub async fn import(
        &self,
        topic: &str,
        partition: i32,
        batches: Bytes,
        expected_end: Offset,
    ) -> Result<Produced, Error> {
        let topic_id = self.cluster.topic(topic).await?.topic_id;
        let deadline = Instant::now() + self.cluster.deadline;
        let mut retry = Retry::until(deadline);
        loop {
            let view = self.cluster.view();
            let cause = match view.leader(topic, partition) {
                None => format!("partition {partition} has no leader"),
                Some(leader) => {
                    let within = deadline.saturating_duration_since(Instant::now());
                    let request = ImportRequest {
                        partition: TopicIdPartition { topic_id, partition },
                        expected_end,
                        timeout_ms: u32::try_from(within.as_millis()).unwrap_or(u32::MAX),
                    };
                    let asked = self.cluster.peers.call::<_, ImportReply>(
                        &leader.address,
                        Kind::ClientImport,
                        &request,
                        batches.clone(),
                        within,
                    );
                    match asked.await {
                        Ok((ImportReply { result: Ok(produced) }, _)) => return Ok(produced),
                        Ok((ImportReply { result: Err(error) }, _)) if is_retriable(error.code) => {
                            self.cluster.learn_leader(topic, partition, &error);
                            Error::from(error).to_string()
                        }
                        Ok((ImportReply { result: Err(error) }, _)) => return Err(error.into()),
                        Err(error) => cause(&error),
                    }
                }
            };
            if !retry.pause().await {
                let within = self.cluster.deadline;
                return Err(Error::Deadline { what: "importing", within, cause });
            }
            // If nobody can be asked, the pause has been all that could be done.
            let _ = timeout_at(deadline, self.cluster.refresh(&view)).await;
        }
    }

    /// Reads the replica that one broker has, leader or not; the batches are there if they were asked for.
    pub async fn read_replica(
        &self,
        node: NodeId,
        request: ReadReplicaRequest,
    ) -> Result<(ReplicaRange, Bytes), Error> {
        let deadline = Instant::now() + self.cluster.deadline;
        let view = self.cluster.view();
        let broker = view.brokers.get(&node);
        let broker =
            broker.ok_or_else(|| Error::Protocol(format!("no broker has the id {node}")))?;
        let asked = self.cluster.peers.call::<_, ReadReplicaReply>(
            &broker.endpoints.client,
            Kind::ClientReadReplica,
            &request,
            Bytes::new(),
            deadline.saturating_duration_since(Instant::now()),
        );
        let (reply, bytes) = asked.await.map_err(|error| Error::Unreachable {
            tried: vec![broker.endpoints.client.clone()],
            cause: cause(&error),
        })?;
        Ok((reply.result?, bytes))
    }
}
