//! Connections over real sockets, with a service that answers from a script.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connection::{Answer, Connection, Ended, Service, Started};
use super::frames::Frames;
use super::output::Response;
use crate::protocol::kafka::{Encoded, Gap};
use crate::storage::Slice;

const DEADLINE: Duration = Duration::from_secs(20);
const SIZE_MAX: usize = 4 << 20;

/// A request is one letter for how it is served and a name; its response is the name.
struct Script {
    started: mpsc::Sender<String>,
    /// Answers that a test holds back, by the name of the request.
    held: HashMap<String, oneshot::Receiver<()>>,
    file: Option<Arc<File>>,
}

impl Script {
    fn response(&self, name: &str) -> Response {
        let encoded = Encoded { bytes: name.as_bytes().to_vec(), gaps: Vec::new() };
        Response { encoded, slices: Vec::new() }
    }

    /// `<` size bytes of the file `>`, and again.
    fn slices(&self, size: usize) -> Response {
        let gaps = vec![Gap { position: 1, size }, Gap { position: 3, size }];
        let slice = |position| {
            let next_offset = 0;
            Slice { file: self.file.clone(), position, size, next_offset }
        };
        let encoded = Encoded { bytes: b"<><>".to_vec(), gaps };
        Response { encoded, slices: vec![slice(0), slice(1)] }
    }
}

impl Service for Script {
    fn start(&mut self, frame: BytesMut) -> Started {
        let text = String::from_utf8(frame.to_vec()).expect("tests send text");
        let (kind, name) = text.split_at(1);
        self.started.try_send(name.to_owned()).expect("room for the names of all requests");
        let held = self.held.remove(name);
        let answer = match kind {
            "s" => Answer::Silence,
            "c" => Answer::Close(name.to_owned()),
            "f" => Answer::Response(self.slices(name.parse().expect("a size"))),
            "x" => return Started::Close(name.to_owned()),
            _ => Answer::Response(self.response(name)),
        };
        let work = Box::pin(async move {
            if let Some(held) = held {
                let _ = held.await;
            }
            answer
        });
        if kind == "a" { Started::Alone(work) } else { Started::Beside(work) }
    }
}

struct Fixture {
    client: TcpStream,
    started: mpsc::Receiver<String>,
    shutdown: watch::Sender<bool>,
    ended: JoinHandle<Ended>,
}

impl Fixture {
    async fn open(held: HashMap<String, oneshot::Receiver<()>>) -> Self {
        Self::open_with(held, None, DEADLINE).await
    }

    async fn open_with(
        held: HashMap<String, oneshot::Receiver<()>>,
        file: Option<Arc<File>>,
        idle_max: Duration,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("it connected");
        let (sender, started) = mpsc::channel(1000);
        let (shutdown, stop) = watch::channel(false);
        let script = Script { started: sender, held, file };
        let frames = Frames::new(SIZE_MAX, &[]);
        let connection = Connection::new(stream, frames, script, idle_max, stop);
        Self { client, started, shutdown, ended: tokio::spawn(connection.run()) }
    }

    async fn send(&mut self, requests: &[&str]) {
        let mut bytes = Vec::new();
        for request in requests {
            bytes.extend_from_slice(&u32::try_from(request.len()).expect("short").to_be_bytes());
            bytes.extend_from_slice(request.as_bytes());
        }
        self.client.write_all(&bytes).await.expect("it reads");
    }

    async fn receive(&mut self) -> Vec<u8> {
        let read = async {
            let size = self.client.read_u32().await?;
            let mut bytes = vec![0; size as usize];
            self.client.read_exact(&mut bytes).await?;
            std::io::Result::Ok(bytes)
        };
        timeout(DEADLINE, read).await.expect("in time").expect("a response")
    }

    async fn expect(&mut self, response: &str) {
        assert_eq!(String::from_utf8(self.receive().await).expect("text"), response);
    }

    async fn started(&mut self) -> String {
        timeout(DEADLINE, self.started.recv()).await.expect("in time").expect("it runs")
    }

    async fn ended(self) -> Ended {
        timeout(DEADLINE, self.ended).await.expect("in time").expect("no panic")
    }
}

/// Requests by these names wait until the test lets them go.
fn hold<const N: usize>(
    names: [&str; N],
) -> ([oneshot::Sender<()>; N], HashMap<String, oneshot::Receiver<()>>) {
    let mut held = HashMap::new();
    let senders = names.map(|name| {
        let (sender, receiver) = oneshot::channel();
        held.insert(name.to_owned(), receiver);
        sender
    });
    (senders, held)
}

#[tokio::test]
async fn responses_leave_in_the_order_of_the_requests() {
    let ([first, second], held) = hold(["1", "2"]);
    let mut fixture = Fixture::open(held).await;
    fixture.send(&["b1", "b2", "b3"]).await;
    // All three have taken effect before any is answered.
    for name in ["1", "2", "3"] {
        assert_eq!(fixture.started().await, name);
    }
    second.send(()).expect("it waits");
    first.send(()).expect("it waits");
    for name in ["1", "2", "3"] {
        fixture.expect(name).await;
    }
}

#[tokio::test]
async fn what_is_served_alone_waits_and_is_waited_for() {
    let ([first, alone], held) = hold(["1", "2"]);
    let mut fixture = Fixture::open(held).await;
    fixture.send(&["b1", "a2", "b3"]).await;
    assert_eq!(fixture.started().await, "1");
    // It was made into work, which starts when it is polled; the third request was not even looked at.
    assert_eq!(fixture.started().await, "2");
    first.send(()).expect("it waits");
    fixture.expect("1").await;
    assert!(fixture.started.try_recv().is_err());
    alone.send(()).expect("it waits");
    fixture.expect("2").await;
    fixture.expect("3").await;
}

#[tokio::test]
async fn silence_is_no_response_and_does_not_disturb_the_order() {
    let mut fixture = Fixture::open(HashMap::new()).await;
    fixture.send(&["b1", "s2", "b3", "c4", "b5"]).await;
    fixture.expect("1").await;
    fixture.expect("3").await;
    assert!(matches!(fixture.ended().await, Ended::Refused(reason) if reason == "4"));
}

#[tokio::test]
async fn a_bad_request_ends_the_connection_after_earlier_answers() {
    let mut fixture = Fixture::open(HashMap::new()).await;
    fixture.send(&["b1", "xbad"]).await;
    fixture.expect("1").await;
    assert!(matches!(fixture.ended().await, Ended::Refused(reason) if reason == "bad"));

    let mut fixture = Fixture::open(HashMap::new()).await;
    fixture.client.write_all(&[0x7f, 0, 0, 0]).await.expect("it reads");
    assert!(matches!(fixture.ended().await, Ended::Frame(_)));
}

#[tokio::test]
async fn a_request_may_come_in_pieces_and_be_large() {
    let mut fixture = Fixture::open(HashMap::new()).await;
    let large = format!("b{}", "x".repeat(3 << 20));
    let mut bytes = u32::try_from(large.len()).expect("short").to_be_bytes().to_vec();
    bytes.extend_from_slice(large.as_bytes());
    let (start, rest) = bytes.split_at(7);
    for byte in start {
        fixture.client.write_all(&[*byte]).await.expect("it reads");
        fixture.client.flush().await.expect("it reads");
    }
    let (mut reader, mut writer) = fixture.client.split();
    let response = async {
        let size = reader.read_u32().await.expect("a response");
        let mut response = vec![0; size as usize];
        reader.read_exact(&mut response).await.expect("a response");
        response
    };
    let (written, response) = tokio::join!(writer.write_all(rest), response);
    written.expect("it reads");
    assert!(response == large.as_bytes()[1..]);
    fixture.send(&["b2"]).await;
    fixture.expect("2").await;
}

#[tokio::test]
async fn record_sets_are_sent_from_their_files() {
    let mut file = tempfile::tempfile().expect("a file");
    let content: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    file.write_all(&content).expect("room");
    let file = Some(Arc::new(file));
    let mut fixture = Fixture::open_with(HashMap::new(), file, DEADLINE).await;
    // One that is copied, one that the kernel sends, and neighbours that must not be torn apart.
    fixture.send(&["b1", "f1000", "b2", "f250000", "b3"]).await;
    for size in [1000, 250_000] {
        fixture.expect(if size == 1000 { "1" } else { "2" }).await;
        let expected = [b"<", &content[..size], b"><", &content[1..=size], b">"].concat();
        assert!(fixture.receive().await == expected, "{size}");
    }
    fixture.expect("3").await;
    // The file ends before the record set does: the response cannot be completed.
    fixture.send(&["f400000"]).await;
    assert!(matches!(fixture.ended().await, Ended::Output(_)));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_while_its_request_waits() {
    let ([_kept], held) = hold(["1"]);
    let mut fixture = Fixture::open(held).await;
    fixture.send(&["a1"]).await;
    assert_eq!(fixture.started().await, "1");
    let Fixture { client, ended, .. } = fixture;
    drop(client);
    let ended = timeout(DEADLINE, ended).await.expect("in time").expect("no panic");
    assert!(matches!(ended, Ended::ByClient | Ended::Io(_)), "{ended}");
}

#[tokio::test]
async fn idle_connections_and_stopping_nodes_end_it() {
    let idle = Duration::from_millis(50);
    let fixture = Fixture::open_with(HashMap::new(), None, idle).await;
    assert!(matches!(fixture.ended().await, Ended::Idle(_)));

    let ([held_back], held) = hold(["1"]);
    let mut fixture = Fixture::open(held).await;
    fixture.send(&["b1"]).await;
    assert_eq!(fixture.started().await, "1");
    fixture.shutdown.send(true).expect("it runs");
    // What has taken effect is still answered.
    held_back.send(()).expect("it waits");
    fixture.expect("1").await;
    assert!(matches!(fixture.ended().await, Ended::Stopping));
}
