//! The leader of a partition: its followers' progress, the ISR, the high watermark.
//!
//! Invariants: the high watermark never falls, never passes what every member of the maximal ISR vouches for, and stands
//! still while the committed ISR is below the minimum (11, 17). A report counts only under the session and the leader
//! epoch that it was made in (18). A follower enters a proposed ISR only with everything below the high watermark and
//! all of this leader's past (16).

use super::progress::{Remote, Session};
use super::{Context, Effects, IsrState, LogEnds, Settings};
use crate::controller::{AlterPartition, AlterPartitionRefusal};
use crate::metadata::PartitionImage;
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicIdPartition};

#[derive(Debug, Clone)]
pub struct Leader {
    me: NodeId,
    partition: TopicIdPartition,
    epoch: LeaderEpoch,
    partition_epoch: PartitionEpoch,
    /// Where the log ended when this leadership began.
    epoch_start: Offset,
    replica_count: usize,
    isr: IsrState,
    /// The other assigned replicas.
    remotes: Vec<Remote>,
    high_watermark: Offset,
    ends: LogEnds,
    settings: Settings,
    /// No proposal before this time: the controller has just refused one.
    quiet_until: Option<std::time::Instant>,
}

/// A subscription, as a fetch (replication.md 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FollowerFetch {
    pub node: NodeId,
    pub session: Session,
    pub leader_epoch: LeaderEpoch,
    pub ends: LogEnds,
    /// Epoch of its last record; NONE when its log has no epoch.
    pub last_fetched_epoch: LeaderEpoch,
}

/// Why a log cannot be read on from an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchRefusal {
    /// The reader's log is not a prefix of this one: the largest epoch not above its own, and where it ends here.
    Diverging {
        epoch: LeaderEpoch,
        end_offset: Offset,
    },
    OutOfRange,
}

/// Why a follower cannot be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeRefusal {
    Code(ErrorCode),
    Diverging {
        epoch: LeaderEpoch,
        end_offset: Offset,
    },
    /// It has a later subscription already: an old stream's message came late. To be dropped without an answer.
    Superseded,
}

/// Compares the leader epoch that a request was made under with the current one. NONE is not compared.
pub fn check_leader_epoch(asked: LeaderEpoch, current: LeaderEpoch) -> Result<(), ErrorCode> {
    if asked == LeaderEpoch::NONE || asked == current {
        Ok(())
    } else if asked < current {
        Err(ErrorCode::FencedLeaderEpoch)
    } else {
        Err(ErrorCode::UnknownLeaderEpoch)
    }
}

/// Whether a log that ends at `offset`, its last record of epoch `last_epoch`, is a prefix of the log with these ends.
/// `epoch_end` is that log's answer to "where does this epoch end" (replication.md 2.8).
pub fn check_fetch(
    offset: Offset,
    last_epoch: LeaderEpoch,
    ends: LogEnds,
    epoch_end: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
) -> Result<(), FetchRefusal> {
    if last_epoch != LeaderEpoch::NONE && offset >= ends.start {
        let (epoch, end_offset) = epoch_end(last_epoch).ok_or(FetchRefusal::OutOfRange)?;
        if epoch < last_epoch || end_offset < offset {
            return Err(FetchRefusal::Diverging { epoch, end_offset });
        }
    }
    if offset < ends.start || offset > ends.end {
        return Err(FetchRefusal::OutOfRange);
    }
    Ok(())
}

impl Leader {
    /// Begins a leadership. The high watermark is the one learnt as a follower, never the log's end.
    pub(super) fn new(
        me: NodeId,
        partition: TopicIdPartition,
        image: &PartitionImage,
        ends: LogEnds,
        high_watermark: Offset,
        settings: Settings,
        context: Context<'_>,
    ) -> Self {
        let mut leader = Self {
            me,
            partition,
            epoch: image.leader_epoch,
            partition_epoch: image.partition_epoch,
            epoch_start: ends.end,
            replica_count: 0,
            isr: IsrState::Committed(Vec::new()),
            remotes: Vec::new(),
            high_watermark,
            ends,
            settings,
            quiet_until: None,
        };
        leader.install(image, context);
        leader
    }

    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    pub fn partition_epoch(&self) -> PartitionEpoch {
        self.partition_epoch
    }

    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// The lowest log start of the live replicas, where `own` is this one's. Nothing before it comes back.
    pub fn low_watermark(&self, own: Offset, context: Context<'_>) -> Offset {
        let live = self.remotes.iter().filter(|remote| (context.active)(remote.node).is_some());
        let starts = live.map(|remote| remote.start_offset().unwrap_or(0));
        starts.fold(own, Offset::min)
    }

    pub fn isr(&self) -> &IsrState {
        &self.isr
    }

    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// How many members the ISR needs for an acknowledgement of all.
    pub fn min_isr(&self) -> usize {
        self.settings.topic.min_isr(self.replica_count)
    }

    /// Before an append with acks=all.
    pub fn has_enough_replicas(&self) -> bool {
        self.isr.committed().len() >= self.min_isr()
    }

    /// After one, once the high watermark has passed it.
    pub fn had_enough_replicas(&self) -> bool {
        self.isr.maximal_len() >= self.min_isr()
    }

    /// Whether the high watermark covers what earlier leaders may have exposed. Until then "latest" has no answer that
    /// is certain not to go back (12).
    pub fn is_high_watermark_settled(&self) -> bool {
        self.high_watermark >= self.epoch_start
    }

    /// The proposal that the controller has to answer.
    pub fn pending_alter(&self) -> Option<&AlterPartition> {
        self.isr.pending()
    }

    /// Whether time alone may change something here: somebody is behind, or might join.
    pub fn needs_tick(&self) -> bool {
        self.remotes.iter().any(|remote| {
            if self.isr.committed().contains(&remote.node) {
                remote.is_behind(self.ends.end)
            } else {
                remote.session.is_some()
            }
        })
    }

    /// A later state of the same leadership.
    pub(super) fn update(&mut self, image: &PartitionImage, context: Context<'_>) -> Effects {
        self.install(image, context);
        self.settle(context)
    }

    pub fn set_settings(&mut self, settings: Settings, context: Context<'_>) -> Effects {
        self.settings = settings;
        self.settle(context)
    }

    /// The own log has grown, or more of it is on disk.
    pub fn on_log(&mut self, ends: LogEnds, context: Context<'_>) -> Effects {
        if ends.end > self.ends.end {
            for remote in &mut self.remotes {
                remote.on_append(self.ends.end, ends.end, context.now);
            }
        }
        self.ends = ends;
        self.advance_high_watermark(context)
    }

    /// A follower wants to be sent what it lacks. Its progress counts from now on, under the new session.
    pub fn on_subscribe(
        &mut self,
        fetch: &FollowerFetch,
        epoch_end: impl FnOnce(LeaderEpoch) -> Option<(LeaderEpoch, Offset)>,
        context: Context<'_>,
    ) -> Result<Effects, SubscribeRefusal> {
        let refuse = |code| Err(SubscribeRefusal::Code(code));
        if fetch.leader_epoch != self.epoch {
            return refuse(if fetch.leader_epoch < self.epoch {
                ErrorCode::FencedLeaderEpoch
            } else {
                ErrorCode::UnknownLeaderEpoch
            });
        }
        let Some(remote) = self.remotes.iter_mut().find(|remote| remote.node == fetch.node) else {
            // The follower may know of an assignment that has not reached this leader.
            return refuse(ErrorCode::UnknownLeaderEpoch);
        };
        let known = (context.active)(fetch.node).max(remote.broker_epoch);
        if known.is_some_and(|known| fetch.session.broker_epoch < known) {
            return refuse(ErrorCode::StaleBrokerEpoch);
        }
        if remote.session.is_some_and(|current| {
            current.broker_epoch == fetch.session.broker_epoch && current.slot > fetch.session.slot
        }) {
            return Err(SubscribeRefusal::Superseded);
        }
        check_fetch(fetch.ends.end, fetch.last_fetched_epoch, self.ends, epoch_end).map_err(
            |refusal| match refusal {
                FetchRefusal::Diverging { epoch, end_offset } => {
                    SubscribeRefusal::Diverging { epoch, end_offset }
                }
                FetchRefusal::OutOfRange => SubscribeRefusal::Code(ErrorCode::OffsetOutOfRange),
            },
        )?;
        remote.start_session(fetch.session, fetch.ends);
        remote.on_report(self.ends.end, context.now);
        Ok(self.settle(context))
    }

    /// The session's stream has ended. What the follower has, it still has.
    pub fn on_unsubscribe(&mut self, node: NodeId, slot: u32) {
        if let Some(remote) = self.session_mut(node, slot) {
            remote.session = None;
        }
    }

    /// A follower reports progress.
    pub fn on_ack(
        &mut self,
        node: NodeId,
        slot: u32,
        ends: LogEnds,
        context: Context<'_>,
    ) -> Effects {
        let leader_end = self.ends.end;
        let Some(remote) = self.session_mut(node, slot) else { return Effects::NONE };
        if ends.end > leader_end {
            // It cannot have what was never sent: malformed, so not progress.
            return Effects::NONE;
        }
        remote.report(ends);
        remote.on_report(leader_end, context.now);
        self.settle(context)
    }

    /// Time has passed.
    pub fn on_tick(&mut self, context: Context<'_>) -> Effects {
        let settled = self.settle(context);
        if self.isr.pending().is_some() || self.is_quiet(context) {
            return settled;
        }
        settled.and(self.propose_shrink(context))
    }

    /// The controller's answer to a proposal, `None` when it is lost. Only the one under way is listened to; what does
    /// not say for certain that nothing was applied leaves it pending, until the image tells (replication.md 2.9). The
    /// caller matches replies with requests: a late one, to an earlier request for the same, must not come here.
    pub fn on_alter_reply(
        &mut self,
        sent: &AlterPartition,
        reply: Option<Result<PartitionImage, AlterPartitionRefusal>>,
        context: Context<'_>,
    ) -> Effects {
        if self.isr.pending() != Some(sent) {
            return Effects::NONE;
        }
        let resend = Effects { propose: true, ..Effects::NONE };
        match reply {
            None => resend,
            Some(Ok(image)) => {
                if image.leader != self.me
                    || image.leader_epoch != self.epoch
                    || image.partition_epoch < self.partition_epoch
                {
                    return Effects::NONE;
                }
                self.install(&image, context);
                self.settle(context)
            }
            Some(Err(refusal)) => match refusal.code {
                ErrorCode::IneligibleReplica | ErrorCode::OperationNotAttempted => {
                    self.isr.reset_to_base();
                    self.quiet_until = Some(context.now + self.settings.timing.retry);
                    self.settle(context)
                }
                ErrorCode::FencedLeaderEpoch
                | ErrorCode::InvalidUpdateVersion
                | ErrorCode::InvalidRequest
                | ErrorCode::UnknownTopicOrPartition
                | ErrorCode::UnknownTopicId
                | ErrorCode::NewLeaderElected => Effects::NONE,
                _ => resend,
            },
        }
    }

    /// Takes over replicas, ISR and partition epoch; keeps what is known of replicas that stay.
    fn install(&mut self, image: &PartitionImage, context: Context<'_>) {
        self.partition_epoch = image.partition_epoch;
        self.replica_count = image.replicas.len();
        self.isr = IsrState::Committed(image.isr.clone());
        self.remotes.retain(|remote| image.replicas.contains(&remote.node));
        for &node in image.replicas.iter().filter(|&&node| node != self.me) {
            if !self.remotes.iter().any(|remote| remote.node == node) {
                self.remotes.push(Remote::new(node, context.now));
            }
        }
        for remote in self.remotes.iter_mut().filter(|remote| image.isr.contains(&remote.node)) {
            remote.assume_caught_up(context.now);
        }
    }

    fn session_mut(&mut self, node: NodeId, slot: u32) -> Option<&mut Remote> {
        self.remotes.iter_mut().find(|remote| {
            remote.node == node && remote.session.is_some_and(|session| session.slot == slot)
        })
    }

    /// First the high watermark: whoever it leaves behind is not proposed again at once.
    fn settle(&mut self, context: Context<'_>) -> Effects {
        let advanced = self.advance_high_watermark(context);
        advanced.and(self.propose_expand(context))
    }

    fn is_quiet(&self, context: Context<'_>) -> bool {
        self.quiet_until.is_some_and(|until| context.now < until)
    }

    fn propose_expand(&mut self, context: Context<'_>) -> Effects {
        let IsrState::Committed(base) = &self.isr else { return Effects::NONE };
        if base.len() == self.replica_count || self.is_quiet(context) {
            return Effects::NONE;
        }
        let joining: Vec<NodeId> = self
            .remotes
            .iter()
            .filter(|remote| !base.contains(&remote.node) && self.is_eligible(remote, context))
            .filter(|remote| {
                remote.acknowledged().is_some_and(|offset| {
                    offset >= self.high_watermark && offset >= self.epoch_start
                })
            })
            // It would be removed again.
            .filter(|remote| !remote.is_too_slow(self.ends.end, &self.settings.timing, context.now))
            .map(|remote| remote.node)
            .collect();
        if joining.is_empty() {
            return Effects::NONE;
        }
        let base = base.clone();
        let sent = self.proposal(base.iter().copied().chain(joining).collect(), context);
        self.isr = IsrState::PendingExpand { base, sent };
        Effects { propose: true, ..Effects::NONE }
    }

    fn propose_shrink(&mut self, context: Context<'_>) -> Effects {
        let IsrState::Committed(base) = &self.isr else { return Effects::NONE };
        let timing = &self.settings.timing;
        let staying: Vec<NodeId> = base
            .iter()
            .copied()
            .filter(|&node| {
                !self.remotes.iter().any(|remote| {
                    remote.node == node && remote.is_too_slow(self.ends.end, timing, context.now)
                })
            })
            .collect();
        if staying.len() == base.len() {
            return Effects::NONE;
        }
        let base = base.clone();
        let sent = self.proposal(staying, context);
        self.isr = IsrState::PendingShrink { base, sent };
        Effects { propose: true, ..Effects::NONE }
    }

    fn proposal(&self, isr: Vec<NodeId>, context: Context<'_>) -> AlterPartition {
        let broker_epoch = |node: NodeId| {
            if node == self.me {
                (context.active)(node)
            } else {
                self.remotes.iter().find(|r| r.node == node).and_then(|remote| remote.broker_epoch)
            }
        };
        AlterPartition {
            partition: self.partition,
            leader_epoch: self.epoch,
            partition_epoch: self.partition_epoch,
            isr: isr
                .into_iter()
                .map(|node| (node, broker_epoch(node).unwrap_or(BrokerEpoch::NONE)))
                .collect(),
            recovered: true,
        }
    }

    /// Listening under the registration that the image knows, and allowed to be in an ISR.
    fn is_eligible(&self, remote: &Remote, context: Context<'_>) -> bool {
        remote
            .session
            .is_some_and(|session| (context.active)(remote.node) == Some(session.broker_epoch))
    }

    /// replication.md 2.5.
    fn advance_high_watermark(&mut self, context: Context<'_>) -> Effects {
        if self.isr.committed().len() < self.min_isr() {
            return Effects::NONE;
        }
        let timing = &self.settings.timing;
        let mut target = self.ends.durable.min(self.ends.end);
        for remote in &self.remotes {
            if target <= self.high_watermark {
                return Effects::NONE;
            }
            if self.isr.maximal_contains(remote.node)
                || remote.is_joining(timing, context.now) && self.is_eligible(remote, context)
            {
                target = target.min(remote.acknowledged().unwrap_or(0));
            }
        }
        // Below the log's start everything is committed: only a leader deletes, and only what is.
        let target = target.max(self.ends.start);
        if target <= self.high_watermark {
            return Effects::NONE;
        }
        self.high_watermark = target;
        Effects { high_watermark: Some(target), ..Effects::NONE }
    }
}
