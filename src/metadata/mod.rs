//! Cluster metadata: the records of its log, the immutable image they make, and config definitions.
//!
//! `MetadataImage::replay` is the only thing that mutates metadata. Images are cheap to clone (persistent maps), are
//! shared by `Arc` and never locked. A snapshot is an image; what changed between two images is a `MetadataDelta`,
//! however many batches lie between them.
//!
//! Invariant: no tokio, no clock, no randomness, no `HashMap` iteration, no I/O.

pub mod config;
mod delta;
mod explain;
mod image;
mod record;
mod replay;
mod snapshot;
#[cfg(test)]
pub(crate) mod test_support;
mod well_formed;

pub use config::{Durability, TimestampType, TopicConfig};
pub use delta::{BrokerDelta, MetadataDelta, PartitionDelta};
pub use explain::{Explanation, PartitionState, ReplicaVerdict};
pub use image::{BrokerImage, MetadataImage, TopicImage};
pub use record::*;
pub use replay::{ReplayError, Replayed};
