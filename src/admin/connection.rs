//! The listener: connections with limits on how many, how long and how large.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::AdminApi;
use super::handle::handle;
use super::problem::Problem;
use super::route::Routes;

/// Connections at a time. One more is told so and closed.
const CONNECTIONS_MAX: u32 = 256;
/// For the head of a request, also the next one on an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// For the body of a request and its answer. Longer than any change may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Head of a request, in bytes and in lines.
const HEAD_SIZE_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// How long requests may take to end at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// After an accept that failed (out of descriptors, mostly).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` turns true, then lets requests that run end.
pub async fn serve(listener: TcpListener, api: AdminApi, mut shutdown: watch::Receiver<bool>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let routes = Arc::new(Routes::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut shutdown) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin port cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match connections.clone().try_acquire_owned() {
            Ok(permit) => {
                let connection = Connection { api: api.clone(), routes: routes.clone(), permit };
                tokio::spawn(connection.run(stream, shutdown.clone()));
            }
            // Best effort: the kernel's buffer of a new connection has room for it.
            Err(_) => drop(stream.try_write(too_many().as_bytes())),
        }
    }
    drop(listener);
    let _ = timeout(SHUTDOWN_TIMEOUT, connections.acquire_many(CONNECTIONS_MAX)).await;
}

/// Completes when `shutdown` is true, or its sender is gone.
async fn stopped(shutdown: &mut watch::Receiver<bool>) {
    let _ = shutdown.wait_for(|down| *down).await;
}

struct Connection {
    api: AdminApi,
    routes: Arc<Routes>,
    permit: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self, stream: TcpStream, mut shutdown: watch::Receiver<bool>) {
        let Self { api, routes, permit: _permit } = self;
        let service = service_fn(|request| {
            let (api, routes) = (api.clone(), routes.clone());
            async move {
                let response = timeout(REQUEST_TIMEOUT, handle(&api, &routes, request)).await;
                Ok::<_, Infallible>(response.unwrap_or_else(|_| too_slow()))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_SIZE_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = stopped(&mut shutdown) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection to the admin port ended");
        }
    }
}

/// As hyper would write it, for a connection that never gets to hyper.
fn too_many() -> String {
    let detail = format!("{CONNECTIONS_MAX} connections are open already");
    let body = format!(
        r#"{{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"{detail}"}}"#
    );
    let head = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n";
    let size = body.len();
    format!("{head}Content-Type: application/problem+json\r\nContent-Length: {size}\r\n\r\n{body}")
}

fn too_slow() -> Response<Full<Bytes>> {
    let detail = format!("not done after {} s", REQUEST_TIMEOUT.as_secs());
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail).and_close().into_response()
}
