//! Errors as problem documents (RFC 9457), with Kafka's error code where there is one.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::controller::Refusal;
use crate::protocol::ErrorCode;

/// An answer that is not the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    status: StatusCode,
    /// Says what to do.
    detail: String,
    code: Option<ErrorCode>,
    header: Option<(HeaderName, String)>,
}

#[derive(Serialize)]
struct Document<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), code: None, header: None }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(super) fn not_found(code: ErrorCode, detail: impl Into<String>) -> Self {
        Refusal::new(code, detail).into()
    }

    /// The resource exists; the method does not.
    pub(super) fn method_not_allowed(method: &str, path: &str, allowed: String) -> Self {
        let detail = format!("{path} does not take {method}; it takes {allowed}");
        let header = Some((ALLOW, allowed));
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, detail) }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// The rest of the request was not read, so the connection cannot go on.
    pub(super) fn and_close(self) -> Self {
        Self { header: Some((CONNECTION, "close".to_owned())), ..self }
    }

    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let document = Document {
            r#type: self.code.map_or_else(
                || "about:blank".to_owned(),
                |code| format!("urn:kontiki:{}", code.name()),
            ),
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
            code: self.code.map(ErrorCode::name),
        };
        let body = serde_json::to_vec(&document).expect("a struct of strings and numbers is JSON");
        let mut response = Response::new(Full::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            headers.insert(name, value);
        }
        response
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let Refusal { code, message } = refusal;
        Self { code: Some(code), ..Self::new(status_of(code), message) }
    }
}

/// The nearest HTTP status, for programs that look no further.
fn status_of(code: ErrorCode) -> StatusCode {
    use ErrorCode as E;
    match code {
        E::UnknownTopicOrPartition | E::UnknownTopicId | E::BrokerIdNotRegistered => {
            StatusCode::NOT_FOUND
        }
        E::TopicAlreadyExists | E::DuplicateBrokerRegistration | E::InvalidUpdateVersion => {
            StatusCode::CONFLICT
        }
        E::InvalidTopicException
        | E::InvalidPartitions
        | E::InvalidReplicationFactor
        | E::InvalidReplicaAssignment
        | E::InvalidConfig
        | E::InvalidRequest => StatusCode::BAD_REQUEST,
        E::PolicyViolation | E::TopicDeletionDisabled => StatusCode::FORBIDDEN,
        E::ThrottlingQuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        E::NotController | E::NetworkException | E::LeaderNotAvailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        E::RequestTimedOut => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
