//! The log directories of a broker.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Error, PartitionLog, Result, StorageConfig};
use crate::metadata::config::TopicConfig;
use crate::types::{BrokerEpoch, TopicId, TopicPartition};

/// Called on the flusher thread after `durable_end_offset` moved. Must be quick and must not wait for the disk.
pub type OnDurable = Arc<dyn Fn(&PartitionLog) + Send + Sync>;

/// What was found at start. Logs whose topic the metadata does not know are given to [`LogDirs::set_aside`].
pub type RecoveredLogs = Vec<Arc<PartitionLog>>;

#[derive(Clone)]
pub struct LogDirs {}

impl LogDirs {
    /// Opens the directories, makes missing ones, and recovers every partition in them.
    pub fn open(_config: StorageConfig, _on_durable: OnDurable) -> Result<(Self, RecoveredLogs)> {
        todo!()
    }

    /// A new, empty log. Cheap: files are made at the first write.
    pub fn create(
        &self,
        _name: &TopicPartition,
        _topic_id: TopicId,
        _config: Arc<TopicConfig>,
    ) -> Result<Arc<PartitionLog>> {
        todo!()
    }

    /// Frees the name at once; the files go after `file.delete.delay.ms`.
    pub fn delete(&self, _log: &Arc<PartitionLog>) {
        todo!()
    }

    /// For recovered logs of topics that no longer exist: as `delete`, but named `-stray`.
    pub fn set_aside(&self, _log: &Arc<PartitionLog>) {
        todo!()
    }

    /// Flushes everything, writes the checkpoints and the clean-shutdown marks, stops the threads. Appends fail afterwards.
    pub fn shut_down(&self, _broker_epoch: BrokerEpoch) {
        todo!()
    }

    /// The epoch given to the last clean shutdown; NONE after an unclean one.
    pub fn previous_broker_epoch(&self) -> BrokerEpoch {
        todo!()
    }

    /// Directories that failed, and why.
    pub fn offline(&self) -> Vec<(PathBuf, Error)> {
        todo!()
    }
}
