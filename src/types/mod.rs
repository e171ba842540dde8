//! Ids, epochs, offsets and time: the words of every other module.
//!
//! Invariant: nothing here does I/O, except `time`, which is the only place that reads a clock, and `random`, the only
//! place that asks the operating system for entropy.

mod epoch;
mod ids;
mod nearest;
pub mod random;
mod resource;
pub mod time;

pub use epoch::{BrokerEpoch, LeaderEpoch, PartitionEpoch};
pub use ids::{
    ClusterId, DirectoryId, IncarnationId, NodeId, ProducerId, RaftNodeId, TopicId,
    TopicIdPartition, TopicPartition, Uuid,
};
pub use nearest::nearest;
pub use resource::{ConfigResource, Endpoints, HostPort, InvalidHostPort};

/// A position in a partition log. End offsets are exclusive, `last_*` offsets inclusive.
pub type Offset = i64;

/// Milliseconds since the Unix epoch, as Kafka stores them.
pub type TimestampMs = i64;

/// Index of an entry in the metadata log.
pub type MetadataIndex = u64;
