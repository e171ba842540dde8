//! The admin HTTP port: health, metrics, and the cluster as JSON.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::controller::{ControllerReply, ControllerRequest, Refusal};
use crate::metadata::MetadataImage;
use crate::protocol::native::{ConfigView, QuorumStatus};
use crate::types::ConfigResource;

/// What the API needs of the node that it runs in: `broker::Broker`, or a stand-in in tests.
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
    ) -> Pin<Box<dyn Future<Output = Result<ControllerReply, Refusal>> + Send + 'a>>;
}

/// What the API serves.
#[derive(Clone)]
pub struct AdminApi {
    pub broker: Arc<dyn Node>,
    pub registry: Arc<Registry>,
}

/// Serves until `shutdown` turns true.
pub async fn serve(listener: TcpListener, api: AdminApi, shutdown: watch::Receiver<bool>) {
    let _ = (listener, api, shutdown);
    todo!()
}
