//! Replay changes an image as its records say, or stops.

use super::*;
use crate::metadata::PartitionImage;
use crate::metadata::test_support::*;
use crate::types::{LeaderEpoch, PartitionEpoch};

fn contradicts(image: &MetadataImage, record: MetadataRecord) -> String {
    let batch = batch(image, vec![record]);
    image.clone().replay(image.index + 1, &batch).unwrap_err().to_string()
}

#[test]
fn a_batch_on_another_basis_changes_nothing_but_the_index() {
    let image = image_with_topic("a", 2);
    let topic = image.topic("a").unwrap();
    let mut batch = batch(&image, vec![led_by(topic, 0, 2)]);
    batch.basis -= 1;
    let mut after = image.clone();
    assert_eq!(after.replay(image.index + 5, &batch), Ok(Replayed::Dropped));
    assert_eq!(after, MetadataImage { index: image.index + 5, ..image });
}

#[test]
fn entries_without_a_batch_keep_the_basis() {
    let mut image = image_with_topic("a", 1);
    let batch = batch(&image, vec![led_by(image.topic("a").unwrap(), 0, 2)]);
    image.advance(image.index + 3);
    let index = image.index + 1;
    assert_eq!(image.replay(index, &batch), Ok(Replayed::Applied));
    assert_eq!((image.index, image.batch_index), (index, index));
}

#[test]
fn entries_come_in_order_and_in_a_version_that_is_known() {
    let mut image = image_with_brokers(1);
    let index = image.index;
    let mut batch = batch(&image, Vec::new());
    let refused = image.replay(index, &batch);
    assert_eq!(refused, Err(ReplayError::OutOfOrder { index, last: index }));
    batch.version = BATCH_VERSION + 1;
    assert_eq!(image.replay(index + 1, &batch), Err(ReplayError::NewerBatch(BATCH_VERSION + 1)));
}

#[test]
fn a_broker_epoch_is_the_index_of_its_registration() {
    let mut image = image_with_brokers(1);
    assert_eq!(image.broker(NodeId(1)).unwrap().broker_epoch, BrokerEpoch(1));
    image.sequences.insert(NodeId(1), (7, Vec::new()));

    let mut amended = registration(1, 0);
    amended.rack = Some("r".to_owned());
    apply(&mut image, vec![MetadataRecord::RegisterBroker(amended)]);
    let broker = image.broker(NodeId(1)).unwrap();
    assert_eq!((broker.broker_epoch, broker.fenced), (BrokerEpoch(1), false));
    assert_eq!(broker.registration.rack.as_deref(), Some("r"));

    let index = apply(&mut image, vec![MetadataRecord::RegisterBroker(registration(1, 1))]);
    let broker = image.broker(NodeId(1)).unwrap();
    assert_eq!((broker.broker_epoch.0 as u64, broker.fenced), (index, true));
    assert_eq!(image.sequences.get(&NodeId(1)), None);
}

#[test]
fn removing_a_topic_removes_its_configs() {
    let mut image = image_with_topic("a", 1);
    let resource = ConfigResource::Topic("a".into());
    let value = Some("1".to_owned());
    apply(
        &mut image,
        vec![MetadataRecord::Config { resource, key: "min.insync.replicas".into(), value }],
    );
    assert_eq!(image.configs.len(), 1);
    apply(&mut image, vec![MetadataRecord::RemoveTopic { topic_id: uuid(1) }]);
    assert!(image.configs.is_empty() && image.topics.is_empty() && image.topic_ids.is_empty());
}

#[test]
fn contradictions_are_faults() {
    let image = image_with_topic("a", 1);
    let topic = image.topic("a").unwrap();
    let old = topic.partition(0).unwrap();
    let change = |edit: fn(&mut PartitionImage)| {
        let MetadataRecord::PartitionChange(mut change) = led_by(topic, 0, 2) else {
            unreachable!("led_by makes a change")
        };
        edit(Arc::make_mut(&mut change.state));
        contradicts(&image, MetadataRecord::PartitionChange(change))
    };
    let of = |topic_id, partition| {
        let state = old.clone();
        MetadataRecord::PartitionChange(PartitionChangeRecord { topic_id, partition, state })
    };
    for (found, expected) in [
        (change(|state| state.partition_epoch = PartitionEpoch(2)), "partition epoch"),
        (change(|state| state.leader_epoch = LeaderEpoch(2)), "neither the same nor the next"),
        (change(|state| state.leader_epoch = LeaderEpoch(0)), "changed within a leader epoch"),
        (change(|state| state.leader = NodeId(9)), "leader is not in the ISR"),
        (change(|state| state.isr = nodes(&[2, 9])), "no replica"),
        (change(|state| state.isr = nodes(&[2, 2])), "twice"),
        (change(|state| state.elr = nodes(&[2])), "both in the ISR"),
        (change(|state| state.recovery = super::super::LeaderRecovery::Recovering), "unclean"),
        (contradicts(&image, of(uuid(1), 1)), "no partition"),
        (contradicts(&image, of(uuid(9), 0)), "does not exist"),
        (
            contradicts(
                &image,
                MetadataRecord::Topic(TopicRecord { topic_id: uuid(9), name: "a".into() }),
            ),
            "exists",
        ),
        (
            contradicts(
                &image,
                MetadataRecord::Partition(PartitionRecord {
                    topic_id: uuid(1),
                    partition: 2,
                    state: partition(&[1]).into(),
                }),
            ),
            "comes after 1 others",
        ),
        (contradicts(&image, unfenced(1, BrokerEpoch(77))), "not with this epoch"),
        (
            contradicts(&image, MetadataRecord::UnregisterBroker { node_id: NodeId(9) }),
            "registered",
        ),
        (contradicts(&image, MetadataRecord::ProducerIds { next: 0 }), "go back"),
        (
            contradicts(
                &image,
                MetadataRecord::Config {
                    resource: ConfigResource::Topic("b".into()),
                    key: "k".into(),
                    value: None,
                },
            ),
            "does not exist",
        ),
    ] {
        assert!(found.contains(expected), "{found:?} lacks {expected:?}");
    }
}

#[test]
fn another_digest_stops_the_node() {
    let mut image = image_with_topic("a", 1);
    let (index, digest) = (image.batch_index, image.digest);
    apply(&mut image, vec![MetadataRecord::Digest { index, digest }]);
    let (index, theirs) = (image.batch_index, image.digest ^ 1);
    let batch = batch(&image, vec![MetadataRecord::Digest { index, digest: theirs }]);
    let ours = image.digest;
    assert_eq!(image.replay(index + 1, &batch), Err(ReplayError::Diverged { index, ours, theirs }));
}

#[test]
fn a_snapshot_gives_back_the_image() {
    let image = image_with_topic("a", 3);
    let bytes = image.to_snapshot();
    assert_eq!(MetadataImage::from_snapshot(&bytes), Ok(image));
    assert!(MetadataImage::from_snapshot(&bytes[..bytes.len() - 1]).is_err());
}
