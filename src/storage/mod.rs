//! Partition logs on disk, in Kafka's formats (kafka-protocol.md 4; replication.md 3).
//!
//! `LogDirs` owns the directories: recovery at start, one flusher and one housekeeper thread per directory, checkpoints,
//! the clean-shutdown mark. `PartitionLog` is one replica: append, read, truncate.
//!
//! Invariant: a record below `end_offset` is in the file, never in a buffer of ours. A failed write or sync is never
//! retried: its directory goes offline and every later call that needs the disk fails. An idle partition has no
//! thread, no timer and no open file, and no file at all until its first record.

mod agenda;
mod checkpoint;
mod compaction;
mod config;
mod describe;
mod dirs;
mod epochs;
mod error;
mod flusher;
mod fs;
mod housekeeper;
mod index;
pub mod inspect;
mod log;
mod log_dir;
mod placement;
mod producers;
mod progress;
mod recovery_progress;
pub mod repair;
mod room;
mod scan;
mod segment;
mod slice;
mod start;

#[cfg(test)]
#[cfg(feature = "long-tests")]
mod crash_test;
#[cfg(test)]
mod flush_test;
#[cfg(test)]
mod fuzz_test;
#[cfg(test)]
mod inspect_test;
#[cfg(test)]
mod model_test;
#[cfg(test)]
mod recovery_test;
#[cfg(test)]
mod retention_test;
#[cfg(test)]
mod roll_test;
#[cfg(test)]
mod segments_test;
#[cfg(test)]
#[cfg(feature = "long-tests")]
mod start_time_test;
#[cfg(test)]
mod test_support;

pub use compaction::{CompactionConfig, CompactionFigures};
pub use config::{OnTrouble, StorageConfig};
pub use describe::{DescribedDir, DescribedLog};
pub use dirs::{LogDirs, OnDurable, RecoveredLogs};
pub use error::{AppendError, Error, ReadError};
pub use log::{Appended, PartitionLog, TimestampedOffset, ValidBatch};
pub use log_dir::{Damages, OfflineLog};
pub use recovery_progress::RecoveryProgress;
pub use room::Space;
pub use slice::Slice;

pub type Result<T, E = Error> = std::result::Result<T, E>;
