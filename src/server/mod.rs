//! The clients port: Kafka's protocol for everyone, Kontiki's own for Rust programs.
//!
//! Front ends are thin: they turn frames into calls of [`Broker`] and its answers into frames. One task serves one
//! connection, from parsing to append to reply; nothing is spawned or queued per request.
//!
//! Invariant: nothing here knows files, replicas or the quorum.

mod kafka;
mod listener;
mod metrics;
mod native;
mod sniff;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

pub use self::metrics::Metrics;
use crate::broker::Broker;
use crate::types::HostPort;

/// What the clients port is started with. Names in quotes are the config keys.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where a browser that came to the wrong port is sent.
    pub admin: HostPort,
    /// "socket.request.max.bytes"
    pub request_size_max: usize,
    /// "max.connections"
    pub connections_max: usize,
    /// "connections.max.idle.ms"
    pub idle_max: Duration,
    /// "fetch.max.bytes"
    pub fetch_size_max: usize,
    /// "auto.create.topics.enable"
    pub auto_create_topics: bool,
    pub metrics: Metrics,
}

/// Serves clients until `shutdown` turns true, then lets open connections finish what they have started.
pub async fn serve_clients(
    listener: TcpListener,
    broker: Arc<Broker>,
    config: ServerConfig,
    shutdown: watch::Receiver<bool>,
) {
    listener::serve(listener, broker, Arc::new(config), shutdown).await;
}
