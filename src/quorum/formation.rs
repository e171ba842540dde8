//! How a cluster forms, and how a node joins one.
//!
//! All initial voters are started with the same list of each other. The one with the lowest node id asks the others for
//! their directory ids until it has all, mints the cluster id, writes the cluster down, tells the others, and
//! initialises Raft once a majority has written it down too. Whoever missed that asks, and is told. A node that finds
//! a cluster which it is not a voter of joins it as a learner (`members`).
//!
//! Invariant: only the lowest node decides, only when every other has said that it belongs to no cluster, and each step
//! is durable before the next: after a crash at any point the same calls end in the same cluster. A disk that is not
//! in the list of voters never becomes one by this, whatever its node id is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use tracing::{debug, info};

use super::raft::Member;
use super::{Error, Inner};
use crate::net;
use crate::protocol::native::{
    FormReply, FormRequest, FormedCluster, FormedVoter, JoinReply, JoinRequest, Kind, Refused,
    WireError,
};
use crate::types::{HostPort, NodeId, random};

const RETRY: Duration = Duration::from_millis(15);
const CALL_TIMEOUT: Duration = Duration::from_secs(1);

impl Inner {
    pub(super) async fn form_or_join(&self, seeds: &[(NodeId, HostPort)]) -> Result<(), Error> {
        let seeds = self.checked_seeds(seeds)?;
        *self.seeds.lock() = seeds.clone();
        while self.directory.cluster().is_none() {
            self.form(&seeds).await?;
            if self.directory.cluster().is_none() {
                tokio::time::sleep(RETRY).await;
            }
        }
        let cluster = self.directory.cluster().expect("known since the loop above");
        self.identity.set_cluster_id(cluster.cluster_id);
        let is_voter = cluster.voters.iter().any(|voter| self.is_me(voter));
        if is_voter && self.decides(&cluster.voters) {
            self.initialize(&cluster).await?;
        }
        let mut asked = false;
        loop {
            match self.membership_of_me() {
                Some(member) if member.peer == self.peer || (asked && is_voter) => return Ok(()),
                // A voter waits to be called by the one that initialises; only a changed address makes it ask.
                None if is_voter => {}
                Some(_) | None => {
                    self.join(&cluster, &seeds).await?;
                    asked = true;
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    fn checked_seeds(
        &self,
        seeds: &[(NodeId, HostPort)],
    ) -> Result<BTreeMap<NodeId, HostPort>, Error> {
        let me = self.identity.node_id;
        let checked: BTreeMap<_, _> = seeds.iter().cloned().collect();
        if checked.len() != seeds.len() {
            return Err(Error::Formation(
                "the list of peers names a node id twice; give each node its own".to_owned(),
            ));
        }
        if checked.is_empty() {
            return Ok(BTreeMap::from([(me, self.peer.clone())]));
        }
        Ok(checked)
    }

    fn is_me(&self, voter: &FormedVoter) -> bool {
        voter.node_id == self.identity.node_id && voter.directory_id == self.identity.directory_id
    }

    fn decides(&self, voters: &[FormedVoter]) -> bool {
        voters.iter().map(|voter| voter.node_id).min() == Some(self.identity.node_id)
    }

    fn membership_of_me(&self) -> Option<Member> {
        let server = self.raft.server_metrics();
        let server = server.borrow_watched();
        server.membership_config.get_node(&self.me).cloned()
    }

    /// One round of asking everybody. Writes the cluster down if one is found or may be decided.
    async fn form(&self, seeds: &BTreeMap<NodeId, HostPort>) -> Result<(), Error> {
        let me = self.identity.node_id;
        let others = seeds.iter().filter(|(node_id, _)| **node_id != me);
        let mut voters = vec![FormedVoter {
            node_id: me,
            directory_id: self.identity.directory_id,
            peer: self.peer.clone(),
        }];
        let mut missing = false;
        for (node_id, address) in others {
            match self.ask_to_form(*node_id, address, None).await? {
                None => missing = true,
                Some(FormReply { cluster: Some(cluster), .. }) => {
                    return self.adopt(&cluster);
                }
                Some(FormReply { directory_id, .. }) => {
                    let peer = address.clone();
                    voters.push(FormedVoter { node_id: *node_id, directory_id, peer });
                }
            }
        }
        voters.sort_by_key(|voter| voter.node_id);
        let is_decider = seeds.contains_key(&me) && self.decides(&voters) && !missing;
        // Somebody may have told this node meanwhile.
        if !is_decider || self.directory.cluster().is_some() {
            return Ok(());
        }
        let cluster = FormedCluster { cluster_id: random::uuid(), voters };
        info!(cluster_id = %cluster.cluster_id, "forming a cluster");
        self.adopt(&cluster)
    }

    fn adopt(&self, cluster: &FormedCluster) -> Result<(), Error> {
        // On disk first: from then on this node answers for that cluster.
        self.directory.set_cluster(cluster)?;
        self.identity.set_cluster_id(cluster.cluster_id);
        Ok(())
    }

    /// `None` when nobody answers yet.
    async fn ask_to_form(
        &self,
        node_id: NodeId,
        address: &HostPort,
        decided: Option<FormedCluster>,
    ) -> Result<Option<FormReply>, Error> {
        let request = FormRequest {
            node_id: self.identity.node_id,
            directory_id: self.identity.directory_id,
            peer: self.peer.clone(),
            decided,
        };
        let asked = self.transport.call::<_, FormReply>(
            address,
            Kind::Form,
            &request,
            Bytes::new(),
            CALL_TIMEOUT,
        );
        match asked.await {
            Ok(reply) if reply.node_id != node_id => Err(Error::Formation(format!(
                "the list of peers says that node {node_id} is at {address}, but node {} answers there; correct the \
                 list",
                reply.node_id
            ))),
            Ok(reply) => Ok(Some(reply)),
            Err(error) => self.is_final(address, error).map(|()| None),
        }
    }

    /// Most failures pass: the other node is starting. Some need an operator.
    fn is_final(&self, address: &HostPort, error: net::Error) -> Result<(), Error> {
        match error {
            net::Error::Refused { refused: Refused::OtherCluster { theirs }, .. } => {
                Err(Error::Formation(format!(
                    "the node at {address} belongs to cluster {theirs}, this one to another; correct the list of \
                     peers, or give this node an empty data directory"
                )))
            }
            net::Error::Refused { refused: Refused::DuplicateNodeId(node_id), .. } => {
                Err(Error::Formation(format!(
                    "another node, at {address}, has the id {node_id} too; give this node its own id"
                )))
            }
            net::Error::Remote(WireError::Failed(reason)) => Err(Error::Formation(reason)),
            other => {
                debug!(%address, error = %other, "not answered yet");
                Ok(())
            }
        }
    }

    /// Answers [`FormRequest`]. May be asked before this node knows its own list of peers.
    pub(super) fn on_form(&self, request: &FormRequest) -> Result<FormReply, WireError> {
        let failed = |error: Error| WireError::Failed(error.to_string());
        if let (None, Some(decided)) = (self.directory.cluster(), &request.decided) {
            let expected: BTreeSet<NodeId> = self.seeds.lock().keys().copied().collect();
            let named: BTreeSet<NodeId> = decided.voters.iter().map(|v| v.node_id).collect();
            if !expected.is_empty() && expected != named {
                return Err(WireError::Failed(format!(
                    "node {} was started with the peers {named:?} and node {} with {expected:?}; start all initial \
                     nodes with the same list",
                    request.node_id, self.identity.node_id
                )));
            }
            if decided.voters.iter().any(|voter| self.is_me(voter)) {
                self.adopt(decided).map_err(failed)?;
            }
        }
        Ok(FormReply {
            node_id: self.identity.node_id,
            directory_id: self.identity.directory_id,
            cluster: self.directory.cluster(),
        })
    }

    /// Tells the other voters, and initialises Raft unless that was done before.
    async fn initialize(&self, cluster: &FormedCluster) -> Result<(), Error> {
        let majority = cluster.voters.len() / 2 + 1;
        let mut told = BTreeSet::from([self.identity.node_id]);
        while !self.is_initialized().await? {
            for voter in &cluster.voters {
                if told.contains(&voter.node_id) {
                    continue;
                }
                let decided = Some(cluster.clone());
                let reply = self.ask_to_form(voter.node_id, &voter.peer, decided).await?;
                match reply.and_then(|reply| reply.cluster) {
                    Some(theirs) if theirs.cluster_id == cluster.cluster_id => {
                        told.insert(voter.node_id);
                    }
                    Some(theirs) => {
                        return Err(Error::Formation(format!(
                            "node {} belongs to cluster {} already; give it an empty data directory",
                            voter.node_id, theirs.cluster_id
                        )));
                    }
                    None => {}
                }
            }
            if told.len() >= majority {
                let members: BTreeMap<_, _> = cluster
                    .voters
                    .iter()
                    .map(|voter| {
                        let member = Member { node_id: voter.node_id, peer: voter.peer.clone() };
                        (voter.directory_id.raft_node_id(), member)
                    })
                    .collect();
                // Refused only when it was done before, by a vote or an entry that arrived meanwhile.
                if let Err(error) = self.raft.initialize(members).await {
                    debug!(%error, "Raft was initialised before");
                    return Ok(());
                }
            } else {
                tokio::time::sleep(RETRY).await;
            }
        }
        Ok(())
    }

    async fn is_initialized(&self) -> Result<bool, Error> {
        self.raft.is_initialized().await.map_err(|_| Error::ShutDown)
    }

    /// One round of asking for membership, wherever the active controller may be.
    async fn join(
        &self,
        cluster: &FormedCluster,
        seeds: &BTreeMap<NodeId, HostPort>,
    ) -> Result<(), Error> {
        let request = JoinRequest {
            node_id: self.identity.node_id,
            directory_id: self.identity.directory_id,
            peer: self.peer.clone(),
        };
        let voters = cluster.voters.iter().map(|voter| &voter.peer);
        let mut addresses: Vec<HostPort> = voters
            .chain(seeds.values())
            .filter(|address| **address != self.peer)
            .cloned()
            .collect();
        addresses.reverse();
        let mut asked = BTreeSet::new();
        while let Some(address) = addresses.pop() {
            if !asked.insert(address.clone()) {
                continue;
            }
            let reply = self.transport.call::<_, JoinReply>(
                &address,
                Kind::Join,
                &request,
                Bytes::new(),
                CALL_TIMEOUT,
            );
            match reply.await {
                Ok(JoinReply::Joined) => return Ok(()),
                Ok(JoinReply::NotLeader { leader }) => addresses.extend(leader),
                Ok(JoinReply::Refused { reason }) => return Err(Error::Formation(reason)),
                Err(net::Error::Remote(_)) => {}
                Err(error) => self.is_final(&address, error)?,
            }
        }
        Ok(())
    }
}
