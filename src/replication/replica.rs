//! One replica of a partition: leader or follower, as the metadata image says.

use super::{Context, Effects, Follower, Leader, LogEnds, Settings};
use crate::metadata::PartitionImage;
use crate::types::{LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicIdPartition};

#[derive(Debug, Clone)]
pub struct Replica {
    me: NodeId,
    partition: TopicIdPartition,
    partition_epoch: PartitionEpoch,
    settings: Settings,
    role: Role,
}

#[derive(Debug, Clone)]
pub enum Role {
    Leader(Box<Leader>),
    /// Also while nobody leads.
    Follower(Follower),
}

/// What an image made of a replica. `new_epoch` says whether the leader epoch is another one than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleChange {
    Leader {
        epoch: LeaderEpoch,
        new_epoch: bool,
    },
    Follower {
        leader: NodeId,
        epoch: LeaderEpoch,
        new_epoch: bool,
    },
    NoLeader,
    /// The image holds nothing that is newer than what the replica knows.
    Ignored,
}

#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    pub change: RoleChange,
    pub effects: Effects,
    /// Another leader may have been in between: whoever waits here must be told.
    pub lost_leadership: bool,
}

impl Replica {
    /// Of no epoch yet. The high watermark is a hint from before the restart.
    pub fn new(
        me: NodeId,
        partition: TopicIdPartition,
        high_watermark: Offset,
        settings: Settings,
    ) -> Self {
        Self {
            me,
            partition,
            partition_epoch: PartitionEpoch::NONE,
            settings,
            role: Role::Follower(Follower::new(None, LeaderEpoch::NONE, high_watermark)),
        }
    }

    pub fn role(&self) -> &Role {
        &self.role
    }

    pub fn role_mut(&mut self) -> &mut Role {
        &mut self.role
    }

    pub fn leader_mut(&mut self) -> Option<&mut Leader> {
        match &mut self.role {
            Role::Leader(leader) => Some(leader),
            Role::Follower(_) => None,
        }
    }

    pub fn follower_mut(&mut self) -> Option<&mut Follower> {
        match &mut self.role {
            Role::Leader(_) => None,
            Role::Follower(follower) => Some(follower),
        }
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        match &self.role {
            Role::Leader(leader) => leader.epoch(),
            Role::Follower(follower) => follower.epoch(),
        }
    }

    pub fn high_watermark(&self) -> Offset {
        match &self.role {
            Role::Leader(leader) => leader.high_watermark(),
            Role::Follower(follower) => follower.high_watermark(),
        }
    }

    /// Who leads, as far as this replica knows.
    pub fn current_leader(&self) -> Option<(NodeId, LeaderEpoch)> {
        match &self.role {
            Role::Leader(leader) => Some((self.me, leader.epoch())),
            Role::Follower(follower) => Some((follower.leader()?, follower.epoch())),
        }
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn set_settings(&mut self, settings: Settings, context: Context<'_>) -> Effects {
        self.settings = settings;
        let settings = self.settings.clone();
        self.leader_mut().map_or(Effects::NONE, |leader| leader.set_settings(settings, context))
    }

    /// Leads and follows nobody any more, until a later image says so.
    pub fn resign(&mut self) {
        let (epoch, high_watermark) = (self.leader_epoch(), self.high_watermark());
        self.role = Role::Follower(Follower::new(None, epoch, high_watermark));
    }

    /// Follows the image (replication.md 2.2, 2.3). On [`RoleChange::Leader`] with a new epoch the shell has to note
    /// that epoch in the log, before anything is appended.
    pub fn apply_image(
        &mut self,
        image: &PartitionImage,
        ends: LogEnds,
        context: Context<'_>,
    ) -> Applied {
        let known = self.leader_epoch();
        let ignored =
            Applied { change: RoleChange::Ignored, effects: Effects::NONE, lost_leadership: false };
        if image.partition_epoch <= self.partition_epoch || image.leader_epoch < known {
            // A reply of the controller may have brought the leader further already.
            return ignored;
        }
        self.partition_epoch = image.partition_epoch;
        let (epoch, new_epoch) = (image.leader_epoch, image.leader_epoch > known);
        if image.leader == self.me {
            let change = RoleChange::Leader { epoch, new_epoch };
            let led_before = matches!(self.role, Role::Leader(_));
            if let (Role::Leader(leader), false) = (&mut self.role, new_epoch) {
                if image.partition_epoch <= leader.partition_epoch() {
                    return ignored;
                }
                let effects = leader.update(image, context);
                return Applied { change, effects, lost_leadership: false };
            }
            let high_watermark = self.high_watermark().min(ends.end).max(ends.start);
            let mut leader = Leader::new(
                self.me,
                self.partition,
                image,
                ends,
                high_watermark,
                self.settings.clone(),
                context,
            );
            let effects = leader.on_log(ends, context);
            self.role = Role::Leader(Box::new(leader));
            // Nobody can have led between two adjacent epochs.
            let lost_leadership = !(led_before && epoch == known.next());
            return Applied { change, effects, lost_leadership };
        }
        let leader = image.leader.known();
        let lost_leadership = matches!(self.role, Role::Leader(_));
        if new_epoch || lost_leadership {
            let high_watermark = self.high_watermark();
            self.role = Role::Follower(Follower::new(leader, epoch, high_watermark));
        }
        let change = match leader {
            Some(leader) => RoleChange::Follower { leader, epoch, new_epoch },
            None => RoleChange::NoLeader,
        };
        Applied { change, effects: Effects::NONE, lost_leadership }
    }
}
