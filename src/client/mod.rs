//! The async Rust client, over the native protocol on the clients port.
//!
//! [`Client`] finds the cluster through any of its bootstrap addresses and keeps one connection per broker, with many
//! calls in flight. [`Producer`] batches, retries and never duplicates or reorders; [`Consumer`] reads partitions from
//! their leaders; [`Admin`] manages topics and tells how the cluster is. The CLI, the examples and the tests use it.
//!
//! Invariant: a write whose reply did not arrive is sent again only under the same producer id and sequence, so that
//! the broker can tell that it has it.
//!
//! ```no_run
//! use kontiki::client::{Client, ConsumerConfig, NewTopic, ProducerConfig, Record, StartAt};
//!
//! # async fn example() -> Result<(), kontiki::client::Error> {
//! let client = Client::connect(&["127.0.0.1:9092"]).await?;
//! client.admin().create_topic(NewTopic::new("greetings")).await?;
//!
//! let producer = client.producer(ProducerConfig::default());
//! let delivery = producer.send(Record::to("greetings").key("en").value("hello")).await?;
//! println!("at offset {}", delivery.await?.offset);
//!
//! let mut consumer = client.consumer(ConsumerConfig::default());
//! consumer.assign_topic("greetings", StartAt::Earliest).await?;
//! let chunk = consumer.next().await?;
//! println!("{} records", chunk.records.len());
//! # Ok(())
//! # }
//! ```

mod admin;
mod config;
mod consumer;
mod error;
mod metadata;
mod offsets;
mod partitioner;
mod producer;
mod retry;
#[cfg(test)]
mod scripted_test;
mod tools;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use admin::{Admin, NewTopic};
pub use config::{Acks, ClientConfig, ConsumerConfig, ProducerConfig};
pub use consumer::{ConsumedRecord, Consumer, FetchedChunk, StartAt};
pub use error::Error;
pub use metadata::ClusterView;
pub use producer::{Delivered, Delivery, Producer, Record};

pub use crate::protocol::native::{OffsetQuery, ReadReplicaRequest, ReplicaRange};
pub use crate::record::Compression;

use self::metadata::Cluster;
use crate::protocol::native::{ListedOffset, TopicView};

/// A connection to a cluster. Cheap to clone; everything that it makes shares its connections and what it knows.
#[derive(Debug, Clone)]
pub struct Client {
    cluster: Arc<Cluster>,
}

impl Client {
    /// Finds the cluster through any of these `HOST:PORT` addresses.
    pub async fn connect<A: AsRef<str>>(addresses: &[A]) -> Result<Self, Error> {
        Self::connect_with(ClientConfig::new(addresses)?).await
    }

    /// As [`Client::connect`]. Fails at once when nobody listens at any address.
    pub async fn connect_with(config: ClientConfig) -> Result<Self, Error> {
        let cluster = Arc::new(Cluster::new(config.bootstrap, config.deadline));
        cluster.refresh(&cluster.view()).await?;
        Ok(Self { cluster })
    }

    /// A new producer with its own batches and producer id.
    pub fn producer(&self, config: ProducerConfig) -> Producer {
        Producer::new(self.cluster.clone(), config)
    }

    /// A new consumer, without partitions.
    pub fn consumer(&self, config: ConsumerConfig) -> Consumer {
        Consumer::new(self.cluster.clone(), config)
    }

    pub fn admin(&self) -> Admin {
        Admin::new(self.cluster.clone())
    }

    /// A topic as the client last heard of it. [`Admin::describe_topic`] asks anew.
    pub async fn topic(&self, name: &str) -> Result<Arc<TopicView>, Error> {
        self.cluster.topic(name).await
    }

    /// Asks the leader of each partition of a topic for an offset.
    pub async fn offsets(
        &self,
        topic: &str,
        query: OffsetQuery,
    ) -> Result<BTreeMap<i32, ListedOffset>, Error> {
        let view = self.cluster.topic(topic).await?;
        let partitions: Vec<i32> = view.partitions.iter().map(|p| p.partition).collect();
        self.cluster.list_offsets(topic, &partitions, query).await
    }
}
