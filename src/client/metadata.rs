//! What the client knows of the cluster, and how it learns more.
//!
//! A view is immutable and shared. It is refreshed when something that was learnt from it turns out wrong: callers name
//! the view they saw, so that many who fail at once ask once. Leader epochs never go back in it, whichever node answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::Error;
use super::error::cause;
use super::retry::Retry;
use crate::net::{self, Limits, Peers};
use crate::protocol::native::{
    BrokerView, Kind, MetadataReply, MetadataRequest, PartitionError, PartitionView, TopicView,
};
use crate::types::{ClusterId, HostPort, NodeId, TopicId, nearest, random};

/// The next node is asked as well when one has not answered within this.
const HEDGE_AFTER: Duration = Duration::from_millis(150);
/// How long a request may be out before it is asked whether its partition has moved.
const MOVED_CHECK: Duration = Duration::from_millis(300);
/// How long one round over all nodes may take.
const ROUND_MAX: Duration = Duration::from_secs(3);

/// The cluster as one of its nodes described it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// `None` before any node was asked.
    pub cluster_id: Option<ClusterId>,
    pub controller: Option<NodeId>,
    pub brokers: BTreeMap<NodeId, BrokerView>,
    /// By name.
    pub topics: BTreeMap<String, Arc<TopicView>>,
}

/// The leader of a partition, and what a request to it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) topic_id: TopicId,
    pub(super) address: HostPort,
    pub(super) partition: PartitionView,
}

/// Shared by everything that one client makes.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) peers: Peers,
    bootstrap: Vec<HostPort>,
    pub(super) deadline: Duration,
    view: ArcSwap<ClusterView>,
    /// Topics that refreshes ask for.
    wanted: Mutex<BTreeSet<String>>,
    refreshing: tokio::sync::Mutex<()>,
    /// Who answered last.
    preferred: Mutex<Option<HostPort>>,
}

impl ClusterView {
    /// The partition as this view has it.
    pub fn partition(&self, topic: &str, partition: i32) -> Option<&PartitionView> {
        self.topics.get(topic)?.partition(partition)
    }

    pub(super) fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        let topic = self.topics.get(topic)?;
        let partition = topic.partition(partition)?;
        let broker = self.brokers.get(&partition.leader)?;
        let address = broker.endpoints.client.clone();
        Some(Leader { topic_id: topic.topic_id, address, partition: partition.clone() })
    }
}

impl TopicView {
    fn partition(&self, partition: i32) -> Option<&PartitionView> {
        self.partitions.get(usize::try_from(partition).ok()?)
    }
}

impl Cluster {
    pub(super) fn new(bootstrap: Vec<HostPort>, deadline: Duration) -> Self {
        Self {
            peers: Peers::of_client(Limits::DEFAULT),
            bootstrap,
            deadline,
            view: ArcSwap::default(),
            wanted: Mutex::default(),
            refreshing: tokio::sync::Mutex::default(),
            preferred: Mutex::default(),
        }
    }

    pub(super) fn view(&self) -> Arc<ClusterView> {
        self.view.load_full()
    }

    /// A topic, from the view or from the cluster.
    pub(super) async fn topic(&self, name: &str) -> Result<Arc<TopicView>, Error> {
        let seen = self.view();
        if let Some(topic) = seen.topics.get(name) {
            return Ok(topic.clone());
        }
        self.wanted.lock().insert(name.to_owned());
        let view = self.refresh(&seen).await?;
        match view.topics.get(name) {
            Some(topic) => Ok(topic.clone()),
            // The refresh may have been somebody else's, who did not ask for this topic.
            None => match self.refresh(&view).await?.topics.get(name) {
                Some(topic) => Ok(topic.clone()),
                None => Err(self.unknown_topic(name).await),
            },
        }
    }

    /// The error for a topic that does not exist, with the nearest that does.
    pub(super) async fn unknown_topic(&self, name: &str) -> Error {
        self.wanted.lock().remove(name);
        let all = self.fetch(None).await.map(|reply| reply.topics).unwrap_or_default();
        let names = all.iter().map(|topic| topic.name.as_str());
        let nearest = nearest(name, names).map(str::to_owned);
        Error::UnknownTopic { name: name.to_owned(), nearest }
    }

    /// A view newer than `seen`.
    pub(super) async fn refresh(&self, seen: &Arc<ClusterView>) -> Result<Arc<ClusterView>, Error> {
        let _refreshing = self.refreshing.lock().await;
        let current = self.view();
        if !Arc::ptr_eq(&current, seen) {
            return Ok(current);
        }
        let wanted: Vec<String> = self.wanted.lock().iter().cloned().collect();
        let mut view = ClusterView::from(self.fetch(Some(wanted)).await?);
        for (name, topic) in &mut view.topics {
            if let Some(known) = current.topics.get(name) {
                keep_newer_leaders(topic, known);
            }
        }
        if view == *current {
            // Nothing new: this node may be cut off from the others. Somebody else is asked next time.
            *self.preferred.lock() = None;
        }
        let view = Arc::new(view);
        self.view.store(view.clone());
        Ok(view)
    }

    /// Uses what a refusal says about the leader. False when it says nothing new.
    pub(super) fn learn_leader(&self, topic: &str, partition: i32, error: &PartitionError) -> bool {
        let Some((leader, leader_epoch)) = error.leader else { return false };
        let current = self.view();
        let newer = current.brokers.contains_key(&leader)
            && current.partition(topic, partition).is_some_and(|p| p.leader_epoch < leader_epoch);
        if newer {
            let mut view = ClusterView::clone(&current);
            if let Some(topic) = view.topics.get_mut(topic)
                && let Ok(index) = usize::try_from(partition)
                && let Some(partition) = Arc::make_mut(topic).partitions.get_mut(index)
            {
                (partition.leader, partition.leader_epoch) = (leader, leader_epoch);
            }
            // A refresh that got in between knows more.
            self.view.compare_and_swap(&current, Arc::new(view));
        }
        newer
    }

    /// Completes when somebody else than `leader` leads the partition, so that a request to it will not be answered well,
    /// if at all. Asks every now and then, the first time [`MOVED_CHECK`] after `since`.
    pub(super) async fn moved(&self, topic: &str, leader: &Leader, since: Instant) {
        let mut next_check = since + MOVED_CHECK;
        loop {
            sleep_until(next_check).await;
            let seen = self.view();
            let (id, known) = (leader.partition.partition, &leader.partition);
            let view = match seen.partition(topic, id) {
                Some(now) if now.leader_epoch > known.leader_epoch => return,
                _ => self.refresh(&seen).await.unwrap_or(seen),
            };
            let now = view.partition(topic, id);
            if now.is_some_and(|now| now.leader_epoch > known.leader_epoch) {
                return;
            }
            next_check = Instant::now() + MOVED_CHECK;
        }
    }

    /// Metadata of these topics, or of all, from any node.
    pub(super) async fn fetch(&self, topics: Option<Vec<String>>) -> Result<MetadataReply, Error> {
        self.ask_any(Kind::ClientMetadata, MetadataRequest { topics }).await
    }

    /// A question that any node can answer and that may be asked twice. Nodes are asked one after the other, without
    /// waiting long for one that is silent, until the deadline.
    pub(super) async fn ask_any<Q, R>(&self, kind: Kind, question: Q) -> Result<R, Error>
    where
        Q: Serialize + Clone + Send + Sync + 'static,
        R: DeserializeOwned + Send + 'static,
    {
        let mut retry = Retry::until(Instant::now() + self.deadline);
        loop {
            let tried = self.candidates();
            match self.ask_each(&tried, kind, &question).await {
                Ok(answer) => return Ok(answer),
                Err(Failure { cause, answered }) => {
                    *self.preferred.lock() = None;
                    // A cluster that was never reached is most likely not there at all.
                    let exists = answered || !self.view().brokers.is_empty();
                    if !exists || !retry.pause().await {
                        return Err(Error::Unreachable { tried, cause });
                    }
                }
            }
        }
    }

    async fn ask_each<Q, R>(
        &self,
        addresses: &[HostPort],
        kind: Kind,
        question: &Q,
    ) -> Result<R, Failure>
    where
        Q: Serialize + Clone + Send + Sync + 'static,
        R: DeserializeOwned + Send + 'static,
    {
        let deadline = Instant::now() + ROUND_MAX;
        let mut left = addresses.iter();
        let mut asked: JoinSet<(HostPort, Result<R, net::Error>)> = JoinSet::new();
        let mut failure = Failure { cause: "no answer".to_owned(), answered: false };
        loop {
            if let Some(address) = left.next() {
                let (peers, address, question) =
                    (self.peers.clone(), address.clone(), question.clone());
                asked.spawn(async move {
                    let answer = peers.call(&address, kind, &question, Bytes::new(), ROUND_MAX);
                    let answer = answer.await.map(|(answer, _)| answer);
                    (address, answer)
                });
            }
            let answered = tokio::select! {
                answered = timeout_at(deadline, asked.join_next()) => answered,
                () = sleep(HEDGE_AFTER), if left.len() > 0 => continue,
            };
            match answered {
                Ok(Some(Ok((address, Ok(answer))))) => {
                    *self.preferred.lock() = Some(address);
                    return Ok(answer);
                }
                Ok(Some(Ok((_, Err(error))))) => {
                    failure.answered |= matches!(error, net::Error::Remote(_));
                    failure.cause = cause(&error);
                }
                Ok(Some(Err(_))) => {}
                Ok(None) if left.len() > 0 => {}
                Ok(None) | Err(_) => return Err(failure),
            }
        }
    }

    /// Whom to ask, best first: who answered last, then brokers, then the bootstrap addresses.
    pub(super) fn candidates(&self) -> Vec<HostPort> {
        let view = self.view();
        let preferred = self.preferred.lock().clone();
        let brokers = view.brokers.values().map(|broker| broker.endpoints.client.clone());
        let mut others: Vec<HostPort> = brokers.chain(self.bootstrap.iter().cloned()).collect();
        if preferred.is_none() && !others.is_empty() {
            let shift = usize::try_from(random::seed() & 0xff).expect("8 bits");
            let shift = shift % others.len();
            others.rotate_left(shift);
        }
        let mut candidates: Vec<HostPort> = Vec::new();
        for address in preferred.into_iter().chain(others) {
            if !candidates.contains(&address) {
                candidates.push(address);
            }
        }
        candidates
    }
}

impl From<MetadataReply> for ClusterView {
    fn from(reply: MetadataReply) -> Self {
        Self {
            cluster_id: Some(reply.cluster_id),
            controller: reply.controller,
            brokers: reply.brokers.into_iter().map(|broker| (broker.node_id, broker)).collect(),
            topics: (reply.topics.into_iter())
                .map(|topic| (topic.name.clone(), Arc::new(topic)))
                .collect(),
        }
    }
}

/// A round over all nodes without an answer.
struct Failure {
    cause: String,
    /// Somebody is there, but cannot answer yet.
    answered: bool,
}

/// Takes over partitions that `known` has in a later epoch: the answer came from a node that lags.
fn keep_newer_leaders(topic: &mut Arc<TopicView>, known: &TopicView) {
    if topic.topic_id != known.topic_id {
        return;
    }
    for (index, known) in known.partitions.iter().enumerate() {
        let lags = |p: &PartitionView| p.leader_epoch < known.leader_epoch;
        if topic.partitions.get(index).is_some_and(lags) {
            Arc::make_mut(topic).partitions[index] = known.clone();
        }
    }
}
