//! Kafka's wire protocol, sans-io: frames in, messages out, and back.
//!
//! Read `api.rs` first: the table of what we serve. `messages/` holds a table per message; `message.rs` explains how
//! to read one. `reader.rs` and `writer.rs` are the cursors beneath.
//!
//! Invariant: a length is checked against the bytes that are left before anything is allocated for it; strings and
//! record sets are split off the frame, not copied; tags that we do not know are skipped.

mod api;
mod header;
mod message;
mod messages;
mod reader;
mod text;
mod wire;
mod writer;

#[cfg(test)]
mod golden_test;
#[cfg(test)]
mod sample;

pub(crate) use api::api_table;
pub use api::{Api, Request};
pub use header::{RequestHeader, decode_body, decode_response, encode_request, encode_response};
pub use messages::*;
pub use reader::{ELEMENTS_MAX, Error, Reader};
pub use text::Text;
pub use wire::{Nullable, Records, Wire};
pub use writer::{Encoded, Gap, Writer};
