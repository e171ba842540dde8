//! The nodes, their connections, and what may happen to them next.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::controller::{AlterResult, Controller};
use super::model::{Entry, ModelLog, index, offset};
use crate::controller::AlterPartition;
use crate::metadata::config::TopicConfig;
use crate::protocol::ErrorCode;
use crate::replication::{
    Context, Effects, FollowerFetch, LogEnds, Replica, Reset, Role, RoleChange, Session, Settings,
    SubscribeRefusal, Timing,
};
use crate::types::random::Seeded;
use crate::types::{BrokerEpoch, LeaderEpoch, NodeId, Offset, TopicIdPartition, Uuid, time};

pub(super) const MIN_ISR: usize = 2;

pub(super) struct Node {
    pub(super) log: ModelLog,
    pub(super) replica: Replica,
    pub(super) alive: bool,
    broker_epoch: BrokerEpoch,
    /// Index of the last version that it has applied, and of the first one that it may.
    version: Option<usize>,
    version_min: usize,
    next_slot: u32,
    /// What it pushes to whom: slot and next offset.
    streams: BTreeMap<NodeId, (u32, Offset)>,
    /// Produce requests that wait: exclusive end and record.
    waiting: VecDeque<(Offset, u64)>,
    alter: Option<(u64, AlterPartition)>,
    next_sequence: u64,
    checkpoint: Offset,
    /// The highest watermark that it has ever exposed, over all of its lives.
    pub(super) exposed: Offset,
}

enum ToLeader {
    Subscribe(FollowerFetch),
    Ack { slot: u32, ends: LogEnds },
}

enum ToFollower {
    Push { slot: u32, from: Offset, entries: Vec<Entry>, high_watermark: Offset },
    Diverging { slot: u32, epoch: LeaderEpoch, end_offset: Offset },
    Refused { slot: u32, code: ErrorCode, ends: LogEnds },
}

enum ToController {
    Request { from: NodeId, broker_epoch: BrokerEpoch, sequence: u64, alter: AlterPartition },
    Reply { to: NodeId, broker_epoch: BrokerEpoch, sequence: u64, reply: AlterResult },
}

pub(super) struct World {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) controller: Controller,
    /// By follower and leader; both directions keep their order until the connection breaks.
    to_leader: BTreeMap<(NodeId, NodeId), VecDeque<ToLeader>>,
    to_follower: BTreeMap<(NodeId, NodeId), VecDeque<ToFollower>>,
    /// What old connections still deliver, beside the new ones.
    late_to_leader: Vec<(NodeId, NodeId, VecDeque<ToLeader>)>,
    late_to_follower: Vec<(NodeId, VecDeque<ToFollower>)>,
    /// These arrive in any order.
    to_controller: Vec<ToController>,
    /// A process in fsync mode vouches only for what is on disk, and loses the rest when it dies.
    fsync: bool,
    now: Instant,
    next_id: u64,
    /// Everything below any high watermark that was ever exposed.
    pub(super) committed: Vec<u64>,
    acknowledged: usize,
    /// Kept only when somebody will read it.
    history: Option<Vec<String>>,
}

const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

impl World {
    pub(super) fn new(fsync: bool, tell: bool) -> Self {
        let node = |_| Node {
            log: ModelLog::default(),
            replica: new_replica(NodeId(0), 0),
            alive: true,
            broker_epoch: BrokerEpoch(0),
            version: None,
            version_min: 0,
            next_slot: 0,
            streams: BTreeMap::new(),
            waiting: VecDeque::new(),
            alter: None,
            next_sequence: 1,
            checkpoint: 0,
            exposed: 0,
        };
        let mut nodes: BTreeMap<_, _> = NODES.iter().map(|&id| (id, node(id))).collect();
        for (&id, node) in &mut nodes {
            node.replica = new_replica(id, 0);
        }
        Self {
            nodes,
            controller: Controller::new(&NODES),
            to_leader: BTreeMap::new(),
            to_follower: BTreeMap::new(),
            late_to_leader: Vec::new(),
            late_to_follower: Vec::new(),
            to_controller: Vec::new(),
            fsync,
            now: time::now(),
            next_id: 0,
            committed: Vec::new(),
            acknowledged: 0,
            history: tell.then(Vec::new),
        }
    }

    pub(super) fn history(&self) -> String {
        self.history.iter().flatten().cloned().collect::<Vec<_>>().join("\n")
    }

    /// One thing happens.
    pub(super) fn step(&mut self, random: &mut Seeded) {
        let id = NODES[random.below(NODES.len())];
        match random.below(100) {
            0..12 => self.produce(id),
            12..42 => self.deliver_some(random),
            42..56 => self.push(id, random),
            56..64 => self.flush(id, random),
            64..71 => self.subscribe(id),
            71..80 => self.apply_image(id, random),
            80..88 => self.talk_to_controller(random),
            88..92 => {
                let milliseconds = [5, 50, 400, 2000][random.below(4)];
                self.pass_time(Duration::from_millis(milliseconds));
            }
            92..94 => self.disconnect(id, NODES[random.below(NODES.len())]),
            94..95 => self.fence(id, false),
            95..97 => self.fence(id, true),
            97..98 => {
                self.note(|| "the leader is moved".to_owned());
                self.controller.move_leader(random);
            }
            98 => self.kill(id, random),
            _ => self.start(id),
        }
    }

    /// Faults end: everybody must come together, and what is written then is acknowledged.
    pub(super) fn heal(&mut self, random: &mut Seeded) {
        let acknowledged = self.acknowledged;
        for round in 0..500 {
            for id in NODES {
                self.start(id);
                self.apply_image(id, random);
                self.fence(id, true);
                self.subscribe(id);
                self.push(id, random);
                self.flush(id, random);
                if round % 8 == 0 {
                    self.produce(id);
                }
            }
            for _ in 0..12 {
                self.deliver_some(random);
                self.talk_to_controller(random);
            }
            self.pass_time(Duration::from_millis(20));
            self.check();
            let whole = self.controller.latest().partition.isr.len() == NODES.len();
            if whole && self.acknowledged >= acknowledged + 3 {
                return;
            }
        }
        panic!("the replicas do not come together");
    }

    fn produce(&mut self, id: NodeId) {
        let entry_id = self.next_id;
        self.with(id, |world, node, context| {
            let Some(leader) = node.replica.leader_mut() else { return };
            if !leader.has_enough_replicas() {
                return;
            }
            world.next_id += 1;
            let epoch = leader.epoch();
            node.log.append(Entry { epoch, id: entry_id });
            if !world.fsync {
                node.log.durable = node.log.entries.len();
            }
            node.waiting.push_back((offset(node.log.entries.len()), entry_id));
            let effects = leader.on_log(node.log.ends(), context);
            world.note(|| format!("{id} appends {entry_id} under {epoch}"));
            world.take_effects(id, node, effects);
        });
    }

    fn flush(&mut self, id: NodeId, random: &mut Seeded) {
        self.with(id, |world, node, context| {
            let dirty = node.log.entries.len() - node.log.durable;
            node.log.durable += if dirty == 0 { 0 } else { 1 + random.below(dirty) };
            if let Some(leader) = node.replica.leader_mut() {
                let effects = leader.on_log(node.log.ends(), context);
                world.take_effects(id, node, effects);
            } else {
                world.ack(id, node);
            }
        });
    }

    fn ack(&mut self, id: NodeId, node: &Node) {
        let Role::Follower(follower) = node.replica.role() else { return };
        if let (Some(leader), Some(slot)) = (follower.leader(), follower.slot()) {
            let ack = ToLeader::Ack { slot, ends: node.log.ends() };
            self.to_leader.entry((id, leader)).or_default().push_back(ack);
        }
    }

    fn subscribe(&mut self, id: NodeId) {
        self.with(id, |world, node, _| {
            let Some(follower) = node.replica.follower_mut() else { return };
            let Some(leader) = follower.leader().filter(|_| follower.slot().is_none()) else {
                return;
            };
            node.next_slot += 1;
            follower.subscribe(node.next_slot);
            let fetch = FollowerFetch {
                node: id,
                session: Session { slot: node.next_slot, broker_epoch: node.broker_epoch },
                leader_epoch: follower.epoch(),
                ends: node.log.ends(),
                last_fetched_epoch: node.log.latest_epoch(),
            };
            let queue = world.to_leader.entry((id, leader)).or_default();
            queue.push_back(ToLeader::Subscribe(fetch));
        });
    }

    fn push(&mut self, id: NodeId, random: &mut Seeded) {
        self.with(id, |world, node, _| {
            for (&follower, (slot, next)) in &mut node.streams {
                let from = index(*next);
                let to = from + random.below(node.log.entries.len().saturating_sub(from) + 1);
                *next = offset(to);
                let push = ToFollower::Push {
                    slot: *slot,
                    from: offset(from),
                    entries: node.log.entries[from..to].to_vec(),
                    high_watermark: node.replica.high_watermark(),
                };
                world.to_follower.entry((follower, id)).or_default().push_back(push);
            }
        });
    }

    fn deliver_some(&mut self, random: &mut Seeded) {
        let pair = (NODES[random.below(3)], NODES[random.below(3)]);
        for _ in 0..=random.below(3) {
            if let Some(message) = self.to_leader.get_mut(&pair).and_then(VecDeque::pop_front) {
                self.at_leader(pair.0, pair.1, message);
            }
            if let Some(message) = self.to_follower.get_mut(&pair).and_then(VecDeque::pop_front) {
                self.at_follower(pair.0, message);
            }
        }
        if !self.late_to_leader.is_empty() && (random.below(100) < 20) {
            let at = random.below(self.late_to_leader.len());
            let (from, to, queue) = &mut self.late_to_leader[at];
            match (*from, *to, queue.pop_front()) {
                (from, to, Some(message)) => self.at_leader(from, to, message),
                _ => drop(self.late_to_leader.swap_remove(at)),
            }
        }
        if !self.late_to_follower.is_empty() && (random.below(100) < 20) {
            let at = random.below(self.late_to_follower.len());
            let (to, queue) = &mut self.late_to_follower[at];
            match (*to, queue.pop_front()) {
                (to, Some(message)) => self.at_follower(to, message),
                _ => drop(self.late_to_follower.swap_remove(at)),
            }
        }
    }

    fn at_leader(&mut self, from: NodeId, id: NodeId, message: ToLeader) {
        self.with(id, |world, node, context| match message {
            ToLeader::Ack { slot, ends } => {
                let Some(leader) = node.replica.leader_mut() else { return };
                let effects = leader.on_ack(from, slot, ends, context);
                world.take_effects(id, node, effects);
            }
            ToLeader::Subscribe(fetch) => {
                let slot = fetch.session.slot;
                let Some(leader) = node.replica.leader_mut() else {
                    let code = ErrorCode::NotLeaderOrFollower;
                    return world.answer(
                        from,
                        id,
                        ToFollower::Refused { slot, code, ends: node.log.ends() },
                    );
                };
                let log = &node.log;
                match leader.on_subscribe(&fetch, |e| log.end_offset_for_epoch(e), context) {
                    Ok(effects) => {
                        node.streams.insert(from, (slot, fetch.ends.end));
                        world.take_effects(id, node, effects);
                    }
                    Err(SubscribeRefusal::Diverging { epoch, end_offset }) => {
                        let answer = ToFollower::Diverging { slot, epoch, end_offset };
                        world.answer(from, id, answer);
                    }
                    Err(SubscribeRefusal::Code(code)) => {
                        let ends = node.log.ends();
                        world.answer(from, id, ToFollower::Refused { slot, code, ends });
                    }
                    Err(SubscribeRefusal::Superseded) => {}
                }
            }
        });
    }

    fn answer(&mut self, follower: NodeId, leader: NodeId, message: ToFollower) {
        self.to_follower.entry((follower, leader)).or_default().push_back(message);
    }

    fn at_follower(&mut self, id: NodeId, message: ToFollower) {
        self.with(id, |world, node, _| {
            let ends = node.log.ends();
            let Some(follower) = node.replica.follower_mut() else { return };
            match message {
                ToFollower::Push { slot, from, entries, high_watermark } => {
                    if follower.on_push(slot, from, ends).is_err() {
                        return;
                    }
                    let current = follower.epoch();
                    for entry in entries {
                        assert!(entry.epoch <= current, "a push from the future");
                        node.log.append(entry);
                    }
                    if !world.fsync {
                        node.log.durable = node.log.entries.len();
                    }
                    let known = follower.on_high_watermark(high_watermark, node.log.ends());
                    world.take_effects(
                        id,
                        node,
                        Effects { high_watermark: known, ..Effects::NONE },
                    );
                    world.ack(id, node);
                }
                ToFollower::Diverging { slot, epoch, end_offset } => {
                    let own = node.log.end_offset_for_epoch(epoch);
                    match follower.on_diverging(slot, epoch, end_offset, own, ends) {
                        Ok(reset) => world.reset(id, node, reset),
                        Err(refusal) => {
                            assert_eq!(refusal, crate::replication::FollowerRefusal::StaleSlot);
                        }
                    }
                }
                ToFollower::Refused { slot, code, ends: leader_ends } => {
                    if follower.slot() != Some(slot) {
                        return;
                    }
                    if code == ErrorCode::OffsetOutOfRange {
                        let (start, end) = (leader_ends.start, leader_ends.end);
                        let reset = follower.on_out_of_range(slot, start, end, ends);
                        world.reset(id, node, reset.expect("never below the high watermark"));
                    } else {
                        follower.unsubscribe(slot);
                    }
                }
            }
        });
    }

    fn reset(&mut self, id: NodeId, node: &mut Node, reset: Reset) {
        match reset {
            Reset::Nothing => {}
            Reset::TruncateTo(end) => {
                assert!(end >= node.exposed, "{id} truncates below what it has exposed (15)");
                self.note(|| format!("{id} truncates to {end}"));
                node.log.truncate(index(end));
            }
            Reset::RestartAt(_) => panic!("nothing is deleted here"),
        }
    }

    fn apply_image(&mut self, id: NodeId, random: &mut Seeded) {
        self.with(id, |world, node, context| {
            let known = node.version.map_or(node.version_min, |version| version + 1);
            let behind = world.controller.versions.len().saturating_sub(known);
            if behind == 0 {
                return;
            }
            // Some at once: an image may leap over states.
            let version = known + random.below(behind);
            node.version = Some(version);
            let image = world.controller.versions[version].partition.clone();
            let ends = node.log.ends();
            let applied = node.replica.apply_image(&image, ends, context);
            if applied.lost_leadership {
                node.waiting.clear();
            }
            match applied.change {
                RoleChange::Leader { epoch, new_epoch: true } => {
                    world.note(|| format!("{id} leads, epoch {epoch}, from {}", ends.end));
                    node.log.assign_epoch(epoch, node.log.entries.len());
                    node.streams.clear();
                    node.alter = None;
                }
                RoleChange::Follower { new_epoch: true, .. } | RoleChange::NoLeader => {
                    node.streams.clear();
                    node.alter = None;
                }
                _ => {}
            }
            world.take_effects(id, node, applied.effects);
        });
    }

    /// A request goes out, arrives, or is answered; some are repeated, some answers are lost.
    fn talk_to_controller(&mut self, random: &mut Seeded) {
        let id = NODES[random.below(NODES.len())];
        self.with(id, |world, node, _| {
            let pending = node.replica.leader_mut().and_then(|it| it.pending_alter().cloned());
            if let Some(alter) = pending {
                // A resend keeps its number, another proposal takes a higher one.
                let sequence = match &node.alter {
                    Some((sequence, sent)) if *sent == alter => *sequence,
                    _ => {
                        node.next_sequence += 1;
                        node.next_sequence
                    }
                };
                node.alter = Some((sequence, alter.clone()));
                let broker_epoch = node.broker_epoch;
                let request = ToController::Request { from: id, broker_epoch, sequence, alter };
                world.to_controller.push(request);
            }
        });
        if self.to_controller.is_empty() {
            return;
        }
        let message = self.to_controller.swap_remove(random.below(self.to_controller.len()));
        match message {
            ToController::Request { from, broker_epoch, sequence, alter } => {
                if random.below(100) < 20 {
                    let alter = alter.clone();
                    let again = ToController::Request { from, broker_epoch, sequence, alter };
                    self.to_controller.push(again);
                }
                let before = self.controller.versions.len();
                let reply = self.controller.alter(from, broker_epoch, sequence, &alter);
                self.note(|| format!("{from} asks for {:?}: {reply:?}", alter.isr));
                if self.controller.versions.len() > before {
                    self.check_new_isr();
                }
                if let Some(reply) = reply.filter(|_| random.below(100) >= 20) {
                    let to = from;
                    let reply = ToController::Reply { to, broker_epoch, sequence, reply };
                    self.to_controller.push(reply);
                }
            }
            ToController::Reply { to, broker_epoch, sequence, reply } => {
                self.with(to, |world, node, context| {
                    // The sender knows which request a reply is of.
                    let current = node.alter.take_if(|(sent, _)| *sent == sequence);
                    let Some((_, alter)) = current.filter(|_| node.broker_epoch == broker_epoch)
                    else {
                        return;
                    };
                    let Some(leader) = node.replica.leader_mut() else { return };
                    let effects = leader.on_alter_reply(&alter, Some(reply), context);
                    world.take_effects(to, node, effects);
                });
            }
        }
    }

    fn pass_time(&mut self, duration: Duration) {
        self.now += duration;
        for id in NODES {
            self.with(id, |world, node, context| {
                let Some(leader) = node.replica.leader_mut() else { return };
                let effects = leader.on_tick(context);
                world.take_effects(id, node, effects);
            });
        }
    }

    fn disconnect(&mut self, follower: NodeId, leader: NodeId) {
        let pair = (follower, leader);
        self.late_to_leader
            .extend(self.to_leader.remove(&pair).map(|queue| (follower, leader, queue)));
        self.late_to_follower.extend(self.to_follower.remove(&pair).map(|queue| (follower, queue)));
        self.with(leader, |_, node, _| {
            if let (Some((slot, _)), Some(leader)) =
                (node.streams.remove(&follower), node.replica.leader_mut())
            {
                leader.on_unsubscribe(follower, slot);
            }
        });
        self.with(follower, |_, node, _| {
            let Some(role) = node.replica.follower_mut() else { return };
            if let Some(slot) = role.slot().filter(|_| role.leader() == Some(leader)) {
                role.unsubscribe(slot);
            }
        });
    }

    fn fence(&mut self, id: NodeId, active: bool) {
        if active && (!self.nodes[&id].alive || self.nodes[&id].version.is_none()) {
            return;
        }
        if self.controller.latest().brokers[&id].1 != active {
            self.note(|| format!("{id} is {}", if active { "unfenced" } else { "fenced" }));
        }
        self.controller.set_active(id, active);
        self.check_elected();
    }

    /// kill -9, and in fsync mode the machine with it.
    fn kill(&mut self, id: NodeId, random: &mut Seeded) {
        if !self.nodes[&id].alive {
            return;
        }
        for other in NODES {
            self.disconnect(id, other);
            self.disconnect(other, id);
        }
        // What was sent to a dead process does not reach the next one.
        self.late_to_leader.retain(|(_, to, _)| *to != id);
        self.late_to_follower.retain(|(to, _)| *to != id);
        let fsync = self.fsync;
        self.with(id, |world, node, _| {
            node.alive = false;
            if fsync {
                let lost = node.log.entries.len() - node.log.durable;
                let kept = node.log.durable + random.below(lost + 1);
                node.log.truncate(kept);
                node.log.durable = kept;
            }
            if random.below(100) < 50 {
                node.checkpoint = node.replica.high_watermark();
            }
            node.streams.clear();
            node.waiting.clear();
            world.note(|| format!("{id} dies with {} entries", node.log.entries.len()));
        });
    }

    fn start(&mut self, id: NodeId) {
        if self.nodes[&id].alive {
            return;
        }
        let broker_epoch = self.controller.register(id);
        self.note(|| format!("{id} starts as {broker_epoch}"));
        let version_min = self.controller.versions.len() - 1;
        let node = self.nodes.get_mut(&id).expect("one of the nodes");
        node.alive = true;
        node.broker_epoch = broker_epoch;
        node.version = None;
        node.version_min = version_min;
        node.alter = None;
        node.next_sequence = 1;
        node.replica = new_replica(id, node.checkpoint.min(node.log.ends().end));
        self.check_elected();
    }

    fn take_effects(&mut self, id: NodeId, node: &mut Node, effects: Effects) {
        let Some(high_watermark) = effects.high_watermark else { return };
        self.expose(id, node, high_watermark);
        let Role::Leader(leader) = node.replica.role() else { return };
        assert!(leader.has_enough_replicas(), "a high watermark moves below the minimum ISR (17)");
        while node.waiting.front().is_some_and(|(required, _)| *required <= high_watermark) {
            let Some((required, entry_id)) = node.waiting.pop_front() else { return };
            if leader.had_enough_replicas() {
                let isr = leader.isr().maximal_len();
                assert!(isr >= MIN_ISR, "acknowledged with {isr} replicas (17)");
                assert_eq!(self.committed[index(required - 1)], entry_id, "acknowledged (10)");
                self.acknowledged += 1;
            }
        }
    }

    /// Runs an event at a living node.
    fn with(&mut self, id: NodeId, event: impl FnOnce(&mut World, &mut Node, Context<'_>)) {
        let mut node = self.nodes.remove(&id).expect("one of the nodes");
        if node.alive {
            let version = node.version.map(|it| Arc::clone(&self.controller.versions[it]));
            let active = |other: NodeId| {
                let (epoch, active) = *version.as_ref()?.brokers.get(&other)?;
                active.then_some(epoch)
            };
            event(self, &mut node, Context { now: self.now, active: &active });
        }
        self.nodes.insert(id, node);
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(text());
        }
    }
}

fn new_replica(me: NodeId, high_watermark: Offset) -> Replica {
    let topic_id = Uuid([7; 16]);
    let settings = Settings { topic: Arc::new(TopicConfig::default()), timing: Timing::default() };
    Replica::new(me, TopicIdPartition { topic_id, partition: 0 }, high_watermark, settings)
}
