//! Reading partition directories offline, ours and Kafka's: what the tools of the command line show and check.
//!
//! Everything here goes through the readers that storage itself uses, and opens files for reading only. A node may be
//! running on the directory; then the end of what is seen may be in the middle of a write.
//!
//! Invariant: nothing is written, locked, renamed or removed.

mod content;
mod files;
mod indexes;
mod stats;
mod verify;
mod walk;

pub use content::{Aborted, Content, IndexEntry, ProducerEntry, TimeIndexEntry, read};
pub use files::{FileKind, PartitionFiles, is_partition};
pub use stats::{SegmentStats, Stats, Tally, stats};
pub use verify::{Fault, Finding, Verified, verify};
pub use walk::LogFile;
