//! Native connections of Rust programs to the clients port.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::broker::Broker;

/// Serves one connection whose preface was read already, until it ends or `shutdown` turns true.
pub(super) async fn serve(stream: TcpStream, broker: Arc<Broker>, shutdown: watch::Receiver<bool>) {
    let _ = (stream, broker, shutdown);
}
