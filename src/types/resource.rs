//! Addresses, and the things that configs belong to.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::NodeId;

/// Where a node listens, as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoints {
    pub client: HostPort,
    pub peer: HostPort,
    pub admin: HostPort,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct HostPort {
    pub host: String,
    pub port: u16,
}

/// What a dynamic config belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ConfigResource {
    Topic(Arc<str>),
    Broker(NodeId),
    /// All brokers.
    Cluster,
}

impl fmt::Display for HostPort {
    /// IPv6 addresses in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A text that is not `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not HOST:PORT")]
pub struct InvalidHostPort(String);

impl FromStr for HostPort {
    type Err = InvalidHostPort;

    fn from_str(text: &str) -> Result<Self, InvalidHostPort> {
        let invalid = || InvalidHostPort(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(invalid());
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| invalid())? })
    }
}
