//! What a client and a producer can be told.

use std::time::Duration;

use super::Error;
use crate::record;
use crate::types::HostPort;

/// Where the cluster is and how long to try.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Any of these leads to all brokers.
    pub bootstrap: Vec<HostPort>,
    /// How long a call is tried again before it fails.
    pub deadline: Duration,
}

impl ClientConfig {
    /// `addresses` are `HOST:PORT`, or several of them with commas between.
    pub fn new<A: AsRef<str>>(addresses: &[A]) -> Result<Self, Error> {
        let bootstrap = addresses
            .iter()
            .flat_map(|list| list.as_ref().split(','))
            .map(str::trim)
            .filter(|address| !address.is_empty())
            .map(str::parse)
            .collect::<Result<Vec<HostPort>, _>>()?;
        if bootstrap.is_empty() {
            return Err(Error::NoAddress);
        }
        Ok(Self { bootstrap, deadline: Duration::from_secs(30) })
    }
}

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// When the leader has it in its hands. Never sent again: may be lost.
    None,
    /// When the leader has appended it.
    Leader,
    /// When every replica in sync has it.
    All,
}

impl Acks {
    pub(super) fn number(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Leader => 1,
            Self::All => -1,
        }
    }
}

/// How a [`super::Producer`] batches and retries.
#[derive(Debug, Clone, Copy)]
pub struct ProducerConfig {
    pub acks: Acks,
    /// A batch is sent when it holds this many bytes.
    pub batch_bytes: usize,
    /// ... or when its first record has waited this long.
    pub linger: Duration,
    pub compression: record::Compression,
    /// Batches under way per partition, 1 to 5. Order holds with any number; brokers remember five for duplicates.
    pub in_flight_max: usize,
    /// Records wait in [`super::Producer::send`] when this many bytes are not yet acknowledged.
    pub buffer_bytes: usize,
    /// A record fails when it was not acknowledged within this.
    pub delivery_timeout: Duration,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            acks: Acks::All,
            batch_bytes: 256 << 10,
            linger: Duration::from_millis(2),
            compression: record::Compression::None,
            in_flight_max: 5,
            buffer_bytes: 32 << 20,
            delivery_timeout: Duration::from_secs(60),
        }
    }
}

/// How a [`super::Consumer`] fetches.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerConfig {
    /// How long a broker holds a fetch that finds nothing.
    pub wait: Duration,
    /// Most bytes of one fetch, and of one partition in it. A larger batch comes alone.
    pub bytes_max: u32,
    pub partition_bytes_max: u32,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self { wait: Duration::from_millis(500), bytes_max: 16 << 20, partition_bytes_max: 2 << 20 }
    }
}
