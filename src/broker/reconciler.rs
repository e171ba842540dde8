//! Makes the partitions of this broker match the metadata image (replication.md 1.8).
//!
//! Per image, however much lies between it and the one before, in this order: publish it; stop what is deleted; leaders;
//! followers; configs; last the applied index, which heartbeats report and admin requests wait for.
//!
//! Runs on a thread of its own (see `Broker::start`): partition locks may be held over a write to a slow disk, which
//! must delay neither the control runtime nor other clients' requests.
//!
//! Invariant: nothing is acted on before the image knows this incarnation: earlier images tell of a previous life. No
//! file is created or synced here (but for the first topic that asks for page-cache durability where fsync is the
//! default, see [`Lives`]); logs make theirs at the first record.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use super::departures::Departures;
use super::lifecycle::Signals;
use super::metrics::Metrics;
use super::offline::Offline;
use super::partition::{Partition, PartitionEvents};
use super::previous_life::Lives;
use super::publication::Publication;
use super::registry::Registry;
use super::stream_follower::{FollowerStreams, Target};
use super::ticks::Ticks;
use crate::metadata::config::{Durability, TopicConfig};
use crate::metadata::{
    BrokerDelta, BrokerImage, MetadataDelta, MetadataImage, PartitionDelta, PartitionImage,
};
use crate::net::Identity;
use crate::replication::{RoleChange, Timing};
use crate::storage::{LogDirs, PartitionLog};
use crate::types::{NodeId, TopicIdPartition, TopicPartition, time};

pub(super) struct Reconciler {
    pub(super) identity: Arc<Identity>,
    pub(super) publication: Arc<Publication>,
    pub(super) registry: Arc<Registry>,
    pub(super) streams: Arc<FollowerStreams>,
    pub(super) signals: Arc<Signals>,
    pub(super) ticks: Arc<Ticks>,
    pub(super) events: Arc<dyn PartitionEvents>,
    pub(super) logs: LogDirs,
    pub(super) offline: Arc<Offline>,
    /// Found on disk at start, and not claimed by an image yet.
    pub(super) recovered: HashMap<TopicIdPartition, Arc<PartitionLog>>,
    pub(super) lives: Arc<Lives>,
    /// Of topics that do not say themselves.
    pub(super) durability: Durability,
    pub(super) timing: Timing,
    pub(super) metrics: Metrics,
    pub(super) departures: Arc<Departures>,
    /// What the partitions follow.
    pub(super) followed: Arc<MetadataImage>,
}

/// A replica that this broker holds, and its next state.
type Held<'a> = (TopicIdPartition, &'a PartitionImage);

impl Reconciler {
    /// Follows images until there will be no more.
    pub(super) async fn run(&mut self, mut images: watch::Receiver<Arc<MetadataImage>>) {
        loop {
            let image = images.borrow_and_update().clone();
            self.reconcile(image);
            if images.changed().await.is_err() {
                return;
            }
        }
    }

    fn me(&self) -> NodeId {
        self.identity.node_id
    }

    fn reconcile(&mut self, image: Arc<MetadataImage>) {
        self.publication.publish(image.clone());
        if !self.is_own_life(&image) {
            return;
        }
        let started = time::now();
        let delta = MetadataDelta::between(&self.followed, &image);
        self.follow_brokers(&delta.brokers);
        self.remove(&delta.partitions);
        let held: Vec<Held<'_>> =
            delta.partitions.iter().filter_map(|change| self.held(change)).collect();
        self.create(&held, &image);
        let (led, following): (Vec<_>, Vec<_>) =
            held.iter().partition(|(_, partition)| partition.leader == self.me());
        self.apply(&led, &image);
        self.apply(&following, &image);
        self.follow_offline(&image);
        self.set_aside_strays();
        self.follow_configs(&delta, &image);
        self.reconsider_isr(&delta.brokers, &image);
        if !held.is_empty() {
            let took = time::now().duration_since(started);
            let (led, following) = (led.len(), following.len());
            debug!(index = image.index, led, following, ?took, "replicas follow the metadata");
        }
        self.publication.set_applied(image.index);
        if !delta.brokers.is_empty() {
            // Registrations and controlled shutdowns wait until brokers say that they know.
            self.signals.heartbeat_soon();
        }
        self.followed = image;
    }

    /// Whether the image knows this incarnation, and so everything before its registration. It may tell of the
    /// registration before the controller's reply does.
    fn is_own_life(&self, image: &MetadataImage) -> bool {
        let own = image
            .broker(self.me())
            .filter(|broker| broker.registration.incarnation == self.identity.incarnation);
        let Some(own) = own else { return false };
        if own.broker_epoch > self.identity.broker_epoch() {
            // From here on streams may open, and say it in their hello.
            self.identity.set_broker_epoch(own.broker_epoch);
        }
        true
    }

    fn follow_brokers(&self, changes: &[BrokerDelta]) {
        for BrokerDelta { node_id, old, new } in changes {
            if *node_id == self.me() {
                let epochs = (old, new);
                if let (Some(old), Some(new)) = epochs
                    && old.broker_epoch != new.broker_epoch
                {
                    self.streams.reconnect_all();
                }
                continue;
            }
            let is_fenced = |broker: &Arc<BrokerImage>| broker.fenced;
            if new.as_ref().is_some_and(is_fenced) && old.as_ref().is_some_and(|b| !b.fenced) {
                self.departures.on_fenced(*node_id);
            }
            let target = new.as_ref().map(|broker| Target {
                peer: broker.registration.endpoints.peer.clone(),
                incarnation: broker.registration.incarnation,
                is_unfenced: !broker.fenced,
            });
            self.streams.set_target(*node_id, target);
        }
    }

    fn held<'a>(&self, change: &'a PartitionDelta) -> Option<Held<'a>> {
        let image = change.new.as_deref()?;
        image.replicas.contains(&self.me()).then_some((change.partition, image))
    }

    /// Stops and deletes what this broker is not to hold any more.
    fn remove(&self, changes: &[PartitionDelta]) {
        let removed: Vec<Arc<Partition>> = changes
            .iter()
            .filter(|change| change.old.is_some() && self.held(change).is_none())
            .filter_map(|change| self.registry.get(change.partition))
            .collect();
        if removed.is_empty() {
            return;
        }
        self.registry.update(|partitions| {
            for partition in &removed {
                partitions.remove(&partition.id());
            }
        });
        for partition in &removed {
            self.streams.unfollow(partition.id());
            partition.close();
            self.logs.delete(partition.log());
        }
        info!(count = removed.len(), first = %removed[0].name(), "replicas deleted");
    }

    /// Makes what is not there yet, over recovered logs or new ones, and shows all of it at once.
    fn create(&mut self, held: &[Held<'_>], image: &MetadataImage) {
        let was_assigned = self.followed.brokers.is_empty();
        let (mut created, mut missing) = (Vec::new(), 0);
        // Partitions of a topic come one after the other, and share its config.
        let mut last = None;
        for (id, _) in held {
            if self.registry.get(*id).is_some() {
                continue;
            }
            let topic = image.topic_by_id(id.topic_id).expect("its partitions are in this image");
            let name = TopicPartition { topic: topic.name.clone(), partition: id.partition };
            let config = match &last {
                Some((topic_id, config)) if *topic_id == id.topic_id => Arc::clone(config),
                _ => self.config(image, &topic.name),
            };
            last = Some((id.topic_id, config.clone()));
            let log = match self.recovered.remove(id) {
                Some(log) => {
                    log.update_config(config);
                    Ok(log)
                }
                None if self.offline.is_missing(*id, was_assigned) => {
                    missing += 1;
                    continue;
                }
                None => self.logs.create(&name, id.topic_id, config),
            };
            match log {
                Ok(log) => {
                    let (timing, events) = (self.timing, self.events.clone());
                    created.push((*id, Partition::new(self.me(), log, timing, events)));
                }
                Err(error) => {
                    self.metrics.reconcile_failures.inc();
                    warn!(partition = %name, %error, "cannot hold a replica");
                    self.offline.add_missing(*id);
                }
            }
        }
        if missing > 0 {
            warn!(missing, "replicas that may lie in a directory that is offline are not served");
        }
        if !created.is_empty() {
            self.registry.update(|partitions| partitions.extend(created));
        }
    }

    fn config(&self, image: &MetadataImage, topic: &str) -> Arc<TopicConfig> {
        let config = image.topic_config(topic, self.me());
        if config.durability.unwrap_or(self.durability) == Durability::PageCache {
            self.lives.uses_page_cache();
        }
        config
    }

    fn apply(&self, held: &[&Held<'_>], image: &MetadataImage) {
        for (id, state) in held {
            let Some(partition) = self.registry.get(*id) else { continue };
            match partition.apply_image(state) {
                RoleChange::Leader { new_epoch: true, .. } | RoleChange::NoLeader => {
                    self.streams.unfollow(*id);
                }
                RoleChange::Follower { leader, new_epoch: true, .. }
                    if self.may_follow(*id, &partition, image) =>
                {
                    self.streams.follow(leader, &partition);
                }
                RoleChange::Leader { .. } | RoleChange::Follower { .. } | RoleChange::Ignored => {}
            }
        }
    }

    /// Whether the replica can take what a leader has. A damaged one is repaired by it, once the image knows that it
    /// is out of service, so that nobody elects it meanwhile.
    fn may_follow(
        &self,
        id: TopicIdPartition,
        partition: &Partition,
        image: &MetadataImage,
    ) -> bool {
        let (log, is_online) = (partition.log(), image.is_online(self.me(), id));
        if !log.is_damaged() {
            return is_online;
        }
        let begun = if is_online { Ok(()) } else { log.begin_repair() };
        if let Err(error) = &begun {
            error!(partition = %partition.name(), %error, "a damaged replica cannot be repaired");
        }
        !is_online && begun.is_ok()
    }

    /// Replicas that cannot serve do not look as if they could; those that can again catch up.
    fn follow_offline(&self, image: &MetadataImage) {
        let replicas = |image: &MetadataImage| {
            image
                .offline
                .get(&self.me())
                .map(|offline| offline.replicas.clone())
                .unwrap_or_default()
        };
        let (before, now) = (replicas(&self.followed), replicas(image));
        for id in now.symmetric_difference(&before) {
            let leader = image.partition(*id).and_then(|state| state.leader.known());
            match (leader, self.registry.get(*id)) {
                (Some(leader), Some(partition))
                    if leader != self.me() && self.may_follow(*id, &partition, image) =>
                {
                    self.streams.follow(leader, &partition);
                }
                _ => self.streams.unfollow(*id),
            }
        }
    }

    /// After the first image of this life, what it does not claim belongs to topics that are gone.
    fn set_aside_strays(&mut self) {
        for (_, log) in self.recovered.drain() {
            let (partition, topic_id) = (log.name(), log.topic_id());
            warn!(%partition, %topic_id, "set aside a log that is no replica of this broker");
            self.logs.set_aside(&log);
        }
    }

    fn follow_configs(&self, delta: &MetadataDelta, image: &MetadataImage) {
        for topic_id in &delta.topics_reconfigured {
            let Some(topic) = image.topic_by_id(*topic_id) else { continue };
            let config = self.config(image, &topic.name);
            for (partition, _) in (0..).zip(&topic.partitions) {
                let id = TopicIdPartition { topic_id: *topic_id, partition };
                if let Some(partition) = self.registry.get(id) {
                    partition.update_config(config.clone());
                }
            }
        }
    }

    /// A broker that is fit for the ISR again, or is not any more, is noticed at once.
    fn reconsider_isr(&self, changes: &[BrokerDelta], image: &MetadataImage) {
        let changed = |node: &NodeId| changes.iter().any(|change| change.node_id == *node);
        if changes.is_empty() {
            return;
        }
        let now = time::now();
        for (id, partition) in self.registry.all() {
            let concerns = image.partition(id).is_some_and(|it| {
                it.leader == self.me()
                    && it.isr.len() < it.replicas.len()
                    && it.replicas.iter().any(changed)
            });
            if concerns && partition.on_tick(now) {
                self.ticks.want(id);
            }
        }
    }
}
