//! What storage is told at start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use crate::metadata::config::Durability;

/// Called once per directory that goes offline, on that directory's flusher thread.
pub type OnOffline = Arc<dyn Fn(&Path, &Error) + Send + Sync>;

pub struct StorageConfig {
    /// New partitions go to the directory with the fewest.
    pub dirs: Vec<PathBuf>,
    /// Of topics that do not say themselves.
    pub durability: Durability,
    /// Threads that recover partitions at start.
    pub recovery_threads: usize,
    pub on_offline: OnOffline,
}
