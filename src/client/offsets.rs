//! Asking the leaders of partitions: where each begins, ends, or was at a time; to delete what is before an offset.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::Error;
use super::error::cause;
use super::metadata::{Cluster, Leader};
use super::retry::{Retry, is_retriable};
use crate::protocol::native::{
    DeleteRecordsRequest, Kind, ListOffsetsRequest, ListedOffset, OffsetQuery, PartitionError,
};
use crate::types::Offset;

/// A leader that is silent for so long is asked again, if it still is one.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a leader waits for other replicas; less than that.
const REPLICAS_WAIT_MS: u32 = 4_000;

/// A question about partitions to their leaders, and the name of what is being done.
struct Question<F> {
    what: &'static str,
    kind: Kind,
    request: F,
}

/// Replies have one result for each partition.
#[derive(Debug, Deserialize)]
struct Results<R> {
    results: Vec<Result<R, PartitionError>>,
}

impl Cluster {
    pub(super) async fn list_offsets(
        &self,
        topic: &str,
        partitions: &[i32],
        query: OffsetQuery,
    ) -> Result<BTreeMap<i32, ListedOffset>, Error> {
        let request = |leaders: &[Leader]| ListOffsetsRequest {
            entries: leaders
                .iter()
                .map(|it| (it.topic_id, it.partition.partition, query))
                .collect(),
        };
        let (what, kind) = ("looking up offsets", Kind::ClientListOffsets);
        self.ask_leaders(topic, partitions, &Question { what, kind, request }).await
    }

    /// Deletes what is before the offset of each partition; answers with where they start then.
    pub(super) async fn delete_records(
        &self,
        topic: &str,
        offsets: &BTreeMap<i32, Offset>,
    ) -> Result<BTreeMap<i32, Offset>, Error> {
        let entry = |leader: &Leader| {
            let partition = leader.partition.partition;
            (leader.topic_id, partition, offsets.get(&partition).copied().unwrap_or(0))
        };
        let request = |leaders: &[Leader]| DeleteRecordsRequest {
            timeout_ms: REPLICAS_WAIT_MS,
            entries: leaders.iter().map(entry).collect(),
        };
        let (what, kind) = ("deleting records", Kind::ClientDeleteRecords);
        let partitions: Vec<i32> = offsets.keys().copied().collect();
        self.ask_leaders(topic, &partitions, &Question { what, kind, request }).await
    }

    /// Asks about partitions of a topic, each at its leader, until all have answered.
    async fn ask_leaders<Q: Serialize, R: DeserializeOwned>(
        &self,
        topic: &str,
        partitions: &[i32],
        question: &Question<impl Fn(&[Leader]) -> Q>,
    ) -> Result<BTreeMap<i32, R>, Error> {
        self.topic(topic).await?;
        let deadline = Instant::now() + self.deadline;
        let mut retry = Retry::until(deadline);
        let mut answered = BTreeMap::new();
        loop {
            let view = self.view();
            let mut last_cause = None;
            let mut by_leader: BTreeMap<_, Vec<Leader>> = BTreeMap::new();
            for &partition in partitions.iter().filter(|p| !answered.contains_key(*p)) {
                match view.leader(topic, partition) {
                    Some(leader) => {
                        by_leader.entry(leader.address.clone()).or_default().push(leader);
                    }
                    None => last_cause = Some(format!("partition {partition} has no leader")),
                }
            }
            for leaders in by_leader.into_values() {
                match self.ask_leader(topic, &leaders, question, deadline).await {
                    Ok(results) => {
                        for (partition, result) in results {
                            match result {
                                Ok(answer) => drop(answered.insert(partition, answer)),
                                Err(cause) => last_cause = Some(cause),
                            }
                        }
                    }
                    Err(Failed::Final(error)) => return Err(error),
                    Err(Failed::Again(cause)) => last_cause = Some(cause),
                }
            }
            let Some(cause) = last_cause else { return Ok(answered) };
            if !retry.pause().await {
                let within = self.deadline;
                return Err(Error::Deadline { what: question.what, within, cause });
            }
            let refreshed = timeout_at(deadline, self.refresh(&view)).await;
            if let Ok(Ok(view)) = refreshed
                && !view.topics.contains_key(topic)
            {
                return Err(self.unknown_topic(topic).await);
            }
        }
    }

    /// Asks one leader about the partitions that it leads.
    async fn ask_leader<Q: Serialize, R: DeserializeOwned>(
        &self,
        topic: &str,
        leaders: &[Leader],
        question: &Question<impl Fn(&[Leader]) -> Q>,
        deadline: Instant,
    ) -> Result<Vec<(i32, Result<R, String>)>, Failed> {
        let Some(first) = leaders.first() else { return Ok(Vec::new()) };
        let request = (question.request)(leaders);
        let within = deadline.saturating_duration_since(Instant::now()).min(ANSWER_MAX);
        let asked = self.peers.call::<_, Results<R>>(
            &first.address,
            question.kind,
            &request,
            Bytes::new(),
            within,
        );
        let (reply, _) = asked.await.map_err(|error| Failed::Again(cause(&error)))?;
        if reply.results.len() != leaders.len() {
            return Err(Failed::Final(Error::Protocol("not one answer a partition".to_owned())));
        }
        let mut results = Vec::with_capacity(leaders.len());
        for (leader, result) in leaders.iter().zip(reply.results) {
            let partition = leader.partition.partition;
            match result {
                Ok(answer) => results.push((partition, Ok(answer))),
                Err(error) if is_retriable(error.code) => {
                    self.learn_leader(topic, partition, &error);
                    results.push((partition, Err(Error::from(error).to_string())));
                }
                Err(error) => return Err(Failed::Final(error.into())),
            }
        }
        Ok(results)
    }
}

enum Failed {
    Again(String),
    Final(Error),
}
