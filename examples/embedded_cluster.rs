//! Three nodes in one process: for tests of programs that use Kontiki. One of them crashes; nothing is lost.
//!
//! ```sh
//! cargo run --example embedded_cluster
//! ```

use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

use kontiki::client::{Client, ConsumerConfig, NewTopic, OffsetQuery, Producer, Record, StartAt};
use kontiki::client::{Delivered, ProducerConfig};
use kontiki::config::Config;
use kontiki::node::Node;

const RECORDS: i64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let data = tempfile::tempdir()?;
    let mut nodes = start_nodes(data.path())?;
    let addresses: Vec<String> =
        nodes.iter().map(|node| node.endpoints().client.to_string()).collect();
    println!("clients connect to {}", addresses.join(","));

    let runtime = tokio::runtime::Runtime::new()?;
    let client = runtime.block_on(Client::connect(&addresses))?;
    let leader = runtime.block_on(async {
        client.admin().create_topic(NewTopic::new("orders")).await?;
        let producer = client.producer(ProducerConfig::default());
        let last = write(&producer, 0).await?;
        println!("acknowledged up to offset {}", last.offset);
        let topic = client.topic("orders").await?;
        Ok::<_, kontiki::client::Error>(topic.partitions[0].leader)
    })?;

    // A node that is dropped is gone as after a crash. `shut_down` would be the polite way.
    println!("node {leader}, the leader, crashes");
    let index = usize::try_from(leader.0 - 1)?;
    drop(nodes.remove(index));

    runtime.block_on(async {
        let producer = client.producer(ProducerConfig::default());
        let last = write(&producer, RECORDS).await?;
        println!("acknowledged up to offset {} by the others", last.offset);

        let end = client.offsets("orders", OffsetQuery::Latest).await?[&0].offset;
        let mut consumer = client.consumer(ConsumerConfig::default());
        consumer.assign("orders", 0, StartAt::Earliest).await?;
        let mut read = 0;
        while read < end {
            for record in consumer.next().await?.records {
                assert_eq!(record.value.as_deref(), Some(read.to_string().as_bytes()));
                read += 1;
            }
        }
        println!("read all {read} records back, in order");
        Ok::<_, kontiki::client::Error>(())
    })?;
    nodes.into_iter().for_each(Node::shut_down);
    Ok(())
}

/// Writes as many records again, numbered from `first`.
async fn write(producer: &Producer, first: i64) -> Result<Delivered, kontiki::client::Error> {
    let mut deliveries = Vec::new();
    for number in first..first + RECORDS {
        deliveries.push(producer.send(Record::to("orders").value(number.to_string())).await?);
    }
    let mut last = None;
    for delivery in deliveries {
        last = Some(delivery.await?);
    }
    Ok(last.expect("there were some"))
}

/// A node starts up to where it needs the others, so they start beside each other.
fn start_nodes(data: &Path) -> Result<Vec<Node>, Box<dyn Error>> {
    let peers = free_ports()?;
    let voters: Vec<String> =
        (1..).zip(&peers).map(|(id, port)| format!("{id}@127.0.0.1:{port}")).collect();
    let mut starting = Vec::new();
    for (id, port) in (1..).zip(&peers) {
        let settings = [
            ("node.id", format!("{id}")),
            ("controller.quorum.voters", voters.join(",")),
            ("data.dir", data.join(format!("node-{id}")).display().to_string()),
            ("peer.listener", format!("127.0.0.1:{port}")),
            ("listeners", "127.0.0.1:0".to_owned()),
            ("admin.listener", "127.0.0.1:0".to_owned()),
        ];
        let settings = settings.map(|(key, value)| (key.to_owned(), value));
        let config = Config::load(None, &settings)?;
        starting.push(thread::spawn(move || Node::start(config)));
    }
    let mut nodes = Vec::new();
    for starting in starting {
        nodes.push(starting.join().expect("starting does not panic")?);
    }
    for node in &nodes {
        node.wait_until_ready(Duration::from_secs(30))?;
    }
    Ok(nodes)
}

/// Ports that nobody listened on a moment ago. Voters must know each other's before any is started.
fn free_ports() -> std::io::Result<Vec<u16>> {
    let listeners: std::io::Result<Vec<_>> =
        (0..3).map(|_| std::net::TcpListener::bind("127.0.0.1:0")).collect();
    listeners?.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
