//! Accepts connections, tells protocols apart by their first four bytes, and hands each connection to its own task.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::sniff::Opening;
use super::{ServerConfig, kafka, native};
use crate::broker::Broker;

/// How long a new connection may stay silent before its first four bytes.
const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait after `accept` failed: out of descriptors, most likely, and trying at once would spin.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(50);

pub(super) async fn serve(
    listener: TcpListener,
    broker: Arc<Broker>,
    config: Arc<ServerConfig>,
    mut shutdown: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(config.connections_max));
    let front = kafka::Front::new(broker.clone(), config.clone());
    loop {
        let accepted = tokio::select! {
            biased; // Shutdown wins over a flood of connections.
            _ = shutdown.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a client's connection");
                sleep(ACCEPT_BACKOFF).await;
                continue;
            }
        };
        let Ok(admitted) = connections.clone().try_acquire_owned() else {
            let limit = config.connections_max;
            config.metrics.connections_refused.inc();
            warn!(%peer, "refused a client's connection: max.connections={limit} are open");
            continue;
        };
        let (broker, front) = (broker.clone(), front.clone());
        tokio::spawn(open(stream, peer, admitted, broker, front, shutdown.clone()));
    }
}

async fn open(
    mut stream: TcpStream,
    peer: SocketAddr,
    _admitted: OwnedSemaphorePermit,
    broker: Arc<Broker>,
    front: Arc<kafka::Front>,
    mut shutdown: watch::Receiver<bool>,
) {
    // Responses are written whole: waiting for more bytes to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let mut first = [0; 4];
    let read = tokio::select! {
        _ = shutdown.wait_for(|stop| *stop) => return,
        read = timeout(OPENING_TIMEOUT, stream.read_exact(&mut first)) => read,
    };
    match read {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return debug!(%peer, %error, "left before its first request"),
        Err(_) => return debug!(%peer, "said nothing for {OPENING_TIMEOUT:?}"),
    }
    let config = front.config().clone();
    let _counted = Counted::new(&config.metrics.connections);
    match Opening::of(first, config.request_size_max) {
        Opening::Native => native::serve(stream, broker, &config, shutdown).await,
        Opening::Kafka => kafka::serve(stream, peer, first, front, shutdown).await,
        Opening::Http => {
            info!(%peer, "an HTTP request came to the clients port; HTTP is on {}", config.admin);
            refuse_http(stream, &config).await;
        }
        Opening::Tls => {
            info!(%peer, "a TLS handshake came to the clients port, which speaks plain text");
        }
        Opening::Other => {
            let (size, limit) = (i32::from_be_bytes(first), config.request_size_max);
            info!(
                %peer,
                "{first:02x?} begins no Kafka request: as a frame length it is {size}, \
                 over socket.request.max.bytes={limit}"
            );
        }
    }
}

/// Counts an open connection for as long as it lives.
struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Tells a browser where to go.
async fn refuse_http(mut stream: TcpStream, config: &ServerConfig) {
    let admin = &config.admin;
    let body = format!(
        "This is the port of Kafka clients. The web page and the HTTP API are on http://{admin}/\n"
    );
    let size = body.len();
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {size}\r\nConnection: close\r\n\r\n{body}"
    );
    let answer = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection, and the answer with it.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(2), answer).await;
}
