//! Who takes part in the quorum: nodes that join, and voters that lost their disk.
//!
//! A wiped disk is a new Raft node (design D4). Under the node id of a voter that is gone it joins as a learner, and when it
//! has caught up it takes that voter's place; the old disk is no member from then on. Nothing has to be done by hand.
//!
//! Invariant: a node id that answers elsewhere is never given away, and a voter that was heard of lately is never
//! replaced. A change is made only when the majority that follows from it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::WatchReceiver;
use openraft::{ChangeMembers, Instant as _};
use tracing::{info, warn};

use super::Inner;
use super::controller_loop::ControllerLoop;
use super::raft::Member;
use crate::net::ProbeOutcome;
use crate::protocol::native::{JoinReply, JoinRequest, NodeHello, WireError};
use crate::types::RaftNodeId;

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
        let raft = self.tools.raft.clone();
        self.membership_change = Some(tokio::spawn(async move {
            info!(?voters, "a voter that lost its disk is replaced");
            let replaced = raft.change_membership(Change::ReplaceAllVoters(voters), false).await;
            if let Err(error) = replaced {
                warn!(%error, "the voter was not replaced; it is tried again");
            }
        }));
    }

    /// The voters after one replacement; `None` when none is due.
    fn voters_without_lost(&self) -> Option<BTreeSet<RaftNodeId>> {
        let membership = self.server.borrow_watched().membership_config.clone();
        let voters: BTreeSet<RaftNodeId> = membership.voter_ids().collect();
        let successors: Vec<(RaftNodeId, RaftNodeId)> = membership
            .nodes()
            .filter(|(id, _)| !voters.contains(id))
            .filter_map(|(id, member)| {
                let is_former = |voter: &&RaftNodeId| {
                    membership.get_node(voter).is_some_and(|m| m.node_id == member.node_id)
                };
                Some((*id, *voters.iter().find(is_former)?))
            })
            .collect();
        let data = self.tools.raft.data_metrics();
        let data = data.borrow_watched();
        let me = self.server.borrow_watched().id;
        let is_heard = |id: &RaftNodeId| {
            let acked = data.heartbeat.as_ref().and_then(|heartbeats| *heartbeats.get(id)?);
            *id == me || acked.is_some_and(|acked| acked.elapsed() < SILENCE)
        };
        let has_caught_up = |id: &RaftNodeId| {
            let matched = data.replication.as_ref().and_then(|all| (*all.get(id)?).as_ref());
            let last = data.last_log.as_ref().map_or(0, |last| last.index);
            matched.is_some_and(|matched| last.saturating_sub(matched.index) <= LAG_MAX)
        };
        successors.into_iter().find_map(|(new, old)| {
            let mut next = voters.clone();
            next.remove(&old);
            // The old majority has to agree as well, without the one that is gone.
            let left = next.iter().filter(|id| is_heard(id)).count();
            next.insert(new);
            let is_due = is_heard(&new) && has_caught_up(&new) && !is_heard(&old);
            let has_majorities = left > voters.len() / 2 && left + 1 > next.len() / 2;
            (is_due && has_majorities).then_some(next)
        })
    }
}
