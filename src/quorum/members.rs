//! Who takes part in the quorum: nodes that join, voters that lost their disk, and voters that come and go on request.
//!
//! A wiped disk is a new Raft node (design D4). Under the node id of a voter that is gone it joins as a learner, and when it
//! has caught up it takes that voter's place; the old disk is no member from then on. Nothing has to be done by hand.
//!
//! Invariant: a node id that answers elsewhere is never given away, and a voter that was heard of lately is never
//! replaced. A change is made only when the majority that follows from it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::type_config::alias::StoredMembershipOf;
use openraft::{ChangeMembers, Instant as _};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::Inner;
use super::controller_loop::{Answering, ControllerLoop, Unanswered};
use super::raft::{Member, TypeConfig};
use super::transport::Transport;
use crate::controller::{ControllerReply, ControllerRequest, Refusal};
use crate::net::ProbeOutcome;
use crate::protocol::ErrorCode;
use crate::protocol::native::{JoinReply, JoinRequest, NodeHello, WireError};
use crate::types::{NodeId, RaftNodeId};

const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// A learner that is no more entries behind has caught up.
const LAG_MAX: u64 = 64;
/// A voter that was not heard of for so long may be replaced, and one that was heard of within it counts as there.
const SILENCE: Duration = Duration::from_secs(2);

type Change = ChangeMembers<RaftNodeId, Member>;

impl Inner {
    /// Answers [`JoinRequest`].
    pub(super) async fn on_join(
        &self,
        from: Option<&NodeHello>,
        request: JoinRequest,
    ) -> Result<JoinReply, WireError> {
        let raft_node_id = request.directory_id.raft_node_id();
        let member = Member { node_id: request.node_id, peer: request.peer };
        let (leads, known) = {
            let server = self.raft.server_metrics();
            let server = server.borrow_watched();
            let membership = server.membership_config.clone();
            (server.current_leader == Some(self.me), membership)
        };
        if !leads {
            let leader = self.leader().map(|(_, member)| member.peer);
            return Ok(JoinReply::NotLeader { leader });
        }
        let voters: BTreeSet<RaftNodeId> = known.voter_ids().collect();
        let mut former_learners = BTreeSet::new();
        for (id, former) in known.nodes() {
            if former.node_id != member.node_id || *id == raft_node_id {
                continue;
            }
            if let Err(reason) = self.is_gone(former, from).await? {
                return Ok(JoinReply::Refused { reason });
            }
            if !voters.contains(id) {
                former_learners.insert(*id);
            }
        }
        let not_ready = |error: &dyn std::fmt::Display| WireError::NotReady(error.to_string());
        // One successor at a time.
        if !former_learners.is_empty() {
            let removed = Change::RemoveNodes(former_learners);
            self.raft.change_membership(removed, true).await.map_err(|error| not_ready(&error))?;
        }
        let changed = match known.get_node(&raft_node_id) {
            Some(present) if *present == member => return Ok(JoinReply::Joined),
            Some(_) => {
                info!(node_id = %member.node_id, peer = %member.peer, "a member has moved");
                let nodes = BTreeMap::from([(raft_node_id, member)]);
                self.raft.change_membership(ChangeMembers::SetNodes(nodes), true).await
            }
            None => {
                info!(node_id = %member.node_id, peer = %member.peer, "a node joins");
                self.raft.add_learner(raft_node_id, member, false).await
            }
        };
        match changed {
            Ok(_) => Ok(JoinReply::Joined),
            // Another change is under way, or leadership moved: the node asks again.
            Err(error) => Err(not_ready(&error)),
        }
    }

    /// Whether the process that had this node id does not run any more: nobody listens at its address, or the one who
    /// asks does. Else the reason to refuse.
    async fn is_gone(
        &self,
        former: &Member,
        from: Option<&NodeHello>,
    ) -> Result<Result<(), String>, WireError> {
        match self.transport.probe(&former.peer, PROBE_TIMEOUT).await {
            ProbeOutcome::Refused => Ok(Ok(())),
            ProbeOutcome::Alive(who) if from.is_some_and(|f| f.incarnation == who.incarnation) => {
                Ok(Ok(()))
            }
            ProbeOutcome::Alive(_) => Ok(Err(format!(
                "node {0} runs with another data directory, at {1}; give this node its own id",
                former.node_id, former.peer
            ))),
            ProbeOutcome::Unknown(reason) => Err(WireError::NotReady(format!(
                "cannot tell whether node {} still runs at {}: {reason}",
                former.node_id, former.peer
            ))),
        }
    }
}

impl ControllerLoop {
    /// Gives the place of a voter that lost its disk to its successor, when that is due.
    pub(super) fn replace_lost_voters(&mut self) {
        if self.membership_change.as_ref().is_some_and(|change| !change.is_finished()) {
            return;
        }
        let Some(voters) = self.voters_without_lost() else { return };
        let (raft, present) = (self.tools.raft.clone(), self.present());
        self.membership_change = Some(tokio::spawn(async move {
            info!(?voters, "a voter that lost its disk is to be replaced");
            let replaced = match present.check_majorities(&voters).await {
                Ok(()) => {
                    let change = Change::ReplaceAllVoters(voters);
                    let changed = raft.change_membership(change, false).await;
                    changed.map(|_| ()).map_err(|error| error.to_string())
                }
                Err(reason) => Err(reason),
            };
            if let Err(reason) = replaced {
                warn!(reason, "the voter was not replaced; it is tried again");
            }
        }));
    }

    /// What an operator asks for. The answer comes when it is done.
    pub(super) fn change_quorum(&mut self, request: &ControllerRequest, answering: Answering) {
        let raft = self.tools.raft.clone();
        let change = match self.plan(request) {
            Ok(change) => change,
            Err(reason) => {
                let refusal = Refusal::new(ErrorCode::InvalidRequest, reason);
                let _ = answering.send(Ok(Err(refusal)));
                return;
            }
        };
        let present = self.present();
        let work = tokio::spawn(async move {
            let done = match change {
                Planned::Nothing => Ok(()),
                Planned::Voters(voters) => {
                    if let Err(reason) = present.check_majorities(&voters).await {
                        let refusal = Refusal::new(ErrorCode::InvalidRequest, reason);
                        let _ = answering.send(Ok(Err(refusal)));
                        return;
                    }
                    info!(?voters, "the voters of the quorum change");
                    let change = Change::ReplaceAllVoters(voters);
                    let changed = raft.change_membership(change, true).await;
                    changed.map(|_| ()).map_err(|error| error.to_string())
                }
                Planned::Leader(id) => {
                    let transferred = raft.trigger().transfer_leader(id).await;
                    transferred.map_err(|error| error.to_string())
                }
            };
            let _ = answering.send(match done {
                Ok(()) => Ok(Ok(ControllerReply::Done)),
                // It may be done by the next controller, or have been done before the failure.
                Err(reason) => {
                    warn!(reason, "the quorum was not changed");
                    Err(Unanswered::Unknown)
                }
            });
        });
        self.membership_change = Some(work);
    }

    /// Or the reason to refuse.
    fn plan(&self, request: &ControllerRequest) -> Result<Planned, String> {
        if self.membership_change.as_ref().is_some_and(|change| !change.is_finished()) {
            return Err("another change of the quorum is under way; try again".to_owned());
        }
        let quorum = self.present();
        let id_of = |node_id: NodeId| {
            let id = quorum.members.nodes().find(|(_, member)| member.node_id == node_id);
            id.map(|(id, _)| *id)
                .ok_or_else(|| format!("node {node_id} is no member of the cluster"))
        };
        match *request {
            ControllerRequest::AddVoter { node_id } => {
                let id = id_of(node_id)?;
                if quorum.voters.contains(&id) {
                    return Ok(Planned::Nothing);
                }
                if !quorum.is_heard(id) || !quorum.has_caught_up(id) {
                    return Err(format!(
                        "node {node_id} has not caught up with the metadata log; `kontiki quorum status` shows its lag"
                    ));
                }
                let mut voters = quorum.voters.clone();
                voters.insert(id);
                Ok(Planned::Voters(voters))
            }
            ControllerRequest::RemoveVoter { node_id } => {
                let id = id_of(node_id)?;
                if !quorum.voters.contains(&id) {
                    return Ok(Planned::Nothing);
                }
                if id == quorum.me {
                    return Err(format!(
                        "node {node_id} is the active controller; `kontiki quorum transfer` moves that first"
                    ));
                }
                let mut voters = quorum.voters.clone();
                voters.remove(&id);
                Ok(Planned::Voters(voters))
            }
            ControllerRequest::TransferController { node_id } => {
                let id = id_of(node_id)?;
                if id == quorum.me {
                    return Ok(Planned::Nothing);
                }
                if !quorum.voters.contains(&id) {
                    return Err(format!(
                        "node {node_id} does not vote; `kontiki quorum add` changes that"
                    ));
                }
                if !quorum.is_heard(id) {
                    return Err(format!("node {node_id} does not answer"));
                }
                Ok(Planned::Leader(id))
            }
            _ => Err("no change of the quorum".to_owned()),
        }
    }

    /// The voters after one replacement; `None` when none is due.
    fn voters_without_lost(&self) -> Option<BTreeSet<RaftNodeId>> {
        let server = self.server.borrow_watched();
        if server.membership_config.nodes().count() == server.membership_config.voter_ids().count()
        {
            return None;
        }
        drop(server);
        let quorum = self.present();
        let learners = quorum.members.nodes().filter(|(id, _)| !quorum.voters.contains(id));
        let successors = learners.filter_map(|(id, learner)| {
            let former = quorum.voters.iter().find(|voter| {
                quorum.members.get_node(voter).is_some_and(|m| m.node_id == learner.node_id)
            });
            Some((*id, *former?))
        });
        successors.into_iter().find_map(|(new, old)| {
            let mut next = quorum.voters.clone();
            next.remove(&old);
            next.insert(new);
            let is_due = quorum.is_heard(new) && quorum.has_caught_up(new) && !quorum.is_heard(old);
            is_due.then_some(next)
        })
    }
}

enum Planned {
    Nothing,
    /// Who shall vote.
    Voters(BTreeSet<RaftNodeId>),
    Leader(RaftNodeId),
}

/// The quorum as the active controller sees it at one moment.
struct Present {
    me: RaftNodeId,
    members: Arc<StoredMembershipOf<TypeConfig>>,
    voters: BTreeSet<RaftNodeId>,
    heard: BTreeSet<RaftNodeId>,
    caught_up: BTreeSet<RaftNodeId>,
    transport: Transport,
}

impl ControllerLoop {
    fn present(&self) -> Present {
        let (me, members) = {
            let server = self.server.borrow_watched();
            (server.id, server.membership_config.clone())
        };
        let data = self.tools.raft.data_metrics();
        let data = data.borrow_watched();
        let acked = |id: &RaftNodeId| *data.heartbeat.as_ref()?.get(id)?;
        let is_heard =
            |id: &RaftNodeId| *id == me || acked(id).is_some_and(|acked| acked.elapsed() < SILENCE);
        let last = data.last_log.as_ref().map_or(0, |last| last.index);
        let has_caught_up = |id: &RaftNodeId| {
            let matched = data.replication.as_ref().and_then(|all| (*all.get(id)?).as_ref());
            matched.is_some_and(|matched| last.saturating_sub(matched.index) <= LAG_MAX)
        };
        let those = |holds: &dyn Fn(&RaftNodeId) -> bool| {
            members.nodes().map(|(id, _)| *id).filter(|id| holds(id)).collect()
        };
        let (heard, caught_up) = (those(&is_heard), those(&has_caught_up));
        let voters = members.voter_ids().collect();
        let transport = self.tools.transport.clone();
        Present { me, voters, heard, caught_up, members, transport }
    }
}

impl Present {
    fn is_heard(&self, id: RaftNodeId) -> bool {
        self.heard.contains(&id)
    }

    fn has_caught_up(&self, id: RaftNodeId) -> bool {
        self.caught_up.contains(&id)
    }

    /// Both memberships have to agree to a change. Begun without a majority that is there now, it would stop the quorum.
    async fn check_majorities(&self, next: &BTreeSet<RaftNodeId>) -> Result<(), String> {
        let mut probes = JoinSet::new();
        for id in self.voters.union(next).copied().filter(|id| *id != self.me) {
            let Some(peer) = self.members.get_node(&id).map(|member| member.peer.clone()) else {
                continue;
            };
            let transport = self.transport.clone();
            probes.spawn(async move {
                let outcome = transport.probe(&peer, PROBE_TIMEOUT).await;
                matches!(outcome, ProbeOutcome::Alive(_)).then_some(id)
            });
        }
        let mut there = BTreeSet::from([self.me]);
        while let Some(answered) = probes.join_next().await {
            there.extend(answered.ok().flatten());
        }
        for voters in [&self.voters, next] {
            // An old disk answers by its successor, which is another member.
            let count = voters.intersection(&there).filter(|id| self.is_heard(**id)).count();
            if count <= voters.len() / 2 {
                return Err(format!(
                    "only {count} of {} voters answer: the change could not be agreed on",
                    voters.len()
                ));
            }
        }
        Ok(())
    }
}
