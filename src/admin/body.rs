//! Request bodies: JSON, bounded in size, strict about what they hold.

use std::error::Error as StdError;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use serde::de::DeserializeOwned;

use super::problem::Problem;

/// Largest body that is read. A topic with 10,000 assigned partitions takes less than half of it.
pub(super) const BODY_SIZE_MAX: usize = 1 << 20;

/// Reads a JSON body. Unknown fields are an error: they are mostly misspelt ones.
pub(super) async fn read_json<T, B>(headers: &HeaderMap, body: B) -> Result<T, Problem>
where
    T: DeserializeOwned,
    B: Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.unwrap_or("").split(';').next().unwrap_or("").trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let detail = "the body must be JSON, sent with Content-Type: application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail).and_close());
    }
    let bytes = read(body).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::bad_request(format!("the body: {error}")))
}

/// Refuses anything but an empty body, or the empty object that some tools send instead.
pub(super) async fn read_nothing<B>(body: B) -> Result<(), Problem>
where
    B: Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let bytes = read(body).await?;
    match bytes.trim_ascii() {
        b"" | b"{}" => Ok(()),
        _ => Err(Problem::bad_request("this request takes no body")),
    }
}

async fn read<B>(body: B) -> Result<Bytes, Problem>
where
    B: Body,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    match Limited::new(body, BODY_SIZE_MAX).collect().await {
        Ok(collected) => {
            let mut data = collected.aggregate();
            Ok(data.copy_to_bytes(data.remaining()))
        }
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is over the limit of {BODY_SIZE_MAX} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).and_close())
        }
        Err(error) => {
            Err(Problem::bad_request(format!("the body could not be read: {error}")).and_close())
        }
    }
}
