//! What must hold of every history of the control plane (replication.md 7, numbers 1-9). One check a file.

mod admin_is_linearizable;
mod apply_agreement;
mod broker_epochs;
mod epochs_grow;
mod fencing_is_total;
mod ids_are_unique;
mod no_dead_leader;
mod one_leader_per_epoch;
mod well_formed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kontiki::metadata::{MetadataImage, PartitionImage};
use kontiki::types::{MetadataIndex, NodeId, TopicIdPartition};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Sees every image that a node publishes (a reader of a watch may miss some) and every answered request.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    /// Orders what is asked and answered in this process.
    clock: AtomicU64,
    history: Arc<Mutex<History>>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct History {
    /// Per node and start, in the order in which they were published.
    published: Vec<(NodeId, Vec<Arc<MetadataImage>>)>,
    /// All of them, by index. Agreement says that it does not matter whose.
    images: BTreeMap<MetadataIndex, Arc<MetadataImage>>,
    blocks: Vec<Block>,
}

/// Producer ids that were handed out, and when.
#[derive(Debug, Clone, Copy)]
struct Block {
    asked: u64,
    answered: u64,
    first: i64,
    count: i64,
}

impl Witness {
    pub(crate) fn watch(&self, node: NodeId, mut images: watch::Receiver<Arc<MetadataImage>>) {
        let history = self.history.clone();
        let life = {
            let mut history = history.lock();
            history.published.push((node, Vec::new()));
            history.published.len() - 1
        };
        tokio::spawn(async move {
            loop {
                let image = images.borrow_and_update().clone();
                history.lock().see(life, image);
                if images.changed().await.is_err() {
                    return;
                }
            }
        });
    }

    pub(crate) fn asked(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn answered(&self, asked: u64, first: i64, count: i64) {
        let answered = self.clock.fetch_add(1, Ordering::SeqCst);
        self.history.lock().blocks.push(Block { asked, answered, first, count });
    }
}

/// Checks everything up to and including `last`.
pub(crate) fn check(witness: &Witness, last: &Arc<MetadataImage>) {
    let mut history = witness.history.lock().clone();
    history.images.insert(last.index, last.clone());
    apply_agreement::check(&history);
    epochs_grow::check(&history);
    one_leader_per_epoch::check(&history);
    well_formed::check(&history);
    no_dead_leader::check(&history);
    fencing_is_total::check(&history);
    broker_epochs::check(&history);
    admin_is_linearizable::check(&history);
    ids_are_unique::check(&history);
}

impl History {
    fn see(&mut self, life: usize, image: Arc<MetadataImage>) {
        self.published[life].1.push(image.clone());
        self.images.insert(image.index, image);
    }

    fn images(&self) -> impl Iterator<Item = &Arc<MetadataImage>> {
        self.images.values()
    }

    /// Each image with the one before it.
    fn steps(&self) -> impl Iterator<Item = (&Arc<MetadataImage>, &Arc<MetadataImage>)> {
        self.images().zip(self.images().skip(1))
    }
}

fn partitions(
    image: &MetadataImage,
) -> impl Iterator<Item = (TopicIdPartition, &Arc<PartitionImage>)> {
    image.topics.values().flat_map(|topic| {
        (0..).zip(&topic.partitions).map(|(partition, state)| {
            (TopicIdPartition { topic_id: topic.topic_id, partition }, state)
        })
    })
}
