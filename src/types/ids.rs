//! Identities. None of them is ever reused (design D4).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// The number by which users and Kafka clients know a broker. Chosen by the operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub i32);

impl NodeId {
    /// "No broker": how a leaderless partition names its leader.
    pub const NONE: Self = Self(-1);

    /// `None` for [`NodeId::NONE`].
    pub fn known(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number by which the quorum knows a *disk*: derived from its directory id, so a wiped disk is a new Raft node.
pub type RaftNodeId = u64;

/// A producer id, from blocks that the metadata log hands out.
pub type ProducerId = i64;

/// 128 bits, shown as Kafka shows them: 22 characters of URL-safe base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Kafka's "no id".
    pub const ZERO: Self = Self([0; 16]);

    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not 22 characters of URL-safe base64.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a 22-character base64 id")]
pub struct InvalidUuid(String);

impl FromStr for Uuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidUuid(text.to_owned()))?;
        Ok(Self(bytes.try_into().map_err(|_| InvalidUuid(text.to_owned()))?))
    }
}

/// Names a cluster for ever; minted when it forms.
pub type ClusterId = Uuid;
/// Names one formatting of one data directory.
pub type DirectoryId = Uuid;
/// Names one creation of a topic.
pub type TopicId = Uuid;
/// Names one start of one process.
pub type IncarnationId = Uuid;

impl Uuid {
    /// The Raft node id of the disk with this directory id (design D4). Never 0.
    pub fn raft_node_id(&self) -> RaftNodeId {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
    }
}

/// A partition by the identity of its topic: what replication speaks of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicIdPartition {
    pub topic_id: TopicId,
    pub partition: i32,
}

impl fmt::Debug for TopicIdPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic_id, self.partition)
    }
}

/// A partition by the name of its topic: what users speak of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicPartition {
    pub topic: Arc<str>,
    pub partition: i32,
}

impl TopicPartition {
    /// The reverse of `Display`, which is how partition directories are named.
    pub fn parse(text: &str) -> Option<Self> {
        let (topic, number) = text.rsplit_once('-')?;
        let partition: i32 = number.parse().ok().filter(|partition| *partition >= 0)?;
        (!topic.is_empty() && partition.to_string() == number)
            .then(|| Self { topic: topic.into(), partition })
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
