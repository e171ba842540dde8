//! FindCoordinator: there is none yet.

use super::dispatch::{Call, Reply};
use super::refusal::{Outcome, refused};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};

/// From here on, a request names many keys.
const KEYS_FROM: i16 = 4;

/// What `key_type` says.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

pub(super) async fn handle(
    call: Call,
    request: FindCoordinatorRequest,
) -> Reply<FindCoordinatorResponse> {
    let (error_code, error_message) = answer(request.key_type);
    let mut response = FindCoordinatorResponse::default();
    if call.version < KEYS_FROM {
        response.error_code = error_code;
        response.error_message = error_message;
        (response.node_id, response.port) = (-1, -1);
    } else {
        let coordinators = request.coordinator_keys.into_iter().map(|key| Coordinator {
            key,
            node_id: -1,
            port: -1,
            error_code,
            error_message: error_message.clone(),
            ..Default::default()
        });
        response.coordinators = coordinators.collect();
    }
    response.into()
}

/// Groups will come, and clients wait for them with a code that they retry. Whoever wants a transaction is told at once.
fn answer(key_type: i8) -> Outcome {
    match key_type {
        GROUP => refused(
            ErrorCode::CoordinatorNotAvailable,
            "consumer groups are not served yet: assign partitions, and keep offsets yourself",
        ),
        TRANSACTION => refused(ErrorCode::InvalidRequest, "transactions are not served yet"),
        _ => refused(ErrorCode::InvalidRequest, format!("unknown kind of coordinator {key_type}")),
    }
}
