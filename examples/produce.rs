//! Writes records and waits for all acknowledgements.
//!
//! ```sh
//! kontiki dev &
//! cargo run --example produce
//! ```

use kontiki::client::{Client, Error, NewTopic, ProducerConfig, Record};
use kontiki::protocol::ErrorCode;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let bootstrap = std::env::var("KONTIKI_BOOTSTRAP").unwrap_or("127.0.0.1:9092".to_owned());
    let client = Client::connect(&[bootstrap]).await?;

    match client.admin().create_topic(NewTopic::new("orders").partitions(3)).await {
        Err(error) if error.code() != Some(ErrorCode::TopicAlreadyExists) => return Err(error),
        _ => {}
    }

    let producer = client.producer(ProducerConfig::default());
    let mut deliveries = Vec::new();
    for number in 0..10_000 {
        // Records with the same key go to the same partition, and stay in order there.
        let customer = format!("customer-{}", number % 100);
        let record = Record::to("orders")
            .key(customer)
            .value(format!("order {number}"))
            .header("source", "example");
        deliveries.push(producer.send(record).await?);
    }
    for delivery in deliveries {
        delivery.await?;
    }
    println!("10000 orders are on every replica in sync");
    Ok(())
}
