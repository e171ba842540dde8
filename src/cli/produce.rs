//! `kontiki produce`: lines become records, byte for byte.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use clap::{Args, ValueEnum};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::configs::parse_pair;
use super::connect::Connect;
use super::error::Failure;
use super::output::{Progress, count};
use crate::client::{Acks, Compression, Delivery, Error, Producer, ProducerConfig, Record};
use crate::types::Offset;

/// Bytes that are read at once.
const READ_SIZE: usize = 256 << 10;
/// Reads that may wait for the producer.
const READS_MAX: usize = 4;
/// Records whose outcome has not been looked at.
const OUTCOMES_MAX: usize = 1 << 17;

/// Write records, one a line, from standard input or a file
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  echo hello | kontiki produce greetings\n  kontiki produce orders --file orders.csv --key-separator ,\n  yes tick | kontiki produce clock --rate 10 --header source=cli"
)]
pub(super) struct ProduceArgs {
    #[command(flatten)]
    connect: Connect,
    topic: String,
    /// Where the lines are [default: standard input]
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What stands between key and value; a line without it is an error
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// The key of every record
    #[arg(long, short, conflicts_with = "key_separator")]
    key: Option<String>,
    /// A header of every record; may be repeated
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = parse_pair)]
    headers: Vec<(String, String)>,
    /// Write to this partition [default: by key; without one, whole batches in turn]
    #[arg(long, short)]
    partition: Option<i32>,
    /// When a record counts as written
    #[arg(long, value_enum, default_value_t = AcksArg::All)]
    acks: AcksArg,
    /// How batches are compressed
    #[arg(long, value_enum, default_value_t = CompressionArg::None)]
    compression: CompressionArg,
    /// Records a second, at most
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AcksArg {
    /// Every replica in sync has it
    All,
    /// The leader has it
    #[value(name = "1")]
    Leader,
    /// The leader was told
    #[value(name = "0")]
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum CompressionArg {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

pub(super) async fn run(args: ProduceArgs) -> Result<(), Failure> {
    let client = args.connect.client().await?;
    let (input, size) = open(&args)?;
    // Without this, a topic that does not exist would be noticed after the first line was typed.
    client.topic(&args.topic).await?;
    if args.file.is_none() && io::stdin().is_terminal() {
        eprintln!("One record a line; Ctrl-D ends.");
    }
    let producer = client.producer(config(&args));
    let (outcomes, to_see) = mpsc::channel(OUTCOMES_MAX);
    let noun = if size.is_some() { "bytes" } else { "records" };
    let seen = tokio::spawn(see(to_see, Progress::start(size, noun), size.is_some()));
    let sent = send_all(&args, &producer, input, &outcomes).await;
    drop(outcomes);
    producer.flush().await;
    let summary = seen.await.map_err(|error| Failure::refused(error.to_string()))?;
    summary.report(&args)?;
    sent?;
    match summary.first_error {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn config(args: &ProduceArgs) -> ProducerConfig {
    let acks = match args.acks {
        AcksArg::All => Acks::All,
        AcksArg::Leader => Acks::Leader,
        AcksArg::None => Acks::None,
    };
    let compression = match args.compression {
        CompressionArg::None => Compression::None,
        CompressionArg::Gzip => Compression::Gzip,
        CompressionArg::Snappy => Compression::Snappy,
        CompressionArg::Lz4 => Compression::Lz4,
        CompressionArg::Zstd => Compression::Zstd,
    };
    let delivery_timeout = args.connect.timeout();
    ProducerConfig { acks, compression, delivery_timeout, ..ProducerConfig::default() }
}

/// The input and, where it is known, its size.
fn open(args: &ProduceArgs) -> Result<(Box<dyn Read + Send>, Option<u64>), Failure> {
    let Some(path) = &args.file else { return Ok((Box::new(io::stdin()), None)) };
    let open = || {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let size = metadata.is_file().then_some(metadata.len());
        Ok::<_, io::Error>((Box::new(file) as Box<dyn Read + Send>, size))
    };
    open().map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// What one line became, on its way.
struct Pending {
    line: u64,
    size: u64,
    delivery: Delivery,
}

async fn send_all(
    args: &ProduceArgs,
    producer: &Producer,
    input: Box<dyn Read + Send>,
    outcomes: &mpsc::Sender<Pending>,
) -> Result<(), Failure> {
    let mut reads = read_lines(input);
    let started = Instant::now();
    let mut line = 0_u64;
    while let Some(lines) = reads.recv().await {
        let lines = lines.map_err(|error| Failure::refused(format!("cannot read: {error}")))?;
        for text in lines {
            if let Some(rate) = args.rate {
                sleep_until(
                    started + Duration::from_secs(1).mul_f64(line as f64 / f64::from(rate)),
                )
                .await;
            }
            line += 1;
            let size = text.len() as u64 + 1;
            let record = record(args, text).ok_or_else(|| {
                let separator = args.key_separator.as_deref().unwrap_or_default();
                Failure::refused(format!("line {line} has no key: no {separator:?} in it"))
            })?;
            let delivery = producer.send(record).await?;
            if outcomes.send(Pending { line, size, delivery }).await.is_err() {
                // A record has failed; the summary says why.
                return Ok(());
            }
        }
    }
    Ok(())
}

fn record(args: &ProduceArgs, text: Bytes) -> Option<Record> {
    let mut record = Record::to(args.topic.as_str());
    record.partition = args.partition;
    for (name, value) in &args.headers {
        record = record.header(name.as_str(), value.clone());
    }
    if let Some(key) = &args.key {
        record = record.key(key.clone());
    }
    match &args.key_separator {
        None => Some(record.value(text)),
        Some(separator) => {
            let separator = separator.as_bytes();
            let at = match separator {
                [byte] => text.iter().position(|b| b == byte),
                _ => text.windows(separator.len().max(1)).position(|window| window == separator),
            }?;
            let key = text.slice(..at);
            Some(record.key(key).value(text.slice(at + separator.len()..)))
        }
    }
}

/// Reads on a thread of its own, which waits when the producer does.
fn read_lines(mut input: Box<dyn Read + Send>) -> mpsc::Receiver<io::Result<Vec<Bytes>>> {
    let (lines, reads) = mpsc::channel(READS_MAX);
    tokio::task::spawn_blocking(move || {
        let mut buffer = BytesMut::new();
        loop {
            let kept = buffer.len();
            buffer.resize(kept + READ_SIZE, 0);
            let size = match input.read(&mut buffer[kept..]) {
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    buffer.truncate(kept);
                    continue;
                }
                Err(error) => return drop(lines.blocking_send(Err(error))),
            };
            buffer.truncate(kept + size);
            let found = split_lines(&mut buffer, size == 0);
            if !found.is_empty() && lines.blocking_send(Ok(found)).is_err() || size == 0 {
                return;
            }
        }
    });
    reads
}

/// Takes whole lines, without their line feeds; at the end also what is left.
fn split_lines(buffer: &mut BytesMut, at_end: bool) -> Vec<Bytes> {
    let whole = buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let taken = buffer.split_to(whole).freeze();
    let mut lines = Vec::new();
    let mut start = 0;
    for (at, _) in taken.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        lines.push(taken.slice(start..at));
        start = at + 1;
    }
    if at_end && !buffer.is_empty() {
        lines.push(buffer.split().freeze());
    }
    lines
}

/// What became of all records.
#[derive(Debug, Default)]
struct Summary {
    records: u64,
    bytes: u64,
    elapsed: Duration,
    first_error: Option<Error>,
    /// First and last offset by partition.
    offsets: BTreeMap<i32, (Offset, Offset)>,
}

/// Looks at the outcomes, in the order of the lines, until all are in or one is bad.
async fn see(mut pending: mpsc::Receiver<Pending>, progress: Progress, by_bytes: bool) -> Summary {
    let mut summary = Summary::default();
    while let Some(Pending { line, size, delivery }) = pending.recv().await {
        match delivery.await {
            Ok(delivered) => {
                summary.records += 1;
                summary.bytes += size - 1;
                let (partition, offset) = (delivered.partition, delivered.offset);
                summary.offsets.entry(partition).or_insert((offset, offset)).1 = offset;
                progress.advance(if by_bytes { size } else { 1 });
            }
            Err(error) => {
                eprintln!("line {line} was not written");
                summary.first_error = Some(error);
                break;
            }
        }
    }
    summary.elapsed = progress.elapsed();
    summary
}

impl Summary {
    fn report(&self, args: &ProduceArgs) -> Result<(), Failure> {
        let partitions: BTreeMap<String, _> = (self.offsets.iter())
            .map(|(partition, (first, last))| {
                (partition.to_string(), json!({ "first_offset": first, "last_offset": last }))
            })
            .collect();
        let json = json!({
            "topic": args.topic,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "partitions": partitions,
        });
        args.connect.output.print(&json, || {
            let records = usize::try_from(self.records).unwrap_or(usize::MAX);
            let seconds = self.elapsed.as_secs_f64();
            format!("{} written to {} in {seconds:.2} s", count(records, "record"), args.topic)
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], read_size: usize) -> Vec<Bytes> {
        let mut buffer = BytesMut::new();
        let mut lines = Vec::new();
        for read in text.chunks(read_size) {
            buffer.extend_from_slice(read);
            lines.extend(split_lines(&mut buffer, false));
        }
        lines.extend(split_lines(&mut buffer, true));
        lines
    }

    #[test]
    fn lines_are_kept_byte_for_byte_however_they_are_read() {
        let text = b"one\n\ntwo\r\n\xff\x00three\nlast";
        for read_size in 1..=text.len() {
            let expected: [&[u8]; 5] = [b"one", b"", b"two\r", b"\xff\x00three", b"last"];
            assert_eq!(lines(text, read_size), expected, "{read_size}");
        }
        assert_eq!(lines(b"one\n", 2), [&b"one"[..]]);
        assert!(lines(b"", 2).is_empty());
    }
}
