//! The calling side: one multiplexed connection per address.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::identity::SOFTWARE;
use super::{Error, FrameReader, FrameWriter, Identity, Limits, split};
use crate::protocol::native::{
    CLIENT_PREFACE, Frame, Hello, HelloReply, Kind, Purpose, WhoAmI, WhoAmIReply, WireError,
};
use crate::types::HostPort;

/// Unacknowledged bytes end a control connection after this, where the system can do it.
#[cfg(target_os = "linux")]
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections to other nodes, by address. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` for a client.
    identity: Option<Arc<Identity>>,
    limits: Limits,
    source: Option<IpAddr>,
    /// Where the tasks of connections run, whoever calls.
    runtime: Handle,
    by_address: Mutex<HashMap<HostPort, Arc<Peer>>>,
}

/// One address. Opening is serialised, so that a burst of calls makes one connection.
#[derive(Debug, Default)]
struct Peer {
    connection: Mutex<Option<Arc<Connection>>>,
    opening: tokio::sync::Mutex<()>,
}

/// Ends when the last handle is dropped.
#[derive(Debug)]
struct Connection {
    to_write: mpsc::Sender<Frame>,
    waiting: Arc<Waiting>,
    next_request_id: AtomicU64,
}

/// Callers by request id; `None` once the connection is gone.
type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<Frame>>>>;

/// A request that is on its way. Dropping this forgets the reply; the request may still be served.
#[derive(Debug)]
#[must_use = "the outcome of a call is in its reply"]
pub struct PendingReply {
    reply: oneshot::Receiver<Frame>,
    waiting: Arc<Waiting>,
    request_id: u64,
}

/// What a liveness probe found (replication.md 2.12 L2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeOutcome {
    /// Nobody listens there.
    Refused,
    Alive(WhoAmIReply),
    /// No answer in time, or an unreachable host: no verdict.
    Unknown(String),
}

impl Peers {
    /// # Panics
    /// Outside of a tokio runtime: the current one will run the connections' tasks.
    pub fn new(identity: Arc<Identity>, limits: Limits) -> Self {
        Self::open_as(Some(identity), limits, None)
    }

    /// As [`Peers::new`], from this address of the machine.
    pub fn from_address(identity: Arc<Identity>, limits: Limits, source: Option<IpAddr>) -> Self {
        Self::open_as(Some(identity), limits, source)
    }

    /// Connections of a client to the clients ports of nodes.
    ///
    /// # Panics
    /// As [`Peers::new`].
    pub fn of_client(limits: Limits) -> Self {
        Self::open_as(None, limits, None)
    }

    fn open_as(identity: Option<Arc<Identity>>, limits: Limits, source: Option<IpAddr>) -> Self {
        let (runtime, by_address) = (Handle::current(), Mutex::default());
        Self { shared: Arc::new(Shared { identity, limits, source, runtime, by_address }) }
    }

    /// Sends one request and waits for its reply.
    ///
    /// Cancel safe; a cancelled or timed-out request may still be served.
    pub async fn call<Q: Serialize, R: DeserializeOwned>(
        &self,
        to: &HostPort,
        kind: Kind,
        body: &Q,
        payload: Bytes,
        within: Duration,
    ) -> Result<(R, Bytes), Error> {
        let deadline = Instant::now() + within;
        let pending = timeout_at(deadline, self.send(to, kind, body, payload)).await;
        let pending = pending.unwrap_or_else(|_| {
            let source = io::ErrorKind::TimedOut.into();
            Err(Error::Connect { address: to.clone(), source })
        })?;
        timeout_at(deadline, pending.reply()).await.map_err(|_| Error::Timeout(within))?
    }

    /// Sends one request, which is under way when this returns. Requests to one node keep the order in which they were
    /// sent, unless the connection breaks between them.
    ///
    /// Cancel safe: a cancelled request was not sent.
    pub async fn send<Q: Serialize>(
        &self,
        to: &HostPort,
        kind: Kind,
        body: &Q,
        payload: Bytes,
    ) -> Result<PendingReply, Error> {
        self.connection(to).await?.send(kind, body, payload)
    }

    /// Opens a connection of its own and asks who is there. It does not share the fate of an established connection.
    pub async fn probe(&self, address: &HostPort, within: Duration) -> ProbeOutcome {
        let asked = timeout(within, async {
            let (mut reader, mut writer, _) = self.open_stream(address, Purpose::Probe).await?;
            let lost = |error: io::Error| Error::Lost(error.to_string());
            writer.write_frame(&Frame::new(Kind::WhoAmI, 0, &WhoAmI)).await.map_err(lost)?;
            let frame = reader.read_frame().await.map_err(lost)?;
            let frame = frame.ok_or_else(|| Error::Lost("closed".to_owned()))?;
            Ok(frame.body::<WhoAmIReply>()?)
        });
        match asked.await {
            Ok(Ok(reply)) => ProbeOutcome::Alive(reply),
            Ok(Err(Error::Connect { source, .. }))
                if source.kind() == io::ErrorKind::ConnectionRefused =>
            {
                ProbeOutcome::Refused
            }
            Ok(Err(error)) => ProbeOutcome::Unknown(error.to_string()),
            Err(_) => ProbeOutcome::Unknown(format!("no answer within {within:?}")),
        }
    }

    /// Opens a connection that belongs to the caller, on the caller's runtime; hellos are exchanged.
    pub async fn open_stream(
        &self,
        address: &HostPort,
        purpose: Purpose,
    ) -> Result<(FrameReader, FrameWriter, HelloReply), Error> {
        let connect_error = |source| Error::Connect { address: address.clone(), source };
        let stream = match self.shared.source {
            None => TcpStream::connect((address.host.as_str(), address.port)).await,
            Some(source) => connect_from(source, address).await,
        };
        let stream = stream.map_err(connect_error)?;
        stream.set_nodelay(true).map_err(connect_error)?;
        #[cfg(target_os = "linux")]
        SockRef::from(&stream)
            .set_tcp_user_timeout(Some(TCP_USER_TIMEOUT))
            .map_err(connect_error)?;
        let (mut reader, mut writer) = split(stream, self.shared.limits.frame_size_max);
        let hello = match &self.shared.identity {
            Some(identity) => identity.hello(purpose),
            None => {
                writer.write_bytes(&CLIENT_PREFACE).await.map_err(connect_error)?;
                Hello { cluster_id: None, node: None, purpose, software: SOFTWARE.to_owned() }
            }
        };
        writer.write_frame(&Frame::new(Kind::Hello, 0, &hello)).await.map_err(connect_error)?;
        let frame = timeout(self.shared.limits.hello_timeout, reader.read_frame())
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(connect_error)?
            .ok_or_else(|| connect_error(io::ErrorKind::UnexpectedEof.into()))?;
        let reply: HelloReply = frame.body()?;
        match reply.refused {
            Some(refused) => Err(Error::Refused { address: address.clone(), refused }),
            None => Ok((reader, writer, reply)),
        }
    }

    async fn connection(&self, to: &HostPort) -> Result<Arc<Connection>, Error> {
        let peer = self.shared.by_address.lock().entry(to.clone()).or_default().clone();
        if let Some(connection) = peer.live_connection() {
            return Ok(connection);
        }
        let _opening = peer.opening.lock().await;
        if let Some(connection) = peer.live_connection() {
            return Ok(connection);
        }
        // On the connection's own runtime, so that its socket is polled there whoever called.
        let (peers, address) = (self.clone(), to.clone());
        let opened = self.shared.runtime.spawn(async move {
            let purpose = match peers.shared.identity {
                Some(_) => Purpose::Control,
                None => Purpose::Client,
            };
            let (reader, writer, _) = peers.open_stream(&address, purpose).await?;
            Ok(Connection::start(reader, writer, peers.shared.limits.calls_max))
        });
        let connection: Result<Arc<Connection>, Error> =
            opened.await.map_err(|error| Error::Lost(error.to_string()))?;
        let connection = connection?;
        *peer.connection.lock() = Some(connection.clone());
        Ok(connection)
    }
}

impl Peer {
    fn live_connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().clone().filter(|connection| connection.waiting.lock().is_some())
    }
}

impl Connection {
    /// Starts the reading and the writing task on the current runtime.
    fn start(mut reader: FrameReader, mut writer: FrameWriter, calls_max: usize) -> Arc<Self> {
        let (to_write, mut queue) = mpsc::channel::<Frame>(calls_max);
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(HashMap::new())));
        let write = async move {
            while let Some(frame) = queue.recv().await {
                if writer.write_frame(&frame).await.is_err() {
                    return;
                }
            }
        };
        let replies = waiting.clone();
        let read = async move {
            while let Ok(Some(frame)) = reader.read_frame().await {
                let waiter = replies.lock().as_mut().and_then(|w| w.remove(&frame.request_id));
                if let Some(waiter) = waiter {
                    // The caller may have given up.
                    let _ = waiter.send(frame);
                }
            }
        };
        let ended = waiting.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = read => {}
                () = write => {}
            }
            // Drops every waiter: their outcome is unknown. No new call can enter.
            ended.lock().take();
        });
        Arc::new(Self { to_write, waiting, next_request_id: AtomicU64::new(1) })
    }

    fn send<Q: Serialize>(
        &self,
        kind: Kind,
        body: &Q,
        payload: Bytes,
    ) -> Result<PendingReply, Error> {
        let request_id = self.next_request_id.fetch_add(1, Ordering::Relaxed);
        let (sender, reply) = oneshot::channel();
        let frame = Frame::with_payload(kind, request_id, body, payload);
        match self.waiting.lock().as_mut() {
            Some(waiting) => waiting.insert(request_id, sender),
            None => return Err(Error::Lost("closed".to_owned())),
        };
        let pending = PendingReply { reply, waiting: self.waiting.clone(), request_id };
        self.to_write.try_send(frame).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Busy,
            mpsc::error::TrySendError::Closed(_) => Error::Lost("closed".to_owned()),
        })?;
        Ok(pending)
    }
}

impl PendingReply {
    /// Waits for the reply. How long is for the caller to say.
    pub async fn reply<R: DeserializeOwned>(mut self) -> Result<(R, Bytes), Error> {
        let frame = (&mut self.reply)
            .await
            .map_err(|_| Error::Lost("closed before the reply".to_owned()))?;
        if frame.kind == Kind::Error {
            return Err(Error::Remote(frame.body::<WireError>()?));
        }
        Ok((frame.body()?, frame.payload))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.remove(&self.request_id);
        }
    }
}

/// To an address of the same family.
async fn connect_from(source: IpAddr, to: &HostPort) -> io::Result<TcpStream> {
    let resolved = tokio::net::lookup_host((to.host.as_str(), to.port)).await?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in resolved.filter(|address| address.is_ipv4() == source.is_ipv4()) {
        let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.bind(SocketAddr::new(source, 0))?;
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::super::{BoxFuture, PeerService, Reply, serve_peers};
    use super::*;
    use crate::protocol::native::NodeHello;
    use crate::types::{NodeId, Uuid};

    /// Answers each call with its own payload; a payload of "hang" is never answered.
    #[derive(Debug)]
    struct Echo {
        connected: watch::Sender<i32>,
    }

    impl PeerService for Echo {
        fn on_call(
            self: Arc<Self>,
            from: Option<NodeHello>,
            frame: Frame,
        ) -> BoxFuture<'static, Result<Reply, WireError>> {
            Box::pin(async move {
                match frame.payload.as_ref() {
                    b"hang" => std::future::pending().await,
                    b"fail" => Err(WireError::Unexpected),
                    _ => {
                        let node_id = from.map(|node| node.node_id);
                        Ok(Reply { payload: frame.payload, ..Reply::new(&node_id) })
                    }
                }
            })
        }

        fn on_connected(&self, _: NodeHello) {
            self.connected.send_modify(|count| *count += 1);
        }

        fn on_disconnected(&self, _: NodeHello) {
            self.connected.send_modify(|count| *count -= 1);
        }

        fn on_replica_stream(self: Arc<Self>, _: NodeHello, _: FrameReader, _: FrameWriter) {}
    }

    struct Server {
        address: HostPort,
        identity: Arc<Identity>,
        stop: watch::Sender<bool>,
        connected: watch::Receiver<i32>,
    }

    async fn server(cluster: u8) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let identity = Arc::new(Identity::new(NodeId(1), Uuid([1; 16]), Some(Uuid([cluster; 16]))));
        let (stop, stopped) = watch::channel(false);
        let (sender, connected) = watch::channel(0);
        let service = Arc::new(Echo { connected: sender });
        tokio::spawn(serve_peers(listener, identity.clone(), service, Limits::DEFAULT, stopped));
        let address = HostPort { host: "127.0.0.1".to_owned(), port };
        Server { address, identity, stop, connected }
    }

    fn peers(cluster: u8) -> Peers {
        let identity = Identity::new(NodeId(2), Uuid([2; 16]), Some(Uuid([cluster; 16])));
        Peers::new(Arc::new(identity), Limits::DEFAULT)
    }

    async fn echo(peers: &Peers, to: &HostPort, payload: &'static str) -> Result<Bytes, Error> {
        let within = Duration::from_secs(if payload == "hang" { 0 } else { 30 });
        let (node_id, payload): (Option<NodeId>, Bytes) =
            peers.call(to, Kind::Controller, &0_u8, payload.into(), within).await?;
        assert_eq!(node_id, Some(NodeId(2)));
        Ok(payload)
    }

    #[tokio::test]
    async fn calls_share_a_connection_and_find_their_replies() {
        let mut server = server(9).await;
        let peers = peers(9);
        let (a, b, hang, fail) = tokio::join!(
            echo(&peers, &server.address, "a"),
            echo(&peers, &server.address, "b"),
            echo(&peers, &server.address, "hang"),
            echo(&peers, &server.address, "fail"),
        );
        assert_eq!((a.expect("answered"), b.expect("answered")), ("a".into(), "b".into()));
        assert!(hang.is_err());
        assert!(matches!(fail, Err(Error::Remote(WireError::Unexpected))));
        assert_eq!(*server.connected.borrow(), 1);

        server.stop.send_replace(true);
        server.connected.wait_for(|count| *count <= 1).await.expect("server lives");
        // The listener is gone: a call ends by itself, and says that it was not delivered once nobody listens.
        let refused = loop {
            match echo(&peers, &server.address, "c").await {
                Err(error) if error.certainly_not_delivered() => break error,
                _ => tokio::task::yield_now().await,
            }
        };
        assert!(matches!(refused, Error::Connect { .. }));
        assert_eq!(
            peers.probe(&server.address, Duration::from_secs(30)).await,
            ProbeOutcome::Refused
        );
    }

    #[tokio::test]
    async fn a_probe_tells_the_incarnation_and_another_cluster_is_refused() {
        let server = server(9).await;
        let alive = WhoAmIReply { node_id: NodeId(1), incarnation: server.identity.incarnation };
        assert_eq!(
            peers(9).probe(&server.address, Duration::from_secs(30)).await,
            ProbeOutcome::Alive(alive)
        );
        let error = echo(&peers(8), &server.address, "a").await.expect_err("another cluster");
        assert!(matches!(error, Error::Refused { .. }) && error.certainly_not_delivered());
    }
}
