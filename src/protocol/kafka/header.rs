//! Headers of requests and responses, and whole frames without their length.

use bytes::BytesMut;

use super::api::{Api, Request};
use super::reader::{Error, Reader};
use super::text::Text;
use super::wire::Wire;
use super::writer::{Encoded, Writer};

/// What every request begins with.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestHeader {
    pub api_key: i16,
    pub api_version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Text>,
}

impl RequestHeader {
    /// Reads the header and leaves the reader at the body, in the version of the request.
    ///
    /// The client id has a classic length in every version. Of an API or a version that is not served, the header is
    /// read as a classic one, which has the same first four fields.
    pub fn read(reader: &mut Reader) -> Result<Self, Error> {
        let api_key = i16::read(reader)?;
        let api_version = i16::read(reader)?;
        let correlation_id = i32::read(reader)?;
        let client_id = match reader.classic_string_length()? {
            Some(length) => Some(reader.text(length)?),
            None => None,
        };
        if let Some(api) = Api::from_key(api_key)
            && api.advertised().contains(&api_version)
        {
            reader.set_version(api_version, api.is_flexible(api_version));
            if reader.flexible {
                reader.skip_tagged_fields()?;
            }
        }
        Ok(Self { api_key, api_version, correlation_id, client_id })
    }

    fn write(&self, writer: &mut Writer) {
        self.api_key.write(writer);
        self.api_version.write(writer);
        self.correlation_id.write(writer);
        writer.classic_text(self.client_id.as_deref());
        if writer.flexible {
            writer.varint(0);
        }
    }
}

/// Reads a body that takes the rest of its frame.
pub fn decode_body<T: Wire>(mut reader: Reader) -> Result<T, Error> {
    let body = T::read(&mut reader)?;
    reader.finish()?;
    Ok(body)
}

/// A response frame, without its length.
pub fn encode_response<Q: Request>(
    version: i16,
    correlation_id: i32,
    response: &Q::Response,
) -> Result<Encoded, Error> {
    let mut writer = Writer::new(version, Q::API.is_flexible(version));
    correlation_id.write(&mut writer);
    if Q::API.has_flexible_response_header(version) {
        writer.varint(0);
    }
    response.write(&mut writer);
    writer.finish()
}

/// Reads what [`encode_response`] wrote.
pub fn decode_response<Q: Request>(
    version: i16,
    frame: BytesMut,
) -> Result<(i32, Q::Response), Error> {
    let mut reader = Reader::new(frame);
    reader.set_version(version, Q::API.is_flexible(version));
    let correlation_id = i32::read(&mut reader)?;
    if Q::API.has_flexible_response_header(version) {
        reader.skip_tagged_fields()?;
    }
    Ok((correlation_id, decode_body(reader)?))
}

/// A request frame, without its length.
pub fn encode_request<Q: Request>(
    version: i16,
    correlation_id: i32,
    client_id: Option<Text>,
    request: &Q,
) -> Result<Encoded, Error> {
    let mut writer = Writer::new(version, Q::API.is_flexible(version));
    let header =
        RequestHeader { api_key: Q::API.key(), api_version: version, correlation_id, client_id };
    header.write(&mut writer);
    request.write(&mut writer);
    writer.finish()
}
