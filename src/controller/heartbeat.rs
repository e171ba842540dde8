//! What a heartbeat is answered, and what it makes the controller decide (replication.md 1.5).

use super::brokers::registered_broker;
use super::{DecisionRequest, HeartbeatReply, HeartbeatRequest, Liveness, Refusal};
use crate::metadata::{BrokerImage, MetadataImage};
use crate::types::{MetadataIndex, NodeId};

/// A log disk that does nothing for this long costs the broker its leaderships, where others can lead. A busy disk takes
/// a second for a sync now and then, and that is not worth a move, which costs about as much; a stuck one stays stuck.
pub(super) const DISK_STALL_MAX_MS: u32 = 3_000;

/// Call after [`Liveness::on_heartbeat`], against the applied image. STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED
/// tell the broker to register again. The reply may be given at once, before the request is decided.
pub fn heartbeat_reply(
    image: &MetadataImage,
    liveness: &Liveness,
    request: &HeartbeatRequest,
) -> Result<(HeartbeatReply, Option<DecisionRequest>), Refusal> {
    let node_id = request.node_id;
    let broker = registered_broker(image, node_id, request.broker_epoch)?;
    let broker_epoch = broker.broker_epoch;
    let is_caught_up = is_at(request.applied_index, broker);
    let mut reply = HeartbeatReply {
        is_fenced: broker.fenced,
        is_caught_up,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        should_shut_down: false,
    };
    let fence =
        |cause: &str| DecisionRequest::Fence { node_id, broker_epoch, cause: cause.to_owned() };
    let next = if broker.fenced {
        reply.should_shut_down = request.want_shutdown;
        let comes_back = !request.want_shutdown
            && !request.want_fence
            && is_caught_up
            && !liveness.saw_death(node_id, broker.registration.incarnation);
        comes_back.then_some(DecisionRequest::Unfence {
            node_id,
            broker_epoch,
            applied_index: request.applied_index,
        })
    } else if request.want_fence {
        Some(fence("it asked to be fenced"))
    } else if !request.want_shutdown {
        let relieve = DecisionRequest::Relieve { node_id, broker_epoch };
        (request.disk_stall_ms >= DISK_STALL_MAX_MS).then_some(relieve)
    } else if !broker.in_controlled_shutdown {
        Some(DecisionRequest::BeginControlledShutdown { node_id, broker_epoch })
    } else if may_shut_down(image, liveness, node_id, broker.shutdown_index) {
        reply.should_shut_down = true;
        Some(fence("it shut down"))
    } else {
        None
    };
    Ok((reply, next))
}

/// It has seen its own registration, so what it does is no part of an earlier life.
fn is_at(applied_index: MetadataIndex, broker: &BrokerImage) -> bool {
    i64::try_from(applied_index).is_ok_and(|index| index >= broker.broker_epoch.0)
}

/// It leads nothing, and everybody else serves an image that says so.
fn may_shut_down(
    image: &MetadataImage,
    liveness: &Liveness,
    node_id: NodeId,
    shutdown_index: MetadataIndex,
) -> bool {
    let others = image.brokers.iter().filter(|(id, broker)| **id != node_id && broker.is_active());
    let everybody_knows = others
        .into_iter()
        .all(|(id, _)| liveness.applied_index(*id).is_some_and(|index| index >= shutdown_index));
    let leads_something = || {
        let mut partitions = image.topics.values().flat_map(|topic| &topic.partitions);
        partitions.any(|partition| partition.leader == node_id)
    };
    everybody_knows && !leads_something()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controller::LivenessConfig;
    use crate::controller::brokers::{begin_controlled_shutdown, fence};
    use crate::metadata::test_support::*;
    use crate::protocol::ErrorCode;
    use crate::types::BrokerEpoch;

    fn beat(image: &MetadataImage, node_id: i32) -> HeartbeatRequest {
        HeartbeatRequest {
            node_id: NodeId(node_id),
            broker_epoch: image.broker(NodeId(node_id)).unwrap().broker_epoch,
            applied_index: image.index,
            want_fence: false,
            want_shutdown: false,
            disk_stall_ms: 0,
        }
    }

    fn reply(
        image: &MetadataImage,
        liveness: &Liveness,
        request: &HeartbeatRequest,
    ) -> (HeartbeatReply, Option<DecisionRequest>) {
        heartbeat_reply(image, liveness, request).unwrap()
    }

    #[test]
    fn a_stale_broker_is_told() {
        let image = image_with_topic("a", 1);
        let liveness = Liveness::new(LivenessConfig::default());
        let refused = |request| heartbeat_reply(&image, &liveness, &request).unwrap_err().code;
        let stale = HeartbeatRequest { broker_epoch: BrokerEpoch(0), ..beat(&image, 1) };
        assert_eq!(refused(stale), ErrorCode::StaleBrokerEpoch);
        let unknown = HeartbeatRequest { node_id: NodeId(9), ..beat(&image, 1) };
        assert_eq!(refused(unknown), ErrorCode::BrokerIdNotRegistered);
    }

    #[test]
    fn a_fenced_broker_comes_back_once_it_has_caught_up() {
        let mut image = image_with_topic("a", 1);
        let liveness = Liveness::new(LivenessConfig::default());
        let epoch = image.broker(NodeId(2)).unwrap().broker_epoch;
        let records = fence(&image, NodeId(2), epoch).records;
        apply(&mut image, records);

        let behind = HeartbeatRequest { applied_index: epoch.0 as u64 - 1, ..beat(&image, 2) };
        let (answer, next) = reply(&image, &liveness, &behind);
        assert_eq!((answer.is_fenced, answer.is_caught_up, next), (true, false, None));
        let recovering = HeartbeatRequest { want_fence: true, ..beat(&image, 2) };
        assert_eq!(reply(&image, &liveness, &recovering).1, None);
        let leaving = HeartbeatRequest { want_shutdown: true, ..beat(&image, 2) };
        let (answer, next) = reply(&image, &liveness, &leaving);
        assert_eq!((answer.should_shut_down, next), (true, None));
        let (answer, next) = reply(&image, &liveness, &beat(&image, 2));
        assert!(answer.is_caught_up);
        let applied_index = image.index;
        let unfence =
            DecisionRequest::Unfence { node_id: NodeId(2), broker_epoch: epoch, applied_index };
        assert_eq!(next, Some(unfence));
    }

    #[test]
    fn a_broker_shuts_down_when_everybody_knows_that_it_leads_nothing() {
        let mut image = image_with_topic("a", 1);
        let mut liveness = Liveness::new(LivenessConfig::default());
        liveness.on_elected(&image, Duration::ZERO);
        let leaving =
            |image: &MetadataImage| HeartbeatRequest { want_shutdown: true, ..beat(image, 1) };
        let (answer, next) = reply(&image, &liveness, &leaving(&image));
        let broker_epoch = image.broker(NodeId(1)).unwrap().broker_epoch;
        let begin = DecisionRequest::BeginControlledShutdown { node_id: NodeId(1), broker_epoch };
        assert_eq!((answer.should_shut_down, next), (false, Some(begin)));

        let records = begin_controlled_shutdown(&image, NodeId(1), broker_epoch).unwrap().records;
        let before = image.clone();
        apply(&mut image, records);
        liveness.on_heartbeat(&beat(&before, 2), Duration::ZERO);
        liveness.on_heartbeat(&beat(&image, 3), Duration::ZERO);
        let (answer, next) = reply(&image, &liveness, &leaving(&image));
        assert_eq!(
            (answer.in_controlled_shutdown, answer.should_shut_down, next),
            (true, false, None)
        );

        liveness.on_heartbeat(&beat(&image, 2), Duration::ZERO);
        let (answer, next) = reply(&image, &liveness, &leaving(&image));
        assert!(answer.should_shut_down);
        assert!(matches!(next, Some(DecisionRequest::Fence { .. })));
    }
}
