//! The admin HTTP port: health, metrics, and the cluster as JSON.
//!
//! Any node answers: reads come from its published image, changes go through [`Node::admin`] to the active controller.
//! Every error is a problem document (RFC 9457). The table in `route` lists what is served; the router, the 405 answers and
//! `/v1/openapi.json` are made from it.
//!
//! Invariant: nothing here holds state of the cluster, touches partition data, or waits for a data disk: the port answers
//! on the control runtime while a disk is stuck.

mod body;
mod brokers;
mod connection;
mod handle;
mod health;
mod openapi;
mod origin;
mod problem;
mod route;
mod topics;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod handle_test;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;

pub use connection::serve;

use crate::controller::{ControllerReply, ControllerRequest, Refusal};
use crate::metadata::MetadataImage;
use crate::net::BoxFuture;
use crate::protocol::native::{ConfigView, QuorumStatus};
use crate::types::ConfigResource;

/// What the API needs of the node that it runs in: the one that `node` composes, or a stand-in in tests.
pub trait Node: Send + Sync + 'static {
    /// The published image.
    fn image(&self) -> Arc<MetadataImage>;
    fn quorum_status(&self) -> QuorumStatus;
    /// `Err` says why not.
    fn readiness(&self) -> Result<(), String>;
    fn describe_configs(&self, resource: &ConfigResource) -> Result<Vec<ConfigView>, Refusal>;
    /// Forwards to the active controller, wherever it is, and waits until every live broker serves the result.
    fn admin<'a>(
        &'a self,
        principal: &'a str,
        request: ControllerRequest,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<ControllerReply, Refusal>>;
}

/// What the API serves.
#[derive(Clone)]
pub struct AdminApi {
    pub node: Arc<dyn Node>,
    pub registry: Arc<Registry>,
}

impl fmt::Debug for AdminApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminApi")
    }
}
