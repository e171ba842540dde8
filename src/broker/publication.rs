//! What this broker shows of the metadata: the published image, and how far its partitions have followed it.
//!
//! Invariant: `applied` moves last, after every subscriber has followed the image (replication.md 1.8).

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::metadata::MetadataImage;
use crate::types::MetadataIndex;

#[derive(Debug)]
pub(super) struct Publication {
    image: ArcSwap<MetadataImage>,
    applied: watch::Sender<MetadataIndex>,
}

impl Publication {
    pub(super) fn new() -> Self {
        Self { image: ArcSwap::default(), applied: watch::channel(0).0 }
    }

    pub(super) fn image(&self) -> Arc<MetadataImage> {
        self.image.load_full()
    }

    /// Without taking a share of the image.
    pub(super) fn with_image<R>(&self, look: impl FnOnce(&MetadataImage) -> R) -> R {
        look(&self.image.load())
    }

    pub(super) fn publish(&self, image: Arc<MetadataImage>) {
        self.image.store(image);
    }

    /// Everything here follows the image of this index.
    pub(super) fn set_applied(&self, index: MetadataIndex) {
        self.applied.send_replace(index);
    }

    pub(super) fn applied_index(&self) -> MetadataIndex {
        *self.applied.borrow()
    }

    /// Changes with every image that everything here has followed.
    pub(super) fn applied(&self) -> watch::Receiver<MetadataIndex> {
        self.applied.subscribe()
    }

    pub(super) async fn wait_applied(&self, index: MetadataIndex) {
        // The sender lives in `self`, so the channel cannot close meanwhile.
        let _ = self.applied.subscribe().wait_for(|applied| *applied >= index).await;
    }
}
