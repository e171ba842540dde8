//! What this broker cannot serve, and telling the active controller about it.
//!
//! The image is compared with what is so whenever either changes; where they differ, all of it is reported, until the
//! image says the same. So a report that got lost, a new controller and a new registration need nothing of their own.
//!
//! Invariant: a fenced broker asks to stay fenced while the image does not say what it cannot serve, so that nobody
//! elects such a replica. Nothing here waits for a disk.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use super::control_plane::ControlPlane;
use super::publication::Publication;
use crate::controller::{ControllerCall, ControllerReply, ControllerRequest, ReportOfflineRequest};
use crate::metadata::{MetadataImage, OfflineImage};
use crate::net::Identity;
use crate::storage::LogDirs;
use crate::types::{NodeId, TopicIdPartition};

const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(100);
/// Longest text of what is wrong with a directory.
const REASON_SIZE_MAX: usize = 300;

/// Collects what is wrong. Cheap to ask while nothing is.
#[derive(Debug)]
pub(super) struct Offline {
    logs: LogDirs,
    /// Replicas that may lie in a directory that could not be read at start.
    missing: Mutex<BTreeSet<TopicIdPartition>>,
    pub(super) news: Arc<Notify>,
}

impl Offline {
    /// `news` is notified when the logs say something else.
    pub(super) fn new(logs: LogDirs, news: Arc<Notify>) -> Self {
        Self { logs, missing: Mutex::default(), news }
    }

    /// The replica has no place here.
    pub(super) fn add_missing(&self, replica: TopicIdPartition) {
        self.missing.lock().insert(replica);
        self.news.notify_one();
    }

    /// The replica was assigned to this broker before it started, and is in none of the directories that could be read.
    /// If one could not, the replica may be there: another one, empty, would stand against it one day.
    pub(super) fn is_missing(&self, replica: TopicIdPartition, was_assigned: bool) -> bool {
        let mut missing = self.missing.lock();
        if was_assigned && self.logs.has_unread() {
            missing.insert(replica);
        }
        missing.contains(&replica)
    }

    /// What `image` should say of this broker, and which replicas may have lost something.
    fn present(
        &self,
        image: &MetadataImage,
        me: NodeId,
    ) -> (OfflineImage, BTreeSet<TopicIdPartition>) {
        let is_held = |id: &TopicIdPartition| {
            image.partition(*id).is_some_and(|partition| partition.replicas.contains(&me))
        };
        let logs: Vec<_> =
            self.logs.offline_logs().into_iter().filter(|log| is_held(&log.id)).collect();
        let missing = self.missing.lock();
        let directories = self.logs.offline().into_iter().map(|(path, error)| {
            let mut reason = error.to_string();
            reason.truncate(reason.floor_char_boundary(REASON_SIZE_MAX));
            (path.display().to_string(), reason)
        });
        let offline = OfflineImage {
            directories: directories.collect(),
            replicas: missing
                .iter()
                .copied()
                .filter(is_held)
                .chain(logs.iter().map(|log| log.id))
                .collect(),
        };
        (offline, logs.iter().filter(|log| log.lossy).map(|log| log.id).collect())
    }

    /// What has to be reported so that `image` says what is so.
    fn unreported(
        &self,
        image: &MetadataImage,
        me: NodeId,
    ) -> Option<(OfflineImage, BTreeSet<TopicIdPartition>)> {
        let (offline, lossy) = self.present(image, me);
        let is_known = match image.offline.get(&me) {
            Some(known) => **known == offline,
            None => offline == OfflineImage::default(),
        };
        (!is_known).then_some((offline, lossy))
    }

    /// For heartbeats.
    pub(super) fn disk_stall_ms(&self) -> u32 {
        u32::try_from(self.logs.stall().as_millis()).unwrap_or(u32::MAX)
    }

    /// Whether this broker must not be unfenced by `image`.
    pub(super) fn holds_back(&self, image: &MetadataImage, me: NodeId) -> bool {
        self.logs.is_all_offline()
            || (image.broker(me).is_none_or(|broker| broker.fenced)
                && self.unreported(image, me).is_some())
    }
}

/// Reports to the active controller.
#[derive(Debug)]
pub(super) struct OfflineReporter {
    pub(super) control: Arc<dyn ControlPlane>,
    pub(super) identity: Arc<Identity>,
    pub(super) publication: Arc<Publication>,
    pub(super) offline: Arc<Offline>,
}

impl OfflineReporter {
    pub(super) async fn run(self) {
        let mut applied = self.publication.applied();
        loop {
            applied.mark_unchanged();
            let reported = self.report().await;
            tokio::select! {
                _ = applied.changed() => {}
                () = self.offline.news.notified() => {}
                () = tokio::time::sleep(RETRY), if !reported => {}
            }
        }
    }

    /// False: try again soon.
    async fn report(&self) -> bool {
        let (image, node_id) = (self.publication.image(), self.identity.node_id);
        let is_own = |broker: &crate::metadata::BrokerImage| {
            broker.registration.incarnation == self.identity.incarnation
        };
        let Some(own) = image.broker(node_id).filter(|broker| is_own(broker)) else { return true };
        let Some((offline, lossy)) = self.offline.unreported(&image, node_id) else { return true };
        let (replicas, directories) = (offline.replicas.len(), offline.directories.clone());
        let request = ReportOfflineRequest {
            node_id,
            broker_epoch: own.broker_epoch,
            offline: Arc::new(offline),
            lossy,
        };
        let call = ControllerCall {
            principal: format!("broker-{node_id}"),
            request: ControllerRequest::ReportOffline(request),
        };
        match self.control.submit(call, ANSWER_TIMEOUT).await {
            Ok(Ok(ControllerReply::Done)) => {
                info!(replicas, ?directories, "told the controller what is offline here");
                // The image that says so wakes us; if it was applied before we looked, it is there.
                true
            }
            answer => {
                warn!(?answer, replicas, "cannot tell the controller what is offline here");
                false
            }
        }
    }
}
