//! Requests that go to the active controller on behalf of clients, and calls of other brokers.

use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::Broker;
use super::visibility::{VISIBLE_WAIT_MAX, reply_index};
use crate::controller::{ControllerCall, ControllerReply, ControllerRequest, Refusal};
use crate::net::Reply;
use crate::protocol::ErrorCode;
use crate::protocol::native::{Frame, Kind, WireError};
use crate::types::ProducerId;

impl Broker {
    /// Asks the active controller, wherever it is, and waits (a bounded time) until every live broker serves the result.
    /// REQUEST_TIMED_OUT means that the request may have been applied.
    pub async fn admin(
        &self,
        principal: &str,
        request: ControllerRequest,
        timeout: Duration,
    ) -> Result<ControllerReply, Refusal> {
        let deadline = Instant::now() + timeout;
        let call = ControllerCall { principal: principal.to_owned(), request };
        let reply = self
            .control
            .submit(call, timeout)
            .await
            .map_err(|error| Refusal::new(ErrorCode::RequestTimedOut, error.to_string()))??;
        if let Some(index) = reply_index(&reply) {
            let deadline = deadline.min(Instant::now() + VISIBLE_WAIT_MAX);
            if !self.visibility.wait_everywhere(self.control.images(), index, deadline).await {
                info!(index, "answered an admin request before every live broker has followed");
            }
        }
        Ok(reply)
    }

    /// A producer id that nobody had before, and its first epoch.
    pub async fn init_producer_id(&self) -> Result<(ProducerId, i16), Refusal> {
        let (node_id, broker_epoch) = (self.node_id(), self.identity.broker_epoch());
        let id = self.producer_ids.next(&*self.control, node_id, broker_epoch).await?;
        if self.producer_ids.wants_block() {
            self.signals.want_producer_ids();
        }
        Ok((id, 0))
    }

    /// Serves the kinds of calls between nodes that are a broker's.
    pub async fn on_peer_call(&self, frame: Frame) -> Result<Reply, WireError> {
        match frame.kind {
            Kind::WaitApplied => {
                let request =
                    frame.body().map_err(|error| WireError::Malformed(error.to_string()))?;
                Ok(Reply::new(&self.visibility.on_wait_applied(request).await))
            }
            _ => Err(WireError::Unexpected),
        }
    }
}
