//! One HTTP request, blocking, over a connection of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A node that does not answer within this is asked again by whoever waits for a condition.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Status and body of an answer.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// `Err` when there was no whole answer: nobody listens, or the node died.
pub(crate) fn request(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<Response, String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = exchange().map_err(|error| format!("{method} {path} on {address}: {error}"))?;
    let parsed = answer.split_once("\r\n\r\n").and_then(|(head, body)| {
        Some(Response { status: head.get(9..12)?.parse().ok()?, body: body.to_owned() })
    });
    parsed.ok_or_else(|| format!("{method} {path} on {address}: not an HTTP answer: {answer:?}"))
}
