//! `/healthz`, `/readyz` and `/metrics`.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::problem::Problem;

pub(super) fn health() -> Response<Full<Bytes>> {
    plain("ok\n".to_owned(), "text/plain; charset=utf-8")
}

pub(super) fn ready(readiness: Result<(), String>) -> Result<Response<Full<Bytes>>, Problem> {
    match readiness {
        Ok(()) => Ok(plain("ready\n".to_owned(), "text/plain; charset=utf-8")),
        Err(reason) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, reason)),
    }
}

pub(super) fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    let mut body = String::new();
    text::encode(&mut body, registry).expect("writing to a String cannot fail");
    plain(body, "application/openmetrics-text; version=1.0.0; charset=utf-8")
}

fn plain(body: String, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
