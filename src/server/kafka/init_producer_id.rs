//! InitProducerId: an identity for an idempotent producer.

use super::dispatch::{Call, Reply};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{InitProducerIdRequest, InitProducerIdResponse};

pub(super) async fn handle(
    call: Call,
    request: InitProducerIdRequest,
) -> Reply<InitProducerIdResponse> {
    // Transactions are not served yet. The response has no room for a sentence; FindCoordinator, which every client of
    // a transaction asks first, says it.
    let result = match request.transactional_id {
        Some(_) => Err(ErrorCode::InvalidRequest),
        None => call.front.broker.init_producer_id().await.map_err(|refusal| refusal.code),
    };
    let mut response = InitProducerIdResponse::default();
    match result {
        Ok((producer_id, producer_epoch)) => {
            response.producer_id = producer_id;
            response.producer_epoch = producer_epoch;
        }
        Err(code) => {
            response.error_code = code.code();
            response.producer_epoch = -1;
        }
    }
    response.into()
}
