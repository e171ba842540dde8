//! Brokers that clients are about to lose, and brokers that they have just lost.
//!
//! A client whose broker dies asks the next one for metadata within a millisecond: before the fence is decided, and
//! often before the end of the dead broker's other connections was noticed here. An answer that still names the dead
//! leader costs it a refresh interval of a second, so answers wait: a moment for the news, then for the fence.
//! And librdkafka parks the partitions of a broker that vanishes from the list in the same answer that names their new
//! leader until its next scan, another second; so a fenced broker stays listed until clients have moved away from it.
//!
//! Invariant: only what clients are told depends on this, never who leads.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::publication::Publication;
use crate::metadata::MetadataImage;
use crate::types::{NodeId, time};

/// How long metadata waits for news. The kernel closes all connections of a dead process within a millisecond or two.
const NEWS_WAIT: Duration = Duration::from_millis(10);

/// How long metadata waits for the fence of a broker whose connection was lost. Milliseconds where there is an active
/// controller, an election where that died too. A broker that lives on connects again, which ends the wait.
const FENCE_WAIT: Duration = Duration::from_secs(1);

/// How long a fenced broker stays listed.
const LINGER: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Departures {
    /// When the last connection of a replica stream with that broker was lost.
    lost: watch::Sender<HashMap<NodeId, Instant>>,
    fenced: Mutex<HashMap<NodeId, Instant>>,
}

impl Departures {
    pub(super) fn on_lost(&self, broker: NodeId) {
        self.lost.send_modify(|lost| _ = lost.insert(broker, time::now()));
    }

    pub(super) fn on_connected(&self, broker: NodeId) {
        self.lost.send_modify(|lost| _ = lost.remove(&broker));
    }

    pub(super) fn on_fenced(&self, broker: NodeId) {
        self.fenced.lock().insert(broker, time::now());
    }

    /// Fenced a moment ago.
    pub(super) fn is_lingering(&self, broker: NodeId) -> bool {
        self.fenced.lock().get(&broker).is_some_and(|since| since.elapsed() < LINGER)
    }

    /// Returns when the published image shows no broker as alive whose connection was lost a moment ago, or when it
    /// seems to be alive after all.
    pub(super) async fn settled(&self, publication: &Publication) {
        tokio::time::sleep(NEWS_WAIT).await;
        let (mut applied, mut lost) = (publication.applied(), self.lost.subscribe());
        while let Some(deadline) = publication.with_image(|image| self.unsettled_until(image)) {
            tokio::select! {
                () = tokio::time::sleep_until(deadline.into()) => return,
                _ = applied.changed() => {}
                _ = lost.changed() => {}
            }
        }
    }

    fn unsettled_until(&self, image: &MetadataImage) -> Option<Instant> {
        let lost = self.lost.borrow();
        let alive = lost.iter().filter(|(id, _)| image.broker(**id).is_some_and(|b| !b.fenced));
        let now = time::now();
        alive.map(|(_, since)| *since + FENCE_WAIT).filter(|deadline| *deadline > now).max()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::metadata::test_support::{apply, image_with_topic};
    use crate::metadata::{BrokerChangeRecord, MetadataRecord};

    #[tokio::test]
    async fn metadata_waits_for_the_fence_of_a_broker_that_was_lost() {
        let (departures, publication) =
            (Arc::<Departures>::default(), Arc::new(Publication::new()));
        let mut image = image_with_topic("t", 1);
        publication.publish(Arc::new(image.clone()));
        publication.set_applied(1);
        departures.settled(&publication).await;

        departures.on_lost(NodeId(2));
        assert!(publication.with_image(|image| departures.unsettled_until(image)).is_some());
        let waiting = tokio::spawn({
            let (departures, publication) = (departures.clone(), publication.clone());
            async move { departures.settled(&publication).await }
        });
        let fence = BrokerChangeRecord {
            node_id: NodeId(2),
            broker_epoch: image.broker(NodeId(2)).expect("registered").broker_epoch,
            fenced: Some(true),
            in_controlled_shutdown: None,
        };
        apply(&mut image, vec![MetadataRecord::BrokerChange(fence)]);
        departures.on_fenced(NodeId(2));
        publication.publish(Arc::new(image));
        publication.set_applied(2);
        waiting.await.expect("no panic");
        assert!(publication.with_image(|image| departures.unsettled_until(image)).is_none());
        assert!(departures.is_lingering(NodeId(2)) && !departures.is_lingering(NodeId(3)));
    }

    #[tokio::test]
    async fn a_broker_that_lives_on_delays_metadata_once() {
        let (departures, publication) = (Departures::default(), Publication::new());
        publication.publish(Arc::new(image_with_topic("t", 1)));
        departures.on_lost(NodeId(2));
        departures.settled(&publication).await;
        assert!(publication.with_image(|image| departures.unsettled_until(image)).is_none());
        departures.on_lost(NodeId(2));
        departures.on_connected(NodeId(2));
        assert!(publication.with_image(|image| departures.unsettled_until(image)).is_none());
    }
}
