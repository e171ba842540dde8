//! The listening side of the peers port.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tracing::{debug, warn};

use super::{FrameReader, FrameWriter, Identity, Limits, split};
use crate::codec;
use crate::protocol::native::{
    Frame, Hello, Kind, NodeHello, Purpose, Refused, WhoAmIReply, WireError,
};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a call is answered with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    pub body: Vec<u8>,
    pub payload: Bytes,
}

impl Reply {
    pub fn new<T: Serialize>(body: &T) -> Self {
        Self { body: codec::encode(body), payload: Bytes::new() }
    }
}

/// What a node does with its peers' connections.
pub trait PeerService: Send + Sync + 'static {
    /// Answers one call. Runs beside others of the same connection.
    fn on_call(
        self: Arc<Self>,
        from: Option<NodeHello>,
        frame: Frame,
    ) -> BoxFuture<'static, Result<Reply, WireError>>;

    /// A control connection of this peer opened.
    fn on_connected(&self, node: NodeHello);

    /// A control connection of this peer ended: evidence, not a verdict (replication.md 2.12 L1).
    fn on_disconnected(&self, node: NodeHello);

    /// Takes over the connection of a follower's replica stream; hellos are exchanged.
    fn on_replica_stream(
        self: Arc<Self>,
        node: NodeHello,
        reader: FrameReader,
        writer: FrameWriter,
    );
}

/// Serves the peers port until `shutdown` turns true; then its connections end too.
pub async fn serve_peers(
    listener: TcpListener,
    identity: Arc<Identity>,
    service: Arc<dyn PeerService>,
    limits: Limits,
    mut shutdown: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(limits.connections_max));
    loop {
        let accepted = tokio::select! {
            biased; // Shutdown wins over a flood of connections.
            _ = shutdown.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely. Accepting again at once would spin.
                warn!(%error, "cannot accept a peer's connection");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else {
            warn!(%address, limit = limits.connections_max, "too many connections of peers");
            continue;
        };
        let (identity, service) = (identity.clone(), service.clone());
        let mut shutdown = shutdown.clone();
        tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                _ = shutdown.wait_for(|stop| *stop) => {}
                ended = serve_connection(stream, &identity, service, limits) => {
                    if let Err(error) = ended {
                        debug!(%address, %error, "a peer's connection ended");
                    }
                }
            }
        });
    }
}

/// Largest first frame of a connection, in bytes. A hello takes about a hundred.
const HELLO_SIZE_MAX: usize = 4 << 10;

/// Reads the hello and answers it. `None` when it was refused.
pub async fn accept_hello(
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
    identity: &Identity,
    served: &[Purpose],
    limits: Limits,
) -> io::Result<Option<Hello>> {
    // Strangers get no more memory than a hello takes.
    reader.limit_frames(limits.frame_size_max.min(HELLO_SIZE_MAX));
    let frame = tokio::time::timeout(limits.hello_timeout, reader.read_frame())
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    reader.limit_frames(limits.frame_size_max);
    if frame.kind != Kind::Hello {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first frame is no hello"));
    }
    let hello: Hello =
        frame.body().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let refused = identity.refusal(&hello, served);
    if let Some(refused) = &refused {
        report_refusal(&hello, refused);
    }
    let accepted = refused.is_none();
    let reply = identity.hello_reply(refused);
    writer.write_frame(&Frame::new(Kind::Hello, frame.request_id, &reply)).await?;
    Ok(accepted.then_some(hello))
}

fn report_refusal(hello: &Hello, refused: &Refused) {
    match (refused, &hello.node) {
        (Refused::OtherCluster { .. } | Refused::DuplicateNodeId(_), Some(node)) => warn!(
            node_id = %node.node_id,
            directory_id = %node.directory_id,
            "refused a connection: {refused}"
        ),
        _ => debug!(?hello, "refused a connection: {refused}"),
    }
}

async fn serve_connection(
    stream: TcpStream,
    identity: &Arc<Identity>,
    service: Arc<dyn PeerService>,
    limits: Limits,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = split(stream, limits.frame_size_max);
    let served = [Purpose::Control, Purpose::Probe, Purpose::Replica];
    let Some(hello) = accept_hello(&mut reader, &mut writer, identity, &served, limits).await?
    else {
        return Ok(());
    };
    match (hello.purpose, hello.node) {
        (Purpose::Replica, Some(node)) => {
            service.on_replica_stream(node, reader, writer);
            Ok(())
        }
        (Purpose::Control, Some(node)) => {
            service.on_connected(node);
            let ended = serve_calls(reader, writer, identity, &service, Some(node), limits).await;
            service.on_disconnected(node);
            ended
        }
        (_, node) => serve_calls(reader, writer, identity, &service, node, limits).await,
    }
}

async fn serve_calls(
    mut reader: FrameReader,
    mut writer: FrameWriter,
    identity: &Arc<Identity>,
    service: &Arc<dyn PeerService>,
    from: Option<NodeHello>,
    limits: Limits,
) -> io::Result<()> {
    let in_flight = Arc::new(Semaphore::new(limits.calls_max));
    let (replies, mut to_write) = mpsc::channel::<Frame>(limits.calls_max);
    let write = async move {
        while let Some(frame) = to_write.recv().await {
            writer.write_frame(&frame).await?;
        }
        io::Result::Ok(())
    };
    let read = async move {
        while let Some(frame) = reader.read_frame().await? {
            let permit = in_flight.clone().acquire_owned().await.expect("never closed");
            let replies = replies.clone();
            if frame.kind == Kind::WhoAmI {
                let body =
                    WhoAmIReply { node_id: identity.node_id, incarnation: identity.incarnation };
                let _ = replies.send(Frame::new(Kind::WhoAmI, frame.request_id, &body)).await;
                continue;
            }
            let (kind, request_id) = (frame.kind, frame.request_id);
            let answer = service.clone().on_call(from, frame);
            tokio::spawn(async move {
                let frame = match answer.await {
                    Ok(Reply { body, payload }) => {
                        Frame { kind, request_id, body: body.into(), payload }
                    }
                    Err(error) => Frame::new(Kind::Error, request_id, &error),
                };
                // A closed channel means that the connection is gone, and with it whoever asked.
                let _ = replies.send(frame).await;
                drop(permit);
            });
        }
        io::Result::Ok(())
    };
    tokio::select! {
        ended = read => ended,
        ended = write => ended,
    }
}
