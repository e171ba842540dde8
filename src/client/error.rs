//! What a client call can end with.

use std::time::Duration;

use crate::controller::Refusal;
use crate::protocol::ErrorCode;
use crate::protocol::native::PartitionError;
use crate::types::{HostPort, InvalidHostPort};
use crate::{codec, net, record};

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    InvalidAddress(#[from] InvalidHostPort),
    #[error("no bootstrap address")]
    NoAddress,
    /// No node could be asked.
    #[error("cannot reach the cluster at {}: {cause}", list(tried))]
    Unreachable { tried: Vec<HostPort>, cause: String },
    #[error("topic {name:?} does not exist{}", did_you_mean(nearest.as_ref()))]
    UnknownTopic { name: String, nearest: Option<String> },
    #[error("topic {topic:?} has no partition {partition}: it has {count}, numbered from 0")]
    UnknownPartition { topic: String, partition: i32, count: usize },
    /// The cluster said no; asking again would not help.
    #[error("{} ({})", .0.message, .0.code.name())]
    Refused(#[from] Refusal),
    /// It was tried again and again. Whether a write was applied is unknown.
    #[error("{what} did not succeed within {within:?}; the last attempt: {cause}")]
    Deadline { what: &'static str, within: Duration, cause: String },
    #[error("a record of {size} bytes is over the limit of {limit} (batch_bytes)")]
    RecordTooLarge { size: usize, limit: usize },
    /// An answer that makes no sense.
    #[error("unexpected answer: {0}")]
    Protocol(String),
    /// The producer or consumer was closed.
    #[error("closed")]
    Closed,
}

impl Error {
    /// Kafka's code, where the cluster gave one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::UnknownTopic { .. } | Self::UnknownPartition { .. } => {
                Some(ErrorCode::UnknownTopicOrPartition)
            }
            _ => None,
        }
    }

    /// Nobody answered, rather than somebody saying no.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Deadline { .. })
    }
}

impl From<PartitionError> for Error {
    fn from(error: PartitionError) -> Self {
        Self::Refused(Refusal { code: error.code, message: error.message })
    }
}

impl From<codec::Error> for Error {
    fn from(error: codec::Error) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl From<record::Refusal> for Error {
    fn from(error: record::Refusal) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// One sentence about a failed call, for [`Error::Unreachable`] and [`Error::Deadline`].
pub(super) fn cause(error: &net::Error) -> String {
    match error {
        // The address is said by whoever shows this.
        net::Error::Connect { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

fn list(addresses: &[HostPort]) -> String {
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

fn did_you_mean(nearest: Option<&String>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}
