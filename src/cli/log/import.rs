//! `kontiki log import`: the batches of a directory, unchanged, into an empty partition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::Args;
use serde_json::json;
use tokio::sync::mpsc;

use super::super::connect::Connect;
use super::super::error::Failure;
use super::super::output::Progress;
use crate::client::{Admin, OffsetQuery};
use crate::protocol::native::ListedOffset;
use crate::storage::inspect::{Fault, LogFile, Verified, verify};
use crate::types::{Offset, TopicPartition};

/// Bytes of one request, unless a batch is larger.
const CHUNK_SIZE: usize = 1 << 20;
/// Chunks that are read ahead.
const CHUNKS_MAX: usize = 2;

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// The directory of one partition
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// The topic, which must exist [default: as the directory is named]
    #[arg(long)]
    topic: Option<String>,
    /// The partition, which must be empty [default: as the directory is named]
    #[arg(long, short)]
    partition: Option<i32>,
    /// Import aborted and unfinished transactions, too: readers of committed records will see them
    #[arg(long)]
    with_uncommitted: bool,
    /// Check the directory and the partition, and import nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(connect: Connect, args: ImportArgs) -> Result<(), Failure> {
    let dir = args.dir.canonicalize().map_err(|error| {
        Failure::refused(format!("cannot open {}: {error}", args.dir.display()))
    })?;
    let named = dir.file_name().and_then(|name| name.to_str()).and_then(TopicPartition::parse);
    let missing = || Failure::usage("the directory has no name of a partition; say --topic");
    let topic = match (args.topic, &named) {
        (Some(topic), _) => topic,
        (None, named) => named.as_ref().ok_or_else(missing)?.topic.to_string(),
    };
    let partition = args.partition.or(named.map(|named| named.partition)).unwrap_or(0);

    let seen = verify(&dir)?;
    check(&dir, &seen, args.with_uncommitted)?;
    let client = connect.client().await?;
    let end = client.offsets(&topic, OffsetQuery::Latest).await?;
    let start = client.offsets(&topic, OffsetQuery::Earliest).await?;
    let offset = |listed: &BTreeMap<i32, ListedOffset>| listed.get(&partition).map(|l| l.offset);
    let (Some(start), Some(end)) = (offset(&start), offset(&end)) else {
        return Err(Failure::refused(format!("topic {topic} has no partition {partition}")));
    };
    if (start, end) != (0, 0) {
        let problem = format!(
            "partition {partition} of {topic} is not empty: it has offsets {start} to {end}; import into a new topic"
        );
        return Err(Failure::refused(problem));
    }
    if !args.dry_run {
        let progress = Progress::start(Some(seen.size), "bytes");
        import(&client.admin(), &dir, seen.files.segments.clone(), &topic, partition, &progress)
            .await?;
        if seen.start_offset > 0 {
            let start = BTreeMap::from([(partition, seen.start_offset)]);
            client.admin().delete_records(&topic, &start).await?;
        }
    }
    let json = json!({
        "dir": dir,
        "topic": topic,
        "partition": partition,
        "batches": seen.batches,
        "records": seen.records,
        "size": seen.size,
        "start_offset": seen.start_offset,
        "end_offset": seen.end_offset,
        "imported": !args.dry_run,
    });
    connect.output.print(&json, || {
        format!(
            "{} {} records in {} batches into partition {partition} of {topic}: offsets {} to {}",
            if args.dry_run { "would import" } else { "imported" },
            seen.records,
            seen.batches,
            seen.start_offset,
            seen.end_offset,
        )
    })?;
    Ok(())
}

/// Whether the directory may be imported.
fn check(dir: &Path, seen: &Verified, with_uncommitted: bool) -> Result<(), Failure> {
    let lost = |fault| matches!(fault, Fault::Records | Fault::Tail);
    if let Some(finding) = seen.findings.iter().find(|finding| lost(finding.fault)) {
        let problem = format!(
            "{}: {}; nothing was imported. `kontiki log verify {}` lists everything that is wrong",
            finding.path.display(),
            finding.reason,
            dir.display()
        );
        return Err(Failure::refused(problem));
    }
    if seen.uncommitted > 0 && !with_uncommitted {
        let problem = format!(
            "it holds {} aborted or unfinished transactions, which readers of committed records would see here; \
             --with-uncommitted imports them all the same",
            seen.uncommitted
        );
        return Err(Failure::refused(problem));
    }
    Ok(())
}

/// Some batches, and the offset before and after.
struct Chunk {
    bytes: Bytes,
    end_before: Offset,
}

async fn import(
    admin: &Admin,
    dir: &Path,
    segments: Vec<Offset>,
    topic: &str,
    partition: i32,
    progress: &Progress,
) -> Result<(), Failure> {
    let (chunks, mut waiting) = mpsc::channel(CHUNKS_MAX);
    let dir = dir.to_path_buf();
    let reading = tokio::task::spawn_blocking(move || read(&dir, &segments, &chunks));
    while let Some(Chunk { bytes, end_before }) = waiting.recv().await {
        let size = bytes.len() as u64;
        admin.import(topic, partition, bytes, end_before).await?;
        progress.advance(size);
    }
    reading.await.map_err(|error| Failure::refused(format!("reading ended early: {error}")))?
}

fn read(dir: &Path, segments: &[Offset], chunks: &mpsc::Sender<Chunk>) -> Result<(), Failure> {
    // Somebody who has stopped to take chunks has said why.
    let stopped = |_| Failure::refused("the import has stopped");
    let (mut bytes, mut end_before, mut end) = (Vec::new(), 0, 0);
    for base in segments {
        let log = LogFile::open(&dir.join(format!("{base:020}.log")))?;
        log.walk(|_, batch| {
            if !bytes.is_empty() && bytes.len() + batch.bytes.len() > CHUNK_SIZE {
                let full = Bytes::from(std::mem::take(&mut bytes));
                chunks.blocking_send(Chunk { bytes: full, end_before }).map_err(stopped)?;
                end_before = end;
            }
            bytes.extend_from_slice(batch.bytes);
            end = batch.header.next_offset();
            Ok::<(), Failure>(())
        })?;
    }
    if !bytes.is_empty() {
        chunks.blocking_send(Chunk { bytes: bytes.into(), end_before }).map_err(stopped)?;
    }
    Ok(())
}
