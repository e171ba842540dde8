//! From frames to handlers and back: the rows of `api_table!` become one `match`.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bytes::BytesMut;
use tracing::debug;

use super::connection::{Answer, Service, Started, Work};
use super::output::Response;
use super::{Front, api_versions};
use crate::protocol::kafka::{
    Api, ApiVersionsRequest, Reader, Request, RequestHeader, Text, api_table, encode_response,
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
}

impl Service for Dispatcher {
    fn start(&mut self, frame: BytesMut) -> Started {
        let (size, metrics) = (frame.len(), &self.front.config.metrics);
        match route(frame) {
            Ok(Route::Serve { api, version, correlation_id, client, body }) => {
                metrics.count_request(api, size);
                let call = Call { front: self.front.clone(), version };
                match start(api, call, correlation_id, body) {
                    // A produce is appended when it is started; all others start when they are polled.
                    Ok(work) if api == Api::Produce => Started::Beside(work),
                    Ok(work) => Started::Alone(work),
                    Err(error) => {
                        metrics.requests_unreadable.inc();
                        let name = api.name();
                        Started::Close(format!(
                            "{client} sent an unreadable {name} version {version}: {error}"
                        ))
                    }
                }
            }
            Ok(Route::TellVersions { correlation_id }) => {
                let response = api_versions::unsupported_version();
                let work = async move { encode::<ApiVersionsRequest>(0, correlation_id, response) };
                Started::Alone(Box::pin(work))
            }
            Err(reason) => {
                metrics.requests_unreadable.inc();
                Started::Close(reason)
            }
        }
    }
}

/// Where a request goes.
#[derive(Debug)]
enum Route {
    Serve {
        api: Api,
        version: i16,
        correlation_id: i32,
        /// For the log.
        client: ClientName,
        body: Reader,
    },
    /// ApiVersions in a version that is not served: answered in the first one, which every client can read, so that it
    /// can choose another.
    TellVersions { correlation_id: i32 },
}

/// What a client calls itself.
#[derive(Debug)]
struct ClientName(Option<Text>);

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "client {name:?}"),
            None => f.write_str("a client"),
        }
    }
}

/// Reads the header. `Err`: there is no answer to this, and the connection must end.
fn route(frame: BytesMut) -> Result<Route, String> {
    let mut body = Reader::new(frame);
    let header = RequestHeader::read(&mut body)
        .map_err(|error| format!("the header of a request is unreadable: {error}"))?;
    let RequestHeader { api_key, api_version: version, correlation_id, client_id } = header;
    let client = ClientName(client_id);
    let Some(api) = Api::from_key(api_key) else {
        return Err(format!(
            "{client} sent API key {api_key}, version {version}; it is not served"
        ));
    };
    if api.advertised().contains(&version) {
        Ok(Route::Serve { api, version, correlation_id, client, body })
    } else if api == Api::ApiVersions {
        Ok(Route::TellVersions { correlation_id })
    } else {
        let (name, served) = (api.name(), api.advertised());
        Err(format!("{client} sent {name} version {version}; {served:?} are served"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::kafka::{ApiVersionsResponse, decode_response};

    fn frame(key: i16, version: i16) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.extend_from_slice(&key.to_be_bytes());
        frame.extend_from_slice(&version.to_be_bytes());
        frame.extend_from_slice(&[0, 0, 0, 7, 0, 2, b'm', b'e', 0, 0, 0]);
        frame
    }

    #[test]
    fn served_versions_are_served_and_others_end_the_connection() {
        for api in Api::ALL.iter().copied().filter(|api| *api != Api::ApiVersions) {
            for version in api.advertised() {
                let route = route(frame(api.key(), version));
                assert!(matches!(route, Ok(Route::Serve { correlation_id: 7, .. })), "{route:?}");
            }
            let refused = route(frame(api.key(), api.served().end() + 1)).expect_err("too new");
            assert!(refused.contains(api.name()) && refused.contains("\"me\""), "{refused}");
            assert!(route(frame(api.key(), -1)).is_err());
        }
        for key in [-1, 4, 11, 999] {
            assert!(route(frame(key, 0)).is_err(), "{key}");
        }
        assert!(route(BytesMut::from(&[0, 3, 0][..])).is_err());
    }

    #[test]
    fn api_versions_is_answered_in_every_version() {
        for version in [0, 4] {
            let route = route(frame(18, version));
            assert!(matches!(route, Ok(Route::Serve { .. })), "{route:?}");
        }
        for version in [5, 127, -1] {
            let route = route(frame(18, version));
            assert!(matches!(route, Ok(Route::TellVersions { correlation_id: 7 })), "{route:?}");
        }
        let answer = encode::<ApiVersionsRequest>(0, 7, api_versions::unsupported_version());
        let Answer::Response(response) = answer else { panic!("no response") };
        let bytes = BytesMut::from(&response.encoded.bytes[..]);
        let (correlation_id, read): (i32, ApiVersionsResponse) =
            decode_response::<ApiVersionsRequest>(0, bytes).expect("version 0");
        let listed: Vec<_> =
            read.api_keys.iter().map(|r| (r.api_key, r.min_version, r.max_version)).collect();
        assert_eq!((correlation_id, read.error_code, listed), (7, 35, vec![(18, 0, 4)]));
    }
}
