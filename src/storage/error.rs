//! Why storage refuses or fails, and the Kafka code of each answer.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::protocol::ErrorCode;
use crate::record;
use crate::types::Offset;

/// A failure of the disk or of what lies on it. Cheap to clone: every caller of an offline directory gets the first one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: Arc<io::Error> },
    /// A write or a sync failed earlier; nothing in this directory is written again until a restart.
    #[error("log directory {dir} is offline: {reason}")]
    Offline { dir: PathBuf, reason: String },
    #[error("{path}: {reason}")]
    Malformed { path: PathBuf, reason: String },
    /// Records that were synced are not what was written; see `log::damage`.
    #[error("{path} is damaged: {reason}")]
    Damaged { path: PathBuf, reason: String },
    #[error("log directory {dir} is in use by another process")]
    Locked { dir: PathBuf },
}

impl Error {
    /// For `map_err`: says what was tried on which file.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    /// Too many open files.
    pub(super) fn is_resource_limit(&self) -> bool {
        const CODES: [Option<i32>; 2] = [
            Some(rustix::io::Errno::MFILE.raw_os_error()),
            Some(rustix::io::Errno::NFILE.raw_os_error()),
        ];
        matches!(self, Self::Io { source, .. } if CODES.contains(&source.raw_os_error()))
    }

    /// There was no room for it. A sync that says so has failed like any other: what was written may be lost.
    pub fn is_full(&self) -> bool {
        const CODES: [Option<i32>; 2] = [
            Some(rustix::io::Errno::NOSPC.raw_os_error()),
            Some(rustix::io::Errno::DQUOT.raw_os_error()),
        ];
        matches!(self, Self::Io { action, source, .. }
            if !action.starts_with("sync") && CODES.contains(&source.raw_os_error()))
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }

    pub(super) fn malformed(path: &Path, reason: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_path_buf(), reason: reason.into() }
    }
}

/// Why a batch was not appended. Nothing of it is in the log.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AppendError {
    #[error(transparent)]
    Refused(#[from] record::Refusal),
    #[error("{size} bytes are more than segment.bytes allows ({limit})")]
    LargerThanSegment { size: u64, limit: u64 },
    #[error("producer {producer_id}: epoch {found} is older than {current}")]
    InvalidProducerEpoch { producer_id: i64, found: i16, current: i16 },
    #[error("producer {producer_id}: sequence {found}, expected {expected}")]
    OutOfOrderSequence { producer_id: i64, found: i32, expected: i32 },
    /// A follower was given batches that do not continue its log.
    #[error("batch at offset {found}, expected {expected}")]
    NotNext { expected: Offset, found: Offset },
    /// Somebody else wrote, or it is another log.
    #[error("the log ends at {end}, not at {expected}")]
    OtherEnd { end: Offset, expected: Offset },
    #[error("log directory {dir} has {free} bytes free, and log.dirs.min.free is {floor}")]
    NoRoom { dir: PathBuf, free: u64, floor: u64 },
    #[error("the log is closed")]
    Closed,
    #[error(transparent)]
    Storage(#[from] Error),
}

impl AppendError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::LargerThanSegment { .. } => ErrorCode::RecordListTooLarge,
            Self::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            Self::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
            Self::NotNext { .. } => ErrorCode::CorruptMessage,
            Self::OtherEnd { .. } => ErrorCode::InvalidRequest,
            Self::Closed => ErrorCode::NotLeaderOrFollower,
            Self::NoRoom { .. } | Self::Storage(_) => ErrorCode::KafkaStorageError,
        }
    }
}

/// Why nothing could be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    #[error("offset {requested} is outside of {start}..={end}")]
    OutOfRange { requested: Offset, start: Offset, end: Offset },
    #[error("the log is closed")]
    Closed,
    /// What lies on the disk is not what was written there.
    #[error(transparent)]
    Corrupt(#[from] record::Refusal),
    #[error(transparent)]
    Storage(#[from] Error),
}

impl ReadError {
    /// For where nothing but storage can have failed.
    pub(super) fn into_storage(self) -> Error {
        match self {
            Self::Storage(error) => error,
            other => Error::malformed("a segment".as_ref(), other.to_string()),
        }
    }

    /// The bytes are not what was written, or the disk cannot give them.
    pub(super) fn is_damage(&self) -> bool {
        const EIO: Option<i32> = Some(rustix::io::Errno::IO.raw_os_error());
        match self {
            Self::Corrupt(_) => true,
            Self::Storage(Error::Io { source, .. }) => {
                source.raw_os_error() == EIO || source.kind() == io::ErrorKind::UnexpectedEof
            }
            _ => false,
        }
    }

    pub fn code(&self) -> ErrorCode {
        match self {
            Self::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            Self::Closed => ErrorCode::NotLeaderOrFollower,
            Self::Corrupt(_) => ErrorCode::CorruptMessage,
            Self::Storage(_) => ErrorCode::KafkaStorageError,
        }
    }
}
