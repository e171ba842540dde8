//! Raft's messages between nodes: openraft's network traits on one side, the frames of the peers port on the other.
//!
//! Every message names the disk it is for. A node that was started on another directory at the same address does not
//! take messages that were meant for the old one.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use openraft::OptionalSend;
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::type_config::alias::SnapshotOf;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use std::sync::Arc;

use super::raft::{Member, Raft, SnapshotMeta, TypeConfig, Vote};
use super::transport::Transport;
use crate::metadata::MetadataImage;
use crate::net::{self, Reply};
use crate::protocol::native::{Frame, Kind, WireError};
use crate::types::{HostPort, RaftNodeId};

/// A message with entries waits for the disk of the other side, so it gets more time than a heartbeat.
const APPEND_TIMEOUT: Duration = Duration::from_secs(1);

/// One chunk of a snapshot; the last one includes that it is saved and installed.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a snapshot in one frame, well below the frame limit.
const SNAPSHOT_CHUNK_SIZE: usize = 1 << 20;

/// Largest snapshot that is received: that of [`MetadataImage::from_snapshot`].
const SNAPSHOT_SIZE_MAX: u64 = 1 << 30;

#[derive(Serialize, Deserialize)]
struct Addressed<T> {
    to: RaftNodeId,
    message: T,
}

#[derive(Serialize, Deserialize)]
struct Ballot {
    pre_vote: bool,
    request: VoteRequest<TypeConfig>,
}

/// The bytes are the payload. Answered by `Option<SnapshotResponse>`, which is there for the last chunk.
#[derive(Serialize, Deserialize)]
struct SnapshotChunk {
    vote: Vote,
    meta: SnapshotMeta,
    offset: u64,
    size: u64,
}

/// Makes the connections of openraft.
#[derive(Debug, Clone)]
pub(super) struct NetworkFactory {
    pub(super) transport: Transport,
}

/// To one disk.
#[derive(Debug)]
pub(super) struct Network {
    transport: Transport,
    to: RaftNodeId,
    address: HostPort,
}

impl RaftNetworkFactory<TypeConfig> for NetworkFactory {
    type Network = Network;

    async fn new_client(&mut self, target: RaftNodeId, node: &Member) -> Network {
        Network { transport: self.transport.clone(), to: target, address: node.peer.clone() }
    }
}

impl Network {
    async fn call<Q: Serialize, R: DeserializeOwned>(
        &self,
        kind: Kind,
        message: Q,
        payload: Bytes,
        within: Duration,
    ) -> Result<R, RPCError<TypeConfig>> {
        let body = Addressed { to: self.to, message };
        self.transport.call(&self.address, kind, &body, payload, within).await.map_err(|error| {
            match error {
                // openraft backs off from nodes that are not there, and tries others again at once.
                net::Error::Lost(_) | net::Error::Timeout(_) => {
                    RPCError::Network(NetworkError::new(&error))
                }
                _ => RPCError::Unreachable(Unreachable::new(&error)),
            }
        })
    }
}

impl RaftNetworkV2<TypeConfig> for Network {
    type SnapshotData = Arc<MetadataImage>;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<TypeConfig>, RPCError<TypeConfig>> {
        let within = if request.entries.is_empty() { option.hard_ttl() } else { APPEND_TIMEOUT };
        self.call(Kind::RaftAppend, request, Bytes::new(), within).await
    }

    async fn vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let ballot = Ballot { pre_vote: false, request };
        self.call(Kind::RaftVote, ballot, Bytes::new(), option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        let ballot = Ballot { pre_vote: true, request };
        self.call(Kind::RaftVote, ballot, Bytes::new(), option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: SnapshotOf<TypeConfig, Arc<MetadataImage>>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        let bytes = Bytes::from(snapshot.snapshot.to_snapshot());
        let size = bytes.len() as u64;
        let send = async {
            let mut rest = bytes;
            loop {
                let offset = size - rest.len() as u64;
                let chunk = rest.split_to(rest.len().min(SNAPSHOT_CHUNK_SIZE));
                let meta = snapshot.meta.clone();
                let message = SnapshotChunk { vote, meta, offset, size };
                let reply: Option<SnapshotResponse<TypeConfig>> =
                    self.call(Kind::RaftSnapshot, message, chunk, SNAPSHOT_TIMEOUT).await?;
                match reply {
                    Some(response) => return Ok(response),
                    None if rest.is_empty() => {
                        return Err(NetworkError::from_string("no answer to the last chunk").into());
                    }
                    None => {}
                }
            }
        };
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = send => sent,
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.call(Kind::RaftTransferLeader, request, Bytes::new(), option.hard_ttl()).await
    }
}

/// The receiving side.
#[derive(Debug)]
pub(super) struct RaftService {
    me: RaftNodeId,
    raft: Raft,
    /// One snapshot at a time; another one, or a gap, starts over.
    incoming: Mutex<Option<Incoming>>,
}

#[derive(Debug)]
struct Incoming {
    vote: Vote,
    meta: SnapshotMeta,
    bytes: Vec<u8>,
}

impl RaftService {
    pub(super) fn new(me: RaftNodeId, raft: Raft) -> Self {
        Self { me, raft, incoming: Mutex::new(None) }
    }

    /// Serves the `Raft*` kinds.
    pub(super) async fn on_frame(&self, frame: Frame) -> Result<Reply, WireError> {
        let failed = |error: &dyn std::error::Error| WireError::Failed(error.to_string());
        match frame.kind {
            Kind::RaftAppend => {
                let request = self.message::<AppendEntriesRequest<TypeConfig>>(&frame)?;
                let response = self.raft.append_entries(request).await;
                Ok(Reply::new(&response.map_err(|error| failed(&error))?))
            }
            Kind::RaftVote => {
                let ballot = self.message::<Ballot>(&frame)?;
                let response = match ballot.pre_vote {
                    true => self.raft.pre_vote(ballot.request).await,
                    false => self.raft.vote(ballot.request).await,
                };
                Ok(Reply::new(&response.map_err(|error| failed(&error))?))
            }
            Kind::RaftTransferLeader => {
                let request = self.message::<TransferLeaderRequest<TypeConfig>>(&frame)?;
                let response = self.raft.handle_transfer_leader(request).await;
                Ok(Reply::new(&response.map_err(|error| failed(&error))?))
            }
            Kind::RaftSnapshot => {
                let chunk = self.message::<SnapshotChunk>(&frame)?;
                let Some((vote, meta, bytes)) = self.take_chunk(chunk, &frame.payload)? else {
                    return Ok(Reply::new(&None::<SnapshotResponse<TypeConfig>>));
                };
                // Checked as a whole before openraft hears of it: it would have to stop the node.
                let image = MetadataImage::from_snapshot(&bytes).map_err(|error| failed(&error))?;
                let snapshot = Snapshot { meta, snapshot: Arc::new(image) };
                let response = self.raft.install_full_snapshot(vote, snapshot).await;
                Ok(Reply::new(&Some(response.map_err(|error| failed(&error))?)))
            }
            _ => Err(WireError::Unexpected),
        }
    }

    fn message<T: DeserializeOwned>(&self, frame: &Frame) -> Result<T, WireError> {
        let addressed: Addressed<T> =
            frame.body().map_err(|error| WireError::Malformed(error.to_string()))?;
        if addressed.to != self.me {
            let reason = format!("disk {:016x} is not here, but {:016x}", addressed.to, self.me);
            return Err(WireError::Failed(reason));
        }
        Ok(addressed.message)
    }

    /// The snapshot, once it is whole.
    fn take_chunk(
        &self,
        chunk: SnapshotChunk,
        payload: &[u8],
    ) -> Result<Option<(Vote, SnapshotMeta, Vec<u8>)>, WireError> {
        let SnapshotChunk { vote, meta, offset, size } = chunk;
        let mut incoming = self.incoming.lock();
        if offset == 0 {
            *incoming = Some(Incoming { vote, meta: meta.clone(), bytes: Vec::new() });
        }
        let fits = |i: &Incoming| {
            let end = offset.saturating_add(payload.len() as u64);
            i.vote == vote
                && i.meta == meta
                && i.bytes.len() as u64 == offset
                && end <= size
                && size <= SNAPSHOT_SIZE_MAX
                && (!payload.is_empty() || end == size)
        };
        let Some(mut partial) = incoming.take().filter(fits) else {
            return Err(WireError::Failed("this chunk does not follow the last one".to_owned()));
        };
        partial.bytes.extend_from_slice(payload);
        if partial.bytes.len() as u64 == size {
            return Ok(Some((partial.vote, partial.meta, partial.bytes)));
        }
        *incoming = Some(partial);
        Ok(None)
    }
}
