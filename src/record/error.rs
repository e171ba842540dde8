//! Why a batch is refused.

use crate::protocol::ErrorCode;

/// One bad thing about a batch. The text goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("corrupt batch: {0}")]
    Corrupt(&'static str),
    #[error("checksum mismatch: {stored:08x} stored, {computed:08x} computed")]
    Checksum { stored: u32, computed: u32 },
    #[error("record format {0} is not served, only 2")]
    Magic(i8),
    #[error("{size} bytes are over max.message.bytes={limit}")]
    TooLarge { size: u64, limit: u64 },
    #[error("invalid batch: {0}")]
    Invalid(&'static str),
    /// A single record is at fault.
    #[error("record {index}: {reason}")]
    InvalidRecord { index: i32, reason: &'static str },
    #[error("timestamp {timestamp_ms} is outside of {min}..={max}")]
    Timestamp { timestamp_ms: i64, min: i64, max: i64 },
    #[error("clients may not set the timestamp type LogAppendTime")]
    TimestampType,
    #[error("unknown compression codec {0}")]
    Codec(u8),
    #[error("decompresses to more than {limit} bytes")]
    Bomb { limit: usize },
    #[error("transactions are not served yet")]
    Transactional,
}

impl Refusal {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Corrupt(_) | Self::Checksum { .. } => ErrorCode::CorruptMessage,

            Self::TooLarge { .. } | Self::Bomb { .. } => ErrorCode::MessageTooLarge,
            Self::Magic(_) | Self::Invalid(_) | Self::InvalidRecord { .. } => {
                ErrorCode::InvalidRecord
            }
            Self::Timestamp { .. } | Self::TimestampType => ErrorCode::InvalidTimestamp,
            Self::Codec(_) => ErrorCode::UnsupportedCompressionType,
            Self::Transactional => ErrorCode::InvalidTxnState,
        }
    }
}
