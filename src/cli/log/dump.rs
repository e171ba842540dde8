//! `kontiki log dump`.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Value, json};

use super::super::error::Failure;
use super::super::output::Output;
use crate::record::{Batch, BatchHeader, Compression, DECOMPRESSED_SIZE_MAX, Record, records};
use crate::storage::Error;
use crate::storage::inspect::{
    Aborted, Content, FileKind, IndexEntry, LogFile, ProducerEntry, TimeIndexEntry, read,
};
use crate::types::{Offset, TopicPartition};

#[derive(Debug, Args)]
pub(super) struct DumpArgs {
    /// Files, or directories whose files are printed one after the other
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// The records of each batch, too
    #[arg(long, short)]
    records: bool,
}

pub(super) fn run(output: Output, args: &DumpArgs) -> Result<(), Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        if !path.is_dir() {
            if FileKind::of(path).is_none() {
                let problem = format!("{} is no file of a log by its name", path.display());
                return Err(Failure::refused(problem));
            }
            files.push(path.clone());
            continue;
        }
        let entries = path.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| {
            Failure::refused(format!("cannot list {}: {error}", path.display()))
        })?;
        let mut inside: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
        inside.retain(|path| path.is_file() && FileKind::of(path).is_some());
        inside.sort_unstable();
        files.extend(inside);
    }
    let mut printer =
        Printer { out: BufWriter::new(io::stdout().lock()), output, records: args.records };
    let mut is_whole = true;
    for file in &files {
        is_whole &= printer.file(file)?;
    }
    printer.out.flush()?;
    if is_whole { Ok(()) } else { Err(Failure::unhealthy()) }
}

struct Printer<W: Write> {
    out: W,
    output: Output,
    records: bool,
}

impl<W: Write> Printer<W> {
    /// False when the file is damaged.
    fn file(&mut self, path: &Path) -> Result<bool, Failure> {
        if self.output == Output::Table {
            writeln!(self.out, "{}", path.display())?;
        }
        if FileKind::of(path) == Some(FileKind::Log) {
            return self.log(path);
        }
        match read(path) {
            Ok(content) => {
                for entry in entries(content) {
                    self.line(path, entry, "  ")?;
                }
                Ok(true)
            }
            Err(Error::Malformed { reason, .. }) => {
                self.line(path, damage(&reason), "  ")?;
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn log(&mut self, path: &Path) -> Result<bool, Failure> {
        let log = LogFile::open(path)?;
        let mut is_whole = true;
        let (position, refusal) = log.walk(|position, batch| -> Result<(), Failure> {
            is_whole &= batch.check_crc().is_ok();
            self.line(path, batch_fields(position, &batch), "  ")?;
            if self.records {
                is_whole &= self.records(path, &batch)?;
            }
            Ok(())
        })?;
        if let Some(refusal) = refusal {
            let mut fields =
                vec![("position", json!(position)), ("size", json!(log.size() - position))];
            fields.extend(damage(&refusal.to_string()));
            self.line(path, fields, "  ")?;
            is_whole = false;
        }
        Ok(is_whole)
    }

    fn records(&mut self, path: &Path, batch: &Batch<'_>) -> Result<bool, Failure> {
        let records = match records(batch, DECOMPRESSED_SIZE_MAX) {
            Ok(records) => records,
            Err(refusal) => {
                self.line(path, damage(&refusal.to_string()), "    ")?;
                return Ok(false);
            }
        };
        for record in records.iter() {
            let fields = match &record {
                Ok(record) => record_fields(&batch.header, record),
                Err(refusal) => damage(&refusal.to_string()),
            };
            self.line(path, fields, "    ")?;
            if record.is_err() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One thing: an object on a line of its own, or its fields as words.
    fn line(&mut self, path: &Path, shown: Fields, indent: &str) -> io::Result<()> {
        match self.output {
            Output::Json => {
                let file = ("file", json!(path));
                let fields = [file].into_iter().chain(shown);
                let object: Map<String, Value> =
                    fields.map(|(name, value)| (name.to_owned(), value)).collect();
                writeln!(self.out, "{}", Value::Object(object))
            }
            Output::Table => {
                let said = shown.iter().filter(|(_, value)| !value.is_null() && *value != false);
                let words: Vec<String> = said
                    .map(|(name, value)| match value {
                        Value::Bool(_) => (*name).to_owned(),
                        value => format!("{name}={value}"),
                    })
                    .collect();
                writeln!(self.out, "{indent}{}", words.join(" "))
            }
        }
    }
}

/// In the order in which people read them.
type Fields = Vec<(&'static str, Value)>;

fn damage(reason: &str) -> Fields {
    vec![("damage", json!(reason))]
}

fn batch_fields(position: u64, batch: &Batch<'_>) -> Fields {
    let header = &batch.header;
    let codec = Compression::from_codec(header.codec());
    let has_producer = header.producer_id >= 0;
    vec![
        ("position", json!(position)),
        ("base_offset", json!(header.base_offset)),
        ("last_offset", json!(header.last_offset())),
        ("records", json!(header.record_count)),
        ("size", json!(header.size)),
        ("codec", codec.map_or(json!(header.codec()), |codec| json!(codec.name()))),
        ("leader_epoch", json!(header.leader_epoch)),
        ("max_timestamp_ms", json!(header.max_timestamp_ms)),
        ("is_log_append_time", json!(header.is_log_append_time())),
        ("producer_id", json!(has_producer.then_some(header.producer_id))),
        ("producer_epoch", json!(has_producer.then_some(header.producer_epoch))),
        ("base_sequence", json!((header.base_sequence >= 0).then_some(header.base_sequence))),
        ("is_transactional", json!(header.is_transactional())),
        ("is_control", json!(header.is_control())),
        (
            "delete_horizon_ms",
            json!(header.has_delete_horizon().then_some(header.base_timestamp_ms)),
        ),
        ("crc", json!(header.crc)),
        ("damage", json!(batch.check_crc().err().map(|refusal| refusal.to_string()))),
    ]
}

fn record_fields(header: &BatchHeader, record: &Record<'_>) -> Fields {
    let bytes = |bytes: Option<&[u8]>| match bytes.map(std::str::from_utf8) {
        None => Value::Null,
        Some(Ok(text)) => json!(text),
        Some(Err(_)) => json!({ "base64": STANDARD.encode(bytes.unwrap_or_default()) }),
    };
    let mut fields =
        vec![("offset", json!(record.offset)), ("timestamp_ms", json!(record.timestamp_ms))];
    if header.is_control() {
        let kind = match record.key {
            Some([_, _, 0, 0]) => json!("abort"),
            Some([_, _, 0, 1]) => json!("commit"),
            key => bytes(key),
        };
        fields.push(("marker", kind));
        return fields;
    }
    // As `kontiki consume` names them.
    let named = |name, in_base64, field| match bytes(field) {
        Value::Object(mut object) => (in_base64, object["base64"].take()),
        text => (name, text),
    };
    fields.push(named("key", "key_base64", record.key));
    fields.push(named("value", "value_base64", record.value));
    let headers: Vec<Value> =
        record.headers.iter().map(|(name, value)| json!([name, bytes(*value)])).collect();
    fields.push(("headers", if headers.is_empty() { Value::Null } else { json!(headers) }));
    fields
}

fn entries(content: Content) -> Vec<Fields> {
    match content {
        Content::Offsets(entries) => {
            let fields =
                |e: IndexEntry| vec![("offset", json!(e.offset)), ("position", json!(e.position))];
            entries.into_iter().map(fields).collect()
        }
        Content::Times(entries) => {
            let fields = |e: TimeIndexEntry| {
                vec![("timestamp_ms", json!(e.timestamp_ms)), ("offset", json!(e.offset))]
            };
            entries.into_iter().map(fields).collect()
        }
        Content::Aborted(entries) => {
            let fields = |e: Aborted| {
                vec![
                    ("producer_id", json!(e.producer_id)),
                    ("first_offset", json!(e.first_offset)),
                    ("last_offset", json!(e.last_offset)),
                    ("last_stable_offset", json!(e.last_stable_offset)),
                ]
            };
            entries.into_iter().map(fields).collect()
        }
        Content::Producers(entries) => {
            let fields = |e: ProducerEntry| {
                vec![
                    ("producer_id", json!(e.producer_id)),
                    ("producer_epoch", json!(e.producer_epoch)),
                    ("last_sequence", json!(e.last_sequence)),
                    ("last_offset", json!(e.last_offset)),
                    ("offset_delta", json!(e.offset_delta)),
                    ("timestamp_ms", json!(e.timestamp_ms)),
                    ("coordinator_epoch", json!(e.coordinator_epoch)),
                    ("transaction_first_offset", json!(e.transaction_first_offset)),
                ]
            };
            entries.into_iter().map(fields).collect()
        }
        Content::LeaderEpochs(entries) => {
            let fields = |(epoch, start)| {
                vec![("leader_epoch", json!(epoch)), ("start_offset", json!(start))]
            };
            entries.into_iter().map(fields).collect()
        }
        Content::Checkpoint(entries) => {
            let fields = |(name, offset): (TopicPartition, Offset)| {
                vec![
                    ("topic", json!(&*name.topic)),
                    ("partition", json!(name.partition)),
                    ("offset", json!(offset)),
                ]
            };
            entries.into_iter().map(fields).collect()
        }
        Content::TopicId(topic_id) => vec![vec![("topic_id", json!(topic_id.to_string()))]],
        Content::Text(text) => text.lines().map(|line| vec![("line", json!(line))]).collect(),
    }
}
