//! What a heartbeat is answered, and what it makes the controller decide (replication.md 1.5).

use super::{DecisionRequest, HeartbeatReply, HeartbeatRequest, Liveness, Refusal};
use crate::metadata::MetadataImage;

/// Call after [`Liveness::on_heartbeat`], against the applied image. STALE_BROKER_EPOCH or BROKER_ID_NOT_REGISTERED
/// tell the broker to register again. The reply may be given at once, before the request is decided.
pub fn heartbeat_reply(
    image: &MetadataImage,
    liveness: &Liveness,
    request: &HeartbeatRequest,
) -> Result<(HeartbeatReply, Option<DecisionRequest>), Refusal> {
    let _ = (image, liveness, request);
    todo!()
}
