//! Why a batch is refused.

use crate::protocol::ErrorCode;

/// One bad thing about a batch. The text goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("corrupt batch: {0}")]
    Corrupt(&'static str),
    #[error("the batch is cut short")]
    CutShort,
    #[error("checksum mismatch: {stored:08x} stored, {computed:08x} computed")]
    Checksum { stored: u32, computed: u32 },
    #[error("record format {0} is not served, only 2")]
    Magic(i8),
    #[error("{size} bytes are over max.message.bytes={limit}")]
    TooLarge { size: u64, limit: u64 },
    #[error("invalid batch: {0}")]
    Invalid(&'static str),
    /// Single records are at fault; never empty.
    #[error("{}", first_of(.0))]
    Records(Vec<RecordError>),
    /// The same, and one of them for its timestamp at least.
    #[error("{}", first_of(.0))]
    Timestamps(Vec<RecordError>),
    #[error("clients may not set the timestamp type LogAppendTime")]
    TimestampType,
    #[error("unknown compression codec {0}")]
    Codec(u8),
    #[error("decompresses to more than {limit} bytes")]
    Bomb { limit: usize },
    #[error("transactions are not served yet")]
    Transactional,
}

/// What is wrong with one record of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordError {
    pub index: i32,
    pub reason: String,
}

fn first_of(errors: &[RecordError]) -> String {
    let first = errors
        .first()
        .map_or_else(String::new, |first| format!("record {}: {}", first.index, first.reason));
    match errors.len() {
        0 | 1 => first,
        count => format!("{first} ({count} records are refused)"),
    }
}

impl Refusal {
    /// The records at fault.
    pub fn into_record_errors(self) -> Vec<RecordError> {
        match self {
            Self::Records(errors) | Self::Timestamps(errors) => errors,
            _ => Vec::new(),
        }
    }

    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Corrupt(_) | Self::Checksum { .. } => ErrorCode::CorruptMessage,
            Self::Magic(magic) if !matches!(magic, 0..=2) => ErrorCode::CorruptMessage,
            Self::TooLarge { .. } | Self::Bomb { .. } => ErrorCode::MessageTooLarge,
            Self::CutShort | Self::Magic(_) | Self::Invalid(_) | Self::Records(_) => {
                ErrorCode::InvalidRecord
            }
            Self::Timestamps(_) | Self::TimestampType => ErrorCode::InvalidTimestamp,
            Self::Codec(_) => ErrorCode::UnsupportedCompressionType,
            Self::Transactional => ErrorCode::InvalidTxnState,
        }
    }
}
