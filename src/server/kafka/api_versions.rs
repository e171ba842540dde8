//! ApiVersions: what the table of served APIs says.

use super::dispatch::{Call, Reply};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{Api, ApiVersionRange, ApiVersionsRequest, ApiVersionsResponse};

pub(super) async fn handle(_: Call, _: ApiVersionsRequest) -> Reply<ApiVersionsResponse> {
    let api_keys = Api::ALL.iter().copied().map(range).collect();
    ApiVersionsResponse { api_keys, ..Default::default() }.into()
}

/// The answer to a version that is not served: which ones are.
pub(super) fn unsupported_version() -> ApiVersionsResponse {
    ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: vec![range(Api::ApiVersions)],
        ..Default::default()
    }
}

fn range(api: Api) -> ApiVersionRange {
    let (min_version, max_version) = api.advertised().into_inner();
    ApiVersionRange { api_key: api.key(), min_version, max_version }
}
