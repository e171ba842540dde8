//! Asking leaders where a partition begins, ends, or was at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::Error;
use super::error::cause;
use super::metadata::{Cluster, Leader};
use super::retry::{Retry, is_retriable};
use crate::protocol::native::{
    Kind, ListOffsetsReply, ListOffsetsRequest, ListedOffset, OffsetQuery,
};

/// A leader that is silent for so long is asked again, if it still is one.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl Cluster {
    /// Asks about partitions of a topic, each at its leader, until all have answered.
    pub(super) async fn list_offsets(
        &self,
        topic: &str,
        partitions: &[i32],
        query: OffsetQuery,
    ) -> Result<BTreeMap<i32, ListedOffset>, Error> {
        self.topic(topic).await?;
        let deadline = Instant::now() + self.deadline;
        let mut retry = Retry::until(deadline);
        let mut listed = BTreeMap::new();
        loop {
            let view = self.view();
            let mut last_cause = None;
            let mut by_leader: BTreeMap<_, Vec<Leader>> = BTreeMap::new();
            for &partition in partitions.iter().filter(|p| !listed.contains_key(*p)) {
                match view.leader(topic, partition) {
                    Some(leader) => {
                        by_leader.entry(leader.address.clone()).or_default().push(leader);
                    }
                    None => last_cause = Some(format!("partition {partition} has no leader")),
                }
            }
            for leaders in by_leader.into_values() {
                match self.list_at(topic, &leaders, query, deadline).await {
                    Ok(results) => {
                        for (partition, result) in results {
                            match result {
                                Ok(offset) => drop(listed.insert(partition, offset)),
                                Err(cause) => last_cause = Some(cause),
                            }
                        }
                    }
                    Err(Failed::Final(error)) => return Err(error),
                    Err(Failed::Again(cause)) => last_cause = Some(cause),
                }
            }
            let Some(cause) = last_cause else { return Ok(listed) };
            if !retry.pause().await {
                let within = self.deadline;
                return Err(Error::Deadline { what: "looking up offsets", within, cause });
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
    async fn list_at(
        &self,
        topic: &str,
        leaders: &[Leader],
        query: OffsetQuery,
        deadline: Instant,
    ) -> Result<Vec<(i32, Result<ListedOffset, String>)>, Failed> {
        let Some(first) = leaders.first() else { return Ok(Vec::new()) };
        let entries = leaders.iter().map(|leader| {
            let partition = &leader.partition;
            (leader.topic_id, partition.partition, query)
        });
        let request = ListOffsetsRequest { entries: entries.collect() };
        let within = deadline.saturating_duration_since(Instant::now()).min(ANSWER_MAX);
        let asked = self.peers.call::<_, ListOffsetsReply>(
            &first.address,
            Kind::ClientListOffsets,
            &request,
            Bytes::new(),
            within,
        );
        let (reply, _) = asked.await.map_err(|error| Failed::Again(cause(&error)))?;
        if reply.results.len() != leaders.len() {
            return Err(Failed::Final(Error::Protocol("not one offset a partition".to_owned())));
        }
        let mut results = Vec::with_capacity(leaders.len());
        for (leader, result) in leaders.iter().zip(reply.results) {
            let partition = leader.partition.partition;
            match result {
                Ok(offset) => results.push((partition, Ok(offset))),
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
