//! How a request reaches the active controller, from any node.
//!
//! Invariant: a request is sent again only when it was certainly not applied before (replication.md 1.1 R4).

use std::time::Duration;

use bytes::Bytes;
use openraft::async_runtime::WatchReceiver;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::controller_loop::{Answer, Event, Unanswered};
use super::raft::Member;
use super::{Error, Inner};
use crate::controller::{ControllerCall, ControllerReply, Refusal};
use crate::net;
use crate::protocol::ErrorCode;
use crate::protocol::native::{Kind, WireError};
use crate::types::{HostPort, RaftNodeId};

const RETRY: Duration = Duration::from_millis(10);

/// How long a forwarded request may wait here. Its sender has its own, shorter deadline.
const FORWARDED_WAIT_MAX: Duration = Duration::from_secs(60);

type Reply = Result<ControllerReply, Refusal>;

/// One attempt.
enum Attempt {
    Answered(Reply),
    NotApplied,
    Unknown,
}

impl Inner {
    /// Who leads, as far as this node knows.
    pub(super) fn leader(&self) -> Option<(RaftNodeId, Member)> {
        let server = self.raft.server_metrics();
        let server = server.borrow_watched();
        let id = server.current_leader?;
        Some((id, server.membership_config.get_node(&id)?.clone()))
    }

    pub(super) async fn submit(
        &self,
        call: ControllerCall,
        within: Duration,
    ) -> Result<Reply, Error> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::NoController(within));
            }
            if *self.stopping.borrow() {
                return Err(Error::ShutDown);
            }
            let attempt = match self.leader() {
                Some((id, _)) if id == self.me => self.ask_here(call.clone(), left).await,
                Some((id, member)) => self.ask_there(id, &member.peer, &call, left).await,
                None => Attempt::NotApplied,
            };
            match attempt {
                Attempt::Answered(reply) => return Ok(reply),
                Attempt::Unknown => return Err(Error::Unknown(within)),
                Attempt::NotApplied => sleep(RETRY.min(left)).await,
            }
        }
    }

    async fn ask_here(&self, call: ControllerCall, within: Duration) -> Attempt {
        match timeout(within, self.decide(call)).await {
            Ok(Ok(reply)) => Attempt::Answered(reply),
            Ok(Err(Unanswered::NotController)) => Attempt::NotApplied,
            Ok(Err(Unanswered::Unknown)) | Err(_) => Attempt::Unknown,
        }
    }

    async fn ask_there(
        &self,
        leader: RaftNodeId,
        address: &HostPort,
        call: &ControllerCall,
        within: Duration,
    ) -> Attempt {
        let asked =
            self.transport.call::<_, Reply>(address, Kind::Controller, call, Bytes::new(), within);
        let replied = tokio::select! {
            replied = asked => replied,
            // Nobody will hear of a leader that froze. The caller may ask the next one, knowing what it risks.
            () = self.leader_changed(leader) => return Attempt::Unknown,
        };
        match replied {
            Ok(Err(refusal)) if refusal.code == ErrorCode::NotController => Attempt::NotApplied,
            Ok(reply) => Attempt::Answered(reply),
            Err(net::Error::Remote(WireError::NotReady(_) | WireError::Unexpected)) => {
                Attempt::NotApplied
            }
            Err(error) if error.certainly_not_delivered() => Attempt::NotApplied,
            Err(_) => Attempt::Unknown,
        }
    }

    async fn leader_changed(&self, from: RaftNodeId) {
        let mut server = self.raft.server_metrics();
        loop {
            let leader = server.borrow_watched().current_leader;
            if leader.is_some_and(|leader| leader != from) || server.changed().await.is_err() {
                return;
            }
        }
    }

    /// Has this node's own controller loop decide.
    async fn decide(&self, call: ControllerCall) -> Answer {
        let (answering, answer) = oneshot::channel();
        if self.events.send(Event::Call(call, answering)).await.is_err() {
            return Err(Unanswered::NotController);
        }
        answer.await.unwrap_or(Err(Unanswered::Unknown))
    }

    /// Answers a call of another node. It is not passed on: its sender finds the active controller.
    pub(super) async fn on_call(&self, call: ControllerCall) -> Result<Reply, WireError> {
        match timeout(FORWARDED_WAIT_MAX, self.decide(call)).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(Unanswered::NotController)) => Ok(Err(Refusal::new(
                ErrorCode::NotController,
                format!("node {} is not the active controller", self.identity.node_id),
            ))),
            Ok(Err(Unanswered::Unknown)) | Err(_) => {
                Err(WireError::Failed("the request may or may not have been applied".to_owned()))
            }
        }
    }
}
