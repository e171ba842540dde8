//! Managing topics, and seeing how the cluster is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::error::cause;
use super::metadata::Cluster;
use super::retry::{Retry, is_retriable};
use super::{ClusterView, Error};
use crate::controller::{
    ConfigChange, ConfigOperation, ControllerCall, ControllerReply, ControllerRequest,
    CreatableTopic, CreatedTopic, MorePartitions, Reassignment, Refusal, TopicSelector,
};
use crate::metadata::Explanation;
use crate::net;
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    ConfigView, DescribeConfigsRequest, ExplainRequest, Kind, ListedOffset, OffsetQuery,
    QuorumStatus, QuorumStatusRequest, TopicView, WireError,
};
use crate::types::{ConfigResource, HostPort, NodeId, Offset, TopicId, TopicIdPartition};

/// How long a node may take over one request: it answers once every live broker serves the result.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A topic to create. What is not said takes the cluster's defaults.
///
/// ```
/// use kontiki::client::NewTopic;
///
/// let topic = NewTopic::new("orders").partitions(12).replication_factor(3).config("retention.ms", "-1");
/// assert_eq!(topic.name, "orders");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    pub name: String,
    pub partitions: Option<i32>,
    pub replication_factor: Option<i16>,
    /// Partition to replicas, the preferred leader first; instead of the two above.
    pub assignments: BTreeMap<i32, Vec<NodeId>>,
    pub configs: Vec<(String, String)>,
}

impl NewTopic {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            partitions: None,
            replication_factor: None,
            assignments: BTreeMap::new(),
            configs: Vec::new(),
        }
    }

    #[must_use]
    pub fn partitions(mut self, count: i32) -> Self {
        self.partitions = Some(count);
        self
    }

    #[must_use]
    pub fn replication_factor(mut self, factor: i16) -> Self {
        self.replication_factor = Some(factor);
        self
    }

    #[must_use]
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.configs.push((key.into(), value.into()));
        self
    }
}

/// Changes and questions. What was answered is visible on every live broker.
#[derive(Debug)]
pub struct Admin {
    pub(super) cluster: Arc<Cluster>,
}

impl Admin {
    pub(super) fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster }
    }

    /// Brokers and all topics, as of now.
    pub async fn describe_cluster(&self) -> Result<ClusterView, Error> {
        Ok(self.cluster.fetch(None).await?.into())
    }

    /// One topic, as of now.
    pub async fn describe_topic(&self, name: &str) -> Result<TopicView, Error> {
        let mut reply = self.cluster.fetch(Some(vec![name.to_owned()])).await?;
        match reply.topics.pop() {
            Some(topic) => Ok(topic),
            None => Err(self.cluster.unknown_topic(name).await),
        }
    }

    pub async fn create_topic(&self, topic: NewTopic) -> Result<CreatedTopic, Error> {
        self.create(topic, false).await
    }

    /// What [`Admin::create_topic`] would do, without doing it.
    pub async fn check_topic(&self, topic: NewTopic) -> Result<CreatedTopic, Error> {
        self.create(topic, true).await
    }

    async fn create(&self, topic: NewTopic, validate_only: bool) -> Result<CreatedTopic, Error> {
        let creatable = CreatableTopic {
            name: topic.name.clone(),
            // The node that takes the request chooses it.
            topic_id: TopicId::ZERO,
            partition_count: topic.partitions.unwrap_or(-1),
            replication_factor: topic.replication_factor.unwrap_or(-1),
            assignments: topic.assignments,
            configs: topic.configs.into_iter().map(|(key, value)| (key, Some(value))).collect(),
        };
        let topics = vec![creatable];
        let answer = self.submit(ControllerRequest::CreateTopics { topics, validate_only }).await?;
        let ControllerReply::CreateTopics { results, .. } = answer.reply else {
            return Err(unexpected());
        };
        match only(results)? {
            // An attempt whose answer was lost may have been ours.
            Err(refusal)
                if refusal.code == ErrorCode::TopicAlreadyExists && answer.is_uncertain =>
            {
                let view = self.describe_topic(&topic.name).await?;
                let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
                let replicas = view.partitions.first().map_or(0, |p| p.replicas.len());
                Ok(CreatedTopic {
                    name: topic.name,
                    topic_id: view.topic_id,
                    partition_count: count(view.partitions.len()),
                    replication_factor: i16::try_from(replicas).unwrap_or(i16::MAX),
                })
            }
            result => Ok(result?),
        }
    }

    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let topics = vec![TopicSelector::Name(name.to_owned())];
        let answer = self.submit(ControllerRequest::DeleteTopics { topics }).await?;
        let ControllerReply::DeleteTopics { results, .. } = answer.reply else {
            return Err(unexpected());
        };
        match only(results)? {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == ErrorCode::UnknownTopicOrPartition => {
                if answer.is_uncertain {
                    return Ok(());
                }
                Err(self.cluster.unknown_topic(name).await)
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Raises the number of a topic's partitions; only checks it when `validate_only`.
    pub async fn create_partitions(
        &self,
        name: &str,
        count: i32,
        validate_only: bool,
    ) -> Result<(), Error> {
        let topics = vec![MorePartitions { name: name.to_owned(), count, assignments: None }];
        let request = ControllerRequest::CreatePartitions { topics, validate_only };
        let answer = self.submit(request).await?;
        let ControllerReply::CreatePartitions { results, .. } = answer.reply else {
            return Err(unexpected());
        };
        match only(results)? {
            Err(refusal) if refusal.code == ErrorCode::UnknownTopicOrPartition => {
                Err(self.cluster.unknown_topic(name).await)
            }
            // An attempt whose answer was lost may have been ours.
            Err(refusal) if refusal.code == ErrorCode::InvalidPartitions && answer.is_uncertain => {
                let view = self.describe_topic(name).await?;
                if i32::try_from(view.partitions.len()) == Ok(count) {
                    Ok(())
                } else {
                    Err(refusal.into())
                }
            }
            result => Ok(result?),
        }
    }

    /// Where partitions begin, end, or were at a time.
    pub async fn list_offsets(
        &self,
        topic: &str,
        partitions: &[i32],
        query: OffsetQuery,
    ) -> Result<BTreeMap<i32, ListedOffset>, Error> {
        self.cluster.list_offsets(topic, partitions, query).await
    }

    /// Deletes the records before the offset of each partition (-1: all that is committed). Returns where they start now,
    /// at every live replica.
    pub async fn delete_records(
        &self,
        topic: &str,
        offsets: &BTreeMap<i32, Offset>,
    ) -> Result<BTreeMap<i32, Offset>, Error> {
        self.cluster.delete_records(topic, offsets).await
    }

    /// Effective configs, defaults included.
    pub async fn describe_configs(
        &self,
        resource: ConfigResource,
    ) -> Result<Vec<ConfigView>, Error> {
        let question = DescribeConfigsRequest { resource };
        let answer: Result<Vec<ConfigView>, Refusal> = match &question.resource {
            // What a broker was started with, only it knows.
            ConfigResource::Broker(id) => {
                let brokers = self.cluster.fetch(Some(Vec::new())).await?.brokers;
                let broker = brokers.into_iter().find(|broker| broker.node_id == *id);
                let broker = broker.ok_or_else(|| {
                    Refusal::new(ErrorCode::InvalidRequest, format!("there is no broker {id}"))
                })?;
                self.ask_at(&broker.endpoints.client, Kind::ClientDescribeConfigs, &question)
                    .await?
            }
            ConfigResource::Topic(_) | ConfigResource::Cluster => {
                self.cluster.ask_any(Kind::ClientDescribeConfigs, question.clone()).await?
            }
        };
        match (answer, question.resource) {
            (Err(refusal), ConfigResource::Topic(name))
                if refusal.code == ErrorCode::UnknownTopicOrPartition =>
            {
                Err(self.cluster.unknown_topic(&name).await)
            }
            (answer, _) => Ok(answer?),
        }
    }

    /// Changes configs of one resource, all or none; only checks them when `validate_only`.
    pub async fn alter_configs(
        &self,
        resource: ConfigResource,
        operations: Vec<(String, ConfigOperation)>,
        validate_only: bool,
    ) -> Result<(), Error> {
        let changes = vec![ConfigChange { resource, operations }];
        let answer =
            self.submit(ControllerRequest::AlterConfigs { changes, validate_only }).await?;
        let ControllerReply::AlterConfigs { results, .. } = answer.reply else {
            return Err(unexpected());
        };
        Ok(only(results)??)
    }

    /// Returns when an active controller has confirmed with its quorum that it is one.
    pub async fn check_quorum(&self) -> Result<(), Error> {
        // Refusals and empty answers too are given only by a controller that still leads.
        let nothing = ControllerRequest::AlterConfigs { changes: Vec::new(), validate_only: true };
        self.submit(nothing).await.map(|_| ())
    }

    /// The quorum as the active controller sees it, or as any node does when there is none.
    pub async fn quorum_status(&self) -> Result<QuorumStatus, Error> {
        let status: QuorumStatus =
            self.cluster.ask_any(Kind::ClientQuorumStatus, QuorumStatusRequest).await?;
        let leader = status.leader_id.filter(|leader| *leader != status.node_id);
        if let Some(leader) = leader
            && let Ok(reply) = self.cluster.fetch(Some(Vec::new())).await
            && let Some(broker) = reply.brokers.iter().find(|broker| broker.node_id == leader)
            && let Ok(better) = self
                .ask_at(&broker.endpoints.client, Kind::ClientQuorumStatus, &QuorumStatusRequest)
                .await
        {
            return Ok(better);
        }
        Ok(status)
    }

    /// Moves every leadership away from a broker and keeps new ones away, until it registers again.
    pub async fn drain(&self, node_id: NodeId) -> Result<(), Error> {
        match self.submit(ControllerRequest::Drain { node_id }).await?.reply {
            ControllerReply::Drain { .. } => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Why a partition is as it is; `None` when the topic has no such partition.
    pub async fn explain(&self, topic: &str, partition: i32) -> Result<Option<Explanation>, Error> {
        self.describe_topic(topic).await?;
        let request = ExplainRequest { topic: topic.to_owned(), partition };
        self.cluster.ask_any(Kind::ClientExplain, request).await
    }

    /// Gives partitions of a topic other replicas, or cancels what is under way. Returns when it is under way.
    pub async fn reassign(
        &self,
        topic: &str,
        moves: Vec<(i32, Option<Vec<NodeId>>)>,
    ) -> Result<(), Error> {
        let topic_id = self.describe_topic(topic).await?.topic_id;
        let partitions = moves.into_iter().map(|(partition, replicas)| Reassignment {
            partition: TopicIdPartition { topic_id, partition },
            replicas,
        });
        let request = ControllerRequest::Reassign { partitions: partitions.collect() };
        match self.submit(request).await?.reply {
            ControllerReply::Reassign { results, .. } => {
                Ok(results.into_iter().collect::<Result<(), _>>()?)
            }
            _ => Err(unexpected()),
        }
    }

    /// Adds or removes a voter, or moves the active controller; `request` says which. Returns when it is done, a
    /// transfer when it is under way.
    pub async fn change_quorum(&self, request: ControllerRequest) -> Result<(), Error> {
        match self.submit(request).await?.reply {
            ControllerReply::Done => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Elects the first replicas of a topic's partitions, or of all topics. Returns how many leaders moved, and why
    /// others could not.
    pub async fn elect_preferred(
        &self,
        topic: Option<&str>,
    ) -> Result<(usize, Vec<Refusal>), Error> {
        let partitions = match topic {
            None => None,
            Some(name) => {
                let topic = self.describe_topic(name).await?;
                let id = |partition| TopicIdPartition { topic_id: topic.topic_id, partition };
                Some(topic.partitions.iter().map(|view| id(view.partition)).collect())
            }
        };
        match self.submit(ControllerRequest::ElectLeaders { partitions }).await?.reply {
            ControllerReply::ElectLeaders { results, .. } => {
                let moved = results.iter().filter(|(_, result)| result.is_ok()).count();
                let refusals = results.into_iter().filter_map(|(_, result)| result.err());
                let needed = |refusal: &Refusal| refusal.code != ErrorCode::ElectionNotNeeded;
                Ok((moved, refusals.filter(needed).collect()))
            }
            _ => Err(unexpected()),
        }
    }

    async fn ask_at<Q: serde::Serialize, R: serde::de::DeserializeOwned>(
        &self,
        address: &HostPort,
        kind: Kind,
        question: &Q,
    ) -> Result<R, Error> {
        let asked = self.cluster.peers.call(address, kind, question, Bytes::new(), ANSWER_MAX);
        let answer = asked.await.map_err(|error| Error::Unreachable {
            tried: vec![address.clone()],
            cause: cause(&error),
        })?;
        Ok(answer.0)
    }

    /// Asks one node after the other until one has an answer from the active controller.
    async fn submit(&self, request: ControllerRequest) -> Result<Answer, Error> {
        // Who asks, the node that takes the call knows better than we do.
        let call = ControllerCall { principal: String::new(), request };
        let within = self.cluster.deadline;
        let deadline = Instant::now() + within;
        let mut retry = Retry::until(deadline);
        let mut is_uncertain = false;
        let mut is_there = false;
        loop {
            let tried = self.cluster.candidates();
            let mut last_cause = "no node to ask".to_owned();
            for address in &tried {
                let left = deadline.saturating_duration_since(Instant::now()).min(ANSWER_MAX);
                let asked = self.cluster.peers.call::<_, Result<ControllerReply, Refusal>>(
                    address,
                    Kind::Controller,
                    &call,
                    Bytes::new(),
                    left,
                );
                match asked.await {
                    Ok((Ok(reply), _)) => return Ok(Answer { reply, is_uncertain }),
                    Ok((Err(refusal), _)) if is_retriable(refusal.code) => {
                        is_there = true;
                        is_uncertain |= refusal.code != ErrorCode::NotController;
                        last_cause = Error::Refused(refusal).to_string();
                    }
                    Ok((Err(refusal), _)) => return Err(refusal.into()),
                    Err(error) => {
                        let refused = matches!(
                            error,
                            net::Error::Remote(WireError::NotReady(_) | WireError::Unexpected)
                        );
                        is_there |= matches!(error, net::Error::Remote(_));
                        is_uncertain |= !error.certainly_not_delivered() && !refused;
                        last_cause = cause(&error);
                    }
                }
            }
            let is_there = is_there || is_uncertain || !self.cluster.view().brokers.is_empty();
            if !is_there {
                return Err(Error::Unreachable { tried, cause: last_cause });
            }
            if !retry.pause().await {
                return Err(Error::Deadline { what: "the request", within, cause: last_cause });
            }
        }
    }
}

/// What the active controller said.
struct Answer {
    reply: ControllerReply,
    /// An earlier attempt may have been carried out.
    is_uncertain: bool,
}

fn unexpected() -> Error {
    Error::Protocol("the reply to another request".to_owned())
}

fn only<T>(mut results: Vec<T>) -> Result<T, Error> {
    match (results.pop(), results.pop()) {
        (Some(result), None) => Ok(result),
        _ => Err(Error::Protocol("not one result for one item".to_owned())),
    }
}
