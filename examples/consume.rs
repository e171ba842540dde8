//! Reads what `produce` wrote, and whatever else comes, for ever.
//!
//! ```sh
//! cargo run --example consume
//! ```

use kontiki::client::{Client, ConsumerConfig, Error, StartAt};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let bootstrap = std::env::var("KONTIKI_BOOTSTRAP").unwrap_or("127.0.0.1:9092".to_owned());
    let client = Client::connect(&[bootstrap]).await?;

    let mut consumer = client.consumer(ConsumerConfig::default());
    let starts = consumer.assign_topic("orders", StartAt::Earliest).await?;
    println!("reading {} partitions", starts.len());
    loop {
        // Records of one partition come in order.
        let chunk = consumer.next().await?;
        for record in &chunk.records {
            let text = |bytes: &Option<bytes::Bytes>| {
                bytes.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
            };
            let (key, value) = (text(&record.key), text(&record.value));
            println!("{}@{} {key}: {value}", chunk.partition, record.offset);
        }
    }
}
