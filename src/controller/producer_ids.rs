//! Blocks of producer ids. A broker hands them out one by one without asking again.

use super::brokers::registered_broker;
use super::{ControllerReply, Decision, Refusal};
use crate::metadata::{MetadataImage, MetadataRecord};
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, NodeId};

const BLOCK: i64 = 1000;

pub(super) fn allocate(
    image: &MetadataImage,
    node_id: NodeId,
    broker_epoch: BrokerEpoch,
) -> Result<Decision, Refusal> {
    registered_broker(image, node_id, broker_epoch)?;
    let first = image.next_producer_id;
    let next = first.checked_add(BLOCK).ok_or_else(|| {
        Refusal::new(ErrorCode::UnknownServerError, "all producer ids have been handed out")
    })?;
    Ok(Decision {
        records: vec![MetadataRecord::ProducerIds { next }],
        reply: Ok(ControllerReply::AllocateProducerIds { first, count: BLOCK }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::test_support::*;

    #[test]
    fn blocks_are_disjoint_and_ask_for_a_registration() {
        let mut image = image_with_brokers(1);
        let epoch = image.broker(NodeId(1)).unwrap().broker_epoch;
        for first in [0, 1000, 2000] {
            let decision = allocate(&image, NodeId(1), epoch).unwrap();
            let expected = ControllerReply::AllocateProducerIds { first, count: 1000 };
            assert_eq!(decision.reply, Ok(expected));
            apply(&mut image, decision.records);
        }
        let code = |node, epoch| allocate(&image, NodeId(node), epoch).unwrap_err().code;
        assert_eq!(code(1, BrokerEpoch(0)), ErrorCode::StaleBrokerEpoch);
        assert_eq!(code(2, epoch), ErrorCode::BrokerIdNotRegistered);
    }
}
