//! Replays committed entries into images, and publishes them.
//!
//! Invariant: replay is the only thing that changes an image, in the order of the log. It cannot fail; if it does, or
//! panics, the process stops before anybody sees what came out (replication.md 1.1 R5).

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend};
use tokio::sync::watch;

use super::raft::{Entry, LogId, Outcome, SnapshotMeta, StoredMembership, TypeConfig};
use super::snapshot_store::SnapshotStore;
use crate::metadata::{MetadataImage, Replayed};

type ImageSnapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, Arc<MetadataImage>>;

/// What happens when this node may not go on. It does not return in a real process.
#[derive(Clone)]
pub struct Fault(Arc<dyn Fn(&str) + Send + Sync>);

impl Fault {
    pub fn new(stop: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(stop))
    }

    /// Says why, and ends the process with code 70.
    pub fn exit() -> Self {
        Self::new(|reason| {
            tracing::error!("this node stops: {reason}");
            std::process::exit(70);
        })
    }

    pub(super) fn stop(&self, reason: &str) {
        (self.0)(reason);
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fault")
    }
}

/// The metadata of this node. Owned by openraft's apply task.
#[derive(Debug)]
pub struct StateMachine {
    image: Arc<MetadataImage>,
    last_applied: Option<LogId>,
    membership: StoredMembership,
    images: watch::Sender<Arc<MetadataImage>>,
    snapshots: SnapshotStore,
    fault: Fault,
}

impl StateMachine {
    /// Empty: openraft installs the snapshot and replays what was committed.
    pub fn new(snapshots: SnapshotStore, fault: Fault) -> Self {
        let image = Arc::<MetadataImage>::default();
        let images = watch::Sender::new(image.clone());
        Self {
            image,
            last_applied: None,
            membership: StoredMembership::default(),
            images,
            snapshots,
            fault,
        }
    }

    /// Changes with every published image.
    pub fn images(&self) -> watch::Receiver<Arc<MetadataImage>> {
        self.images.subscribe()
    }

    fn replay(&mut self, image: &mut MetadataImage, entry: &Entry) -> io::Result<Outcome> {
        let index = entry.log_id.index;
        let replayed = match &entry.payload {
            EntryPayload::Normal(proposal) => {
                let replay = AssertUnwindSafe(|| image.replay(index, &proposal.0));
                catch_unwind(replay)
                    .map_err(|_| "replay panicked".to_owned())
                    .and_then(|replayed| replayed.map_err(|error| error.to_string()))
            }
            EntryPayload::Blank => {
                image.advance(index);
                Ok(Replayed::Applied)
            }
            EntryPayload::Membership(membership) => {
                image.advance(index);
                self.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                Ok(Replayed::Applied)
            }
        };
        let replayed = replayed.map_err(|reason| {
            let reason = format!("metadata entry {index} cannot be applied: {reason}");
            self.fault.stop(&reason);
            io::Error::other(reason)
        })?;
        self.last_applied = Some(entry.log_id);
        Ok(Outcome::of(index, replayed))
    }

    fn publish(&mut self, image: Arc<MetadataImage>) {
        self.image = image.clone();
        self.images.send_replace(image);
    }

    fn snapshot_meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.last_applied, last_membership: self.membership.clone() }
    }
}

impl RaftStateMachine<TypeConfig> for StateMachine {
    type SnapshotData = Arc<MetadataImage>;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.last_applied, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut image = MetadataImage::clone(&self.image);
        let mut answers = Vec::new();
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let outcome = self.replay(&mut image, &entry)?;
            answers.extend(responder.map(|responder| (responder, outcome)));
        }
        // Published before it is answered: who was told that a change is applied finds it in the image.
        self.publish(Arc::new(image));
        for (responder, outcome) in answers {
            responder.send(outcome);
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder {
            meta: self.snapshot_meta(),
            image: self.image.clone(),
            snapshots: self.snapshots.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta,
        image: Arc<MetadataImage>,
    ) -> io::Result<()> {
        save(self.snapshots.clone(), meta.clone(), image.clone()).await?;
        self.last_applied = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.publish(image);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<ImageSnapshot>> {
        let snapshots = self.snapshots.clone();
        let loaded = blocking(move || snapshots.load()).await?;
        Ok(loaded.map(|(meta, image)| Snapshot { meta, snapshot: Arc::new(image) }))
    }
}

/// An image that is being made a snapshot. The image is immutable, so applying goes on meanwhile.
#[derive(Debug)]
pub struct SnapshotBuilder {
    meta: SnapshotMeta,
    image: Arc<MetadataImage>,
    snapshots: SnapshotStore,
}

impl RaftSnapshotBuilder<TypeConfig> for SnapshotBuilder {
    type SnapshotData = Arc<MetadataImage>;

    async fn build_snapshot(&mut self) -> io::Result<ImageSnapshot> {
        save(self.snapshots.clone(), self.meta.clone(), self.image.clone()).await?;
        Ok(Snapshot { meta: self.meta.clone(), snapshot: self.image.clone() })
    }
}

async fn save(
    snapshots: SnapshotStore,
    meta: SnapshotMeta,
    image: Arc<MetadataImage>,
) -> io::Result<()> {
    blocking(move || snapshots.save(&meta, &image)).await
}

/// Files are read and written off the runtime's threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
