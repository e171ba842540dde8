//! How calls reach other nodes: over sockets, or through a router in memory when many nodes share a test process.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

use crate::net::{BoxFuture, Error, Peers, ProbeOutcome, Reply};
use crate::protocol::native::{Frame, Kind};
use crate::types::HostPort;

/// Stands for the network between the nodes of a test.
pub trait Router: Debug + Send + Sync {
    fn call(&self, to: HostPort, frame: Frame) -> BoxFuture<'static, Result<Reply, Error>>;
    fn probe(&self, address: HostPort) -> BoxFuture<'static, ProbeOutcome>;
}

#[derive(Debug, Clone)]
pub enum Transport {
    Sockets(Peers),
    Router(Arc<dyn Router>),
}

impl Transport {
    /// As [`Peers::call`].
    pub(super) async fn call<Q: Serialize, R: DeserializeOwned>(
        &self,
        to: &HostPort,
        kind: Kind,
        body: &Q,
        payload: Bytes,
        within: Duration,
    ) -> Result<R, Error> {
        match self {
            Self::Sockets(peers) => {
                peers.call(to, kind, body, payload, within).await.map(|(reply, _)| reply)
            }
            Self::Router(router) => {
                let frame = Frame::with_payload(kind, 0, body, payload);
                let called = tokio::time::timeout(within, router.call(to.clone(), frame));
                let reply = called.await.map_err(|_| Error::Timeout(within))??;
                Ok(Frame { kind, request_id: 0, body: reply.body.into(), payload: reply.payload }
                    .body()?)
            }
        }
    }

    /// As [`Peers::probe`].
    pub(super) async fn probe(&self, address: &HostPort, within: Duration) -> ProbeOutcome {
        match self {
            Self::Sockets(peers) => peers.probe(address, within).await,
            Self::Router(router) => router.probe(address.clone()).await,
        }
    }
}
