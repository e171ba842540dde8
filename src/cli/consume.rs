//! `kontiki consume`: records become lines, byte for byte.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use serde_json::{Map, Value, json};

use super::connect::Connect;
use super::error::Failure;
use super::moment::From;
use super::output::Output;
use crate::client::{ConsumedRecord, Consumer, ConsumerConfig, FetchedChunk, OffsetQuery};
use crate::types::Offset;

/// Read records: values as lines, or everything as JSON
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kontiki consume greetings --until-end\n  kontiki consume orders --from 10m --key-separator ' '\n  kontiki consume orders --from latest --count 1 --output json"
)]
pub(super) struct ConsumeArgs {
    #[command(flatten)]
    connect: Connect,
    topic: String,
    /// Read this partition only; may be repeated [default: all]
    #[arg(long = "partition", short, value_name = "PARTITION")]
    partitions: Vec<i32>,
    /// earliest, latest, an offset, a time (2026-03-14T15:09:26Z, @MILLISECONDS) or an age (10m)
    #[arg(long, short, value_name = "WHERE", default_value = "earliest")]
    from: From,
    /// Stop after this many records
    #[arg(long, short, value_name = "COUNT")]
    count: Option<u64>,
    /// Stop at what is the end now
    #[arg(long)]
    until_end: bool,
    /// Print keys too, with this between key and value
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
}

pub(super) async fn run(args: ConsumeArgs) -> Result<(), Failure> {
    let client = args.connect.client().await?;
    let mut consumer = client.consumer(ConsumerConfig::default());
    let starts = assign(&mut consumer, &args).await?;
    let mut unread = BTreeMap::new();
    if args.until_end {
        let ends = client.offsets(&args.topic, OffsetQuery::Latest).await?;
        unread = starts
            .into_iter()
            .filter_map(|(partition, start)| {
                let end = ends.get(&partition)?.offset;
                (start < end).then_some((partition, end))
            })
            .collect();
    }
    let mut printer = Printer {
        out: BufWriter::with_capacity(1 << 18, io::stdout().lock()),
        output: args.connect.output,
        key_separator: args.key_separator,
        left: args.count.unwrap_or(u64::MAX),
    };
    while printer.left > 0 && !(args.until_end && unread.is_empty()) {
        let chunk = consumer.next().await?;
        let end = unread.get(&chunk.partition).copied();
        if args.until_end && end.is_none() {
            continue;
        }
        printer.print(&chunk, end.unwrap_or(Offset::MAX))?;
        if end.is_some_and(|end| chunk.next_offset >= end) {
            unread.remove(&chunk.partition);
        }
    }
    Ok(())
}

async fn assign(
    consumer: &mut Consumer,
    args: &ConsumeArgs,
) -> Result<BTreeMap<i32, Offset>, Failure> {
    let From(start) = args.from;
    if args.partitions.is_empty() {
        return Ok(consumer.assign_topic(&args.topic, start).await?);
    }
    let mut starts = BTreeMap::new();
    for partition in &args.partitions {
        starts.insert(*partition, consumer.assign(&args.topic, *partition, start).await?);
    }
    Ok(starts)
}

struct Printer<W: Write> {
    out: W,
    output: Output,
    key_separator: Option<String>,
    left: u64,
}

impl<W: Write> Printer<W> {
    /// Prints the records before `end`.
    fn print(&mut self, chunk: &FetchedChunk, end: Offset) -> io::Result<()> {
        for record in chunk.records.iter().filter(|record| record.offset < end) {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            match self.output {
                Output::Table => self.line(record)?,
                Output::Json => writeln!(self.out, "{}", to_json(chunk, record))?,
            }
        }
        self.out.flush()
    }

    fn line(&mut self, record: &ConsumedRecord) -> io::Result<()> {
        if let Some(separator) = &self.key_separator {
            self.out.write_all(record.key.as_deref().unwrap_or_default())?;
            self.out.write_all(separator.as_bytes())?;
        }
        self.out.write_all(record.value.as_deref().unwrap_or_default())?;
        self.out.write_all(b"\n")
    }
}

fn to_json(chunk: &FetchedChunk, record: &ConsumedRecord) -> Value {
    let mut json = Map::new();
    json.insert("topic".to_owned(), json!(chunk.topic));
    json.insert("partition".to_owned(), json!(chunk.partition));
    json.insert("offset".to_owned(), json!(record.offset));
    json.insert("timestamp_ms".to_owned(), json!(record.timestamp_ms));
    insert_bytes(&mut json, "key", record.key.as_ref());
    insert_bytes(&mut json, "value", record.value.as_ref());
    // A name may come more than once, so this is no object.
    let headers = record.headers.iter().map(|(name, value)| {
        let mut header = Map::new();
        header.insert("name".to_owned(), json!(name));
        insert_bytes(&mut header, "value", value.as_ref());
        Value::Object(header)
    });
    json.insert("headers".to_owned(), headers.collect());
    Value::Object(json)
}

/// As text under `name`; bytes that are none, in base64 under `name_base64`.
fn insert_bytes(json: &mut Map<String, Value>, name: &str, bytes: Option<&Bytes>) {
    match bytes.map(|bytes| std::str::from_utf8(bytes).map_err(|_| bytes)) {
        None => json.insert(name.to_owned(), Value::Null),
        Some(Ok(text)) => json.insert(name.to_owned(), json!(text)),
        Some(Err(bytes)) => json.insert(format!("{name}_base64"), json!(STANDARD.encode(bytes))),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk() -> FetchedChunk {
        let record = |offset, value: &'static [u8]| ConsumedRecord {
            offset,
            timestamp_ms: 5,
            key: Some("k".into()),
            value: Some(value.into()),
            headers: vec![("h".to_owned(), Some("x".into())), ("h".to_owned(), None)],
        };
        FetchedChunk {
            topic: "t".into(),
            partition: 1,
            records: vec![record(7, b"a\xff\r"), record(8, b"b"), record(9, b"c")],
            next_offset: 10,
            high_watermark: 10,
        }
    }

    fn printed(output: Output, key_separator: Option<&str>, left: u64, end: Offset) -> Vec<u8> {
        let key_separator = key_separator.map(str::to_owned);
        let mut printer = Printer { out: Vec::new(), output, key_separator, left };
        printer.print(&chunk(), end).expect("into memory");
        printer.out
    }

    #[test]
    fn text_keeps_every_byte_and_stops_where_told() {
        assert_eq!(printed(Output::Table, None, 10, 100), b"a\xff\r\nb\nc\n");
        assert_eq!(printed(Output::Table, Some("="), 10, 9), b"k=a\xff\r\nk=b\n");
        assert_eq!(printed(Output::Table, None, 1, 100), b"a\xff\r\n");
    }

    #[test]
    fn json_says_everything() {
        let text = String::from_utf8(printed(Output::Json, None, 2, 100)).expect("JSON is UTF-8");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines[0]["value_base64"], json!("Yf8N"));
        let expected = json!({
            "topic": "t", "partition": 1, "offset": 8, "timestamp_ms": 5, "key": "k", "value": "b",
            "headers": [{ "name": "h", "value": "x" }, { "name": "h", "value": null }],
        });
        assert_eq!(lines[1], expected);
    }
}
