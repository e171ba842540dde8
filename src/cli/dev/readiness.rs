//! Asking a node whether it is ready, as a load balancer would.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Between two questions to a node that is not ready.
const INTERVAL: Duration = Duration::from_millis(10);
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Completes when the node with this admin port says that it is ready.
pub(super) async fn wait_until_ready(admin_port: u16) {
    while !matches!(timeout(ANSWER_MAX, is_ready(admin_port)).await, Ok(Ok(true))) {
        sleep(INTERVAL).await;
    }
}

async fn is_ready(admin_port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port)).await?;
    let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0; 12];
    stream.read_exact(&mut status).await?;
    Ok(&status == b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn waits_for_a_200() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let serve = async {
            for answer in ["HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"] {
                let (mut stream, _) = listener.accept().await.expect("asked");
                let mut request = [0; 1024];
                let size = stream.read(&mut request).await.expect("a request");
                assert!(request[..size].starts_with(b"GET /readyz"));
                stream.write_all(answer.as_bytes()).await.expect("answered");
            }
        };
        tokio::join!(serve, wait_until_ready(port));
    }
}
