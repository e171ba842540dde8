//! `kontiki log stats`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use super::super::error::Failure;
use super::super::output::{Output, table};
use super::partitions;
use crate::record::Compression;
use crate::storage::inspect::{Stats, Tally, stats};

#[derive(Debug, Args)]
pub(super) struct StatsArgs {
    /// Partition directories, or log directories that hold some
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

pub(super) fn run(output: Output, args: &StatsArgs) -> Result<(), Failure> {
    let mut found = Vec::new();
    for dir in &args.dirs {
        for dir in partitions(dir)? {
            let stats = stats(&dir)?;
            found.push((dir, stats));
        }
    }
    let json: Value = found.iter().map(|(dir, stats)| to_json(dir, stats)).collect();
    output.print(&json, || {
        found.iter().map(|(dir, stats)| to_text(dir, stats)).collect::<Vec<_>>().join("\n")
    })?;
    Ok(())
}

fn tally_json(tally: &Tally) -> Value {
    json!({ "batches": tally.batches, "records": tally.records, "size": tally.size })
}

fn codec_name(codec: u8) -> String {
    Compression::from_codec(codec)
        .map_or_else(|| codec.to_string(), |codec| codec.name().to_owned())
}

fn to_json(dir: &Path, stats: &Stats) -> Value {
    let segments = stats.segments.iter().map(|segment| {
        let mut json = tally_json(&segment.tally);
        json["base_offset"] = json!(segment.base_offset);
        json["end_offset"] = json!(segment.end_offset);
        json["max_timestamp_ms"] = json!(segment.max_timestamp_ms);
        json
    });
    let codecs: Map<String, Value> =
        stats.codecs.iter().map(|(codec, tally)| (codec_name(*codec), tally_json(tally))).collect();
    let epochs = stats.leader_epochs.iter();
    json!({
        "dir": dir,
        "total": tally_json(&stats.total),
        "batch_size_min": stats.batch_sizes.map(|sizes| sizes.0),
        "batch_size_max": stats.batch_sizes.map(|sizes| sizes.1),
        "codecs": codecs,
        "timestamp_ms_min": stats.timestamps_ms.map(|range| range.0),
        "timestamp_ms_max": stats.timestamps_ms.map(|range| range.1),
        "control_batches": stats.control_batches,
        "transactional_batches": stats.transactional_batches,
        "producers": stats.producers.len(),
        "leader_epochs": epochs
            .map(|(epoch, offset)| json!({ "leader_epoch": epoch, "first_offset": offset }))
            .collect::<Value>(),
        "unreadable_size": stats.unreadable_size,
        "segments": segments.collect::<Value>(),
    })
}

fn to_text(dir: &Path, stats: &Stats) -> String {
    let total = &stats.total;
    let mut text = format!(
        "{}: {} records in {} batches, {} bytes\n",
        dir.display(),
        total.records,
        total.batches,
        total.size
    );
    if let (Some((smallest, largest)), Some((from_ms, to_ms))) =
        (stats.batch_sizes, stats.timestamps_ms)
    {
        let mean = total.size / total.batches.max(1);
        let _ = writeln!(text, "  batch sizes: {smallest} to {largest}, {mean} on average");
        let _ = writeln!(text, "  timestamps: {from_ms} to {to_ms}");
    }
    for (codec, tally) in &stats.codecs {
        let Tally { batches, records, size } = tally;
        let name = codec_name(*codec);
        let _ =
            writeln!(text, "  codec {name}: {records} records in {batches} batches, {size} bytes");
    }
    let _ = writeln!(
        text,
        "  producers: {}, transactional batches: {}, control batches: {}",
        stats.producers.len(),
        stats.transactional_batches,
        stats.control_batches
    );
    let epochs: Vec<String> =
        stats.leader_epochs.iter().map(|(epoch, at)| format!("{epoch} from {at}")).collect();
    let _ = writeln!(text, "  leader epochs: {}", epochs.join(", "));
    if stats.unreadable_size > 0 {
        let _ = writeln!(text, "  NOT READABLE: {} bytes", stats.unreadable_size);
    }
    let rows = stats.segments.iter().map(|segment| {
        [
            segment.base_offset.to_string(),
            segment.end_offset.to_string(),
            segment.tally.records.to_string(),
            segment.tally.batches.to_string(),
            segment.tally.size.to_string(),
            segment.max_timestamp_ms.map_or_else(|| "-".to_owned(), |at| at.to_string()),
        ]
    });
    let heading = ["from", "to", "records", "batches", "bytes", "max timestamp"];
    for line in table(heading, rows).lines() {
        let _ = writeln!(text, "  {line}");
    }
    text
}
