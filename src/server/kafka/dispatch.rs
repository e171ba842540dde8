//! From frames to handlers and back: the rows of `api_table!` become one `match`.

use std::future::Future;
use std::sync::Arc;

use bytes::BytesMut;
use tracing::debug;

use super::connection::{Answer, Service, Started, Work};
use super::output::Response;
use super::{Front, api_versions};
use crate::protocol::kafka::{
    Api, ApiVersionsRequest, Reader, Request, RequestHeader, api_table, encode_response,
};
use crate::storage::Slice;

/// A request's circumstances.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) front: Arc<Front>,
    pub(super) version: i16,
}

/// What a handler made of a request. Most make it from the response alone.
#[derive(Debug)]
pub(super) enum Reply<R> {
    Response {
        response: R,
        /// For the gaps in the response, in its order.
        slices: Vec<Slice>,
    },
    /// The client wants no response.
    Silence,
    /// The connection must end; for the log.
    Close(String),
}

impl<R> From<R> for Reply<R> {
    fn from(response: R) -> Self {
        Self::Response { response, slices: Vec::new() }
    }
}

/// Starts the requests of one connection.
#[derive(Debug)]
pub(super) struct Dispatcher {
    front: Arc<Front>,
}

impl Dispatcher {
    pub(super) fn new(front: Arc<Front>) -> Self {
        Self { front }
    }

    fn try_start(&self, frame: BytesMut) -> Result<Started, String> {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::read(&mut reader)
            .map_err(|error| format!("the header of a request is unreadable: {error}"))?;
        let RequestHeader { api_key, api_version: version, correlation_id, .. } = header;
        let client = header.client_id.as_deref().unwrap_or("");
        let Some(api) = Api::from_key(api_key) else {
            return Err(format!(
                "client {client:?} sent API key {api_key}, version {version}, which is not served"
            ));
        };
        if !api.advertised().contains(&version) {
            let (name, served) = (api.name(), api.advertised());
            if api != Api::ApiVersions {
                return Err(format!(
                    "client {client:?} sent {name} version {version}; {served:?} are served"
                ));
            }
            // In a version that every client can read, so that it can choose another.
            let response = api_versions::unsupported_version();
            let work = async move { encode::<ApiVersionsRequest>(0, correlation_id, response) };
            return Ok(Started::Alone(Box::pin(work)));
        }
        let call = Call { front: self.front.clone(), version };
        let work = start(api, call, correlation_id, reader).map_err(|error| {
            let name = api.name();
            format!("client {client:?} sent an unreadable {name} version {version}: {error}")
        })?;
        // A produce is appended when it is started; all others start when they are polled.
        Ok(if api == Api::Produce { Started::Beside(work) } else { Started::Alone(work) })
    }
}

impl Service for Dispatcher {
    fn start(&mut self, frame: BytesMut) -> Started {
        self.try_start(frame).unwrap_or_else(Started::Close)
    }
}

macro_rules! start_rows {
    ($(
        $key:literal $name:ident $min:literal ..= $max:literal from $advertised:literal flexible $flexible:literal
        $request:ident => $response:ident, $handler:ident;
    )+) => {
        /// Decodes the body and hands it to the handler of its API.
        fn start(
            api: Api,
            call: Call,
            correlation_id: i32,
            reader: Reader,
        ) -> Result<Work, crate::protocol::kafka::Error> {
            match api {
                $(Api::$name => handle(call, correlation_id, reader, super::$handler::handle),)+
            }
        }
    };
}

api_table!(start_rows);

fn handle<Q, F>(
    call: Call,
    correlation_id: i32,
    mut reader: Reader,
    handler: impl FnOnce(Call, Q) -> F,
) -> Result<Work, crate::protocol::kafka::Error>
where
    Q: Request<Response: Send>,
    F: Future<Output = Reply<Q::Response>> + Send + 'static,
{
    let version = call.version;
    let request = Q::read(&mut reader)?;
    if let Err(error) = reader.finish() {
        // Kafka does not mind either.
        debug!("{} version {version}: {error}", Q::API.name());
    }
    let reply = handler(call, request);
    Ok(Box::pin(async move { encode::<Q>(version, correlation_id, reply.await) }))
}

fn encode<Q: Request>(
    version: i16,
    correlation_id: i32,
    reply: impl Into<Reply<Q::Response>>,
) -> Answer {
    match reply.into() {
        Reply::Response { response, slices } => {
            match encode_response::<Q>(version, correlation_id, &response) {
                Ok(encoded) => Answer::Response(Response { encoded, slices }),
                Err(error) => Answer::Close(format!("{}: {error}", Q::API.name())),
            }
        }
        Reply::Silence => Answer::Silence,
        Reply::Close(reason) => Answer::Close(reason),
    }
}
