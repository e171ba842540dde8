//! Producer ids, from blocks that the controller hands out.
//!
//! One block is in use and one is kept in reserve, so that idempotent producers can start while there is no active
//! controller. Ids of a block that was lost on its way are never used: that is what a block costs.

use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;

use super::control_plane::ControlPlane;
use crate::controller::{ControllerCall, ControllerReply, ControllerRequest, Refusal};
use crate::protocol::ErrorCode;
use crate::types::{BrokerEpoch, NodeId, ProducerId};

/// How long one attempt to get a block may take.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct ProducerIds {
    blocks: Mutex<Blocks>,
    /// One request for a block at a time.
    allocating: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Blocks {
    current: Range<ProducerId>,
    reserve: Range<ProducerId>,
}

impl Blocks {
    fn next(&mut self) -> Option<ProducerId> {
        if self.current.is_empty() {
            self.current = std::mem::take(&mut self.reserve);
        }
        self.current.next()
    }
}

impl ProducerIds {
    /// The next id. Waits for a block only when both are used up.
    pub(super) async fn next(
        &self,
        control: &dyn ControlPlane,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
    ) -> Result<ProducerId, Refusal> {
        loop {
            if let Some(id) = self.blocks.lock().next() {
                return Ok(id);
            }
            self.fill_reserve(control, node_id, broker_epoch).await?;
        }
    }

    pub(super) fn wants_block(&self) -> bool {
        self.blocks.lock().reserve.is_empty()
    }

    /// Makes sure that there is a block in reserve.
    pub(super) async fn fill_reserve(
        &self,
        control: &dyn ControlPlane,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
    ) -> Result<(), Refusal> {
        let _allocating = self.allocating.lock().await;
        if !self.wants_block() {
            return Ok(());
        }
        let call = ControllerCall {
            principal: format!("broker-{node_id}"),
            request: ControllerRequest::AllocateProducerIds { node_id, broker_epoch },
        };
        let not_now = |reason: String| Refusal::new(ErrorCode::CoordinatorLoadInProgress, reason);
        match control.submit(call, ALLOCATE_TIMEOUT).await {
            Ok(Ok(ControllerReply::AllocateProducerIds { first, count })) => {
                self.blocks.lock().reserve = first..first.saturating_add(count);
                Ok(())
            }
            Ok(Ok(other)) => Err(not_now(format!("unexpected reply {other:?}"))),
            Ok(Err(refusal)) => Err(not_now(format!("no producer ids: {refusal}"))),
            Err(error) => Err(not_now(format!("no producer ids: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::testing::ScriptedControl;
    use super::*;

    fn blocks_of(count: i64) -> Arc<ScriptedControl> {
        let mut first = 0;
        ScriptedControl::new(move |_| {
            first += count;
            Ok(Ok(ControllerReply::AllocateProducerIds { first: first - count, count }))
        })
    }

    #[tokio::test]
    async fn ids_are_handed_out_once_across_blocks() {
        let (ids, control) = (ProducerIds::default(), blocks_of(3));
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push(ids.next(&*control, NodeId(1), BrokerEpoch(5)).await.expect("a block"));
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(control.calls().len(), 3);
    }

    #[tokio::test]
    async fn a_reserve_outlives_the_controller() {
        let mut answered = 0;
        let control = ScriptedControl::new(move |_| {
            answered += 1;
            match answered {
                1 | 2 => {
                    let first = (answered - 1) * 2;
                    Ok(Ok(ControllerReply::AllocateProducerIds { first, count: 2 }))
                }
                _ => Err("no controller".to_owned()),
            }
        });
        let ids = ProducerIds::default();
        assert_eq!(ids.next(&*control, NodeId(1), BrokerEpoch(5)).await, Ok(0));
        assert!(ids.wants_block());
        ids.fill_reserve(&*control, NodeId(1), BrokerEpoch(5)).await.expect("a reserve");
        assert!(!ids.wants_block());
        for expected in [1, 2, 3] {
            assert_eq!(ids.next(&*control, NodeId(1), BrokerEpoch(5)).await, Ok(expected));
        }
        let refused = ids.next(&*control, NodeId(1), BrokerEpoch(5)).await.expect_err("used up");
        assert_eq!(refused.code, ErrorCode::CoordinatorLoadInProgress);
    }
}
