//! Record batches v2, Kafka's unit of everything: how to look at one, check one, make one (kafka-protocol.md 3).
//!
//! Batches travel as bytes from socket to file. This module reads fields at fixed offsets, patches the two that a
//! broker owns, and opens the body only for those who ask. Bytes are not trusted: every length is checked, and
//! decompression has a bound.
//!
//! Invariant: no I/O, no clock, and nothing here panics on foreign bytes.

mod batch;
mod builder;
mod compression;
mod decode;
mod encode;
mod error;
mod records;
mod rewrite;
mod selection;
mod validate;
mod varint;

pub use batch::{Batch, BatchHeader, HEADER_SIZE, LENGTH_OVERHEAD, assign_offset, batches};
pub use builder::BatchBuilder;
pub use compression::Compression;
pub use error::{RecordError, Refusal};
pub use records::{Record, Records, records, visit_timestamps};
pub use selection::{KeyedRecord, Selection, select, without_records};
pub use validate::{ProduceRules, Validated, validate};

#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
pub(crate) mod testing;

/// No batch is decompressed to more than this on a broker.
pub const DECOMPRESSED_SIZE_MAX: usize = 128 << 20;
