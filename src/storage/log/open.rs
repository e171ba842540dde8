//! Opening the log of one partition: trusted after a clean shutdown, else recovered (replication.md 3.5).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::checkpoint::parse_epochs;
use super::super::epochs::EpochCache;
use super::super::fs::{read_if_exists, remove_if_exists};
use super::super::log_dir::LogDir;
use super::super::scan::Scanner;
use super::super::segment::Segment;
use super::super::{Error, ReadError, Result};
use super::replace::Leftovers;
use super::truncate::{into_error, remove_segment};
use super::{EPOCHS, PartitionLog};
use crate::metadata::config::TopicConfig;
use crate::types::time::wall_ms;
use crate::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

/// A partition's directory, and what the checkpoints say about it.
pub(in super::super) struct FoundLog {
    pub(in super::super) name: TopicPartition,
    pub(in super::super) topic_id: TopicId,
    pub(in super::super) recovery_point: Offset,
    pub(in super::super) log_start: Offset,
    pub(in super::super) high_watermark: Offset,
    pub(in super::super) clean_end: Offset,
    /// After a clean shutdown.
    pub(in super::super) is_trusted: bool,
}

#[derive(Default)]
struct Files {
    segments: Vec<Offset>,
    snapshots: Vec<Offset>,
}

pub(in super::super) fn open_log(
    dir: &Arc<LogDir>,
    found: FoundLog,
    config: Arc<TopicConfig>,
) -> Result<Arc<PartitionLog>> {
    let log = PartitionLog::new(dir, found.name.clone(), found.topic_id, config);
    let mut files = list_files(&log.path)?;
    drop_below(&log, found.log_start, &mut files)?;
    let mut scanned = Vec::new();
    let (mut segments, trusted_end) = open_segments(&log, &found, &files, &mut scanned)?;
    let is_recovered = trusted_end < Offset::MAX;

    let mut end = segments.last().map_or(found.log_start, |last| last.next_offset());
    let first_base = segments.first().map_or(end, |first| first.base_offset);
    if end < found.log_start {
        // What lies below the log start was deleted on purpose.
        for segment in segments.drain(..).rev() {
            remove_segment(&segment)?;
        }
        end = found.log_start;
        segments.push(Segment::create(&log.path, end, wall_ms())?);
    }
    let start = found.log_start.max(first_base).min(end);

    let checkpoint = read_if_exists(&log.path.join(EPOCHS))?;
    let parsed = checkpoint.as_deref().and_then(|content| parse_epochs(content).ok());
    let mut epochs = EpochCache::new(parsed.unwrap_or_default());
    // What was synced with sealed segments is right; the rest is read from the batches.
    epochs.truncate_from_end(trusted_end);
    for (epoch, start) in scanned {
        epochs.assign(epoch, start);
    }
    epochs.truncate_from_end(end);
    if start < end && epochs.entries().first().is_none_or(|first| first.1 > start) {
        // Lost, or damaged, or of a log start that did not reach the disk.
        epochs = scan_epochs(&segments)?;
    }
    epochs.truncate_from_start(start);

    log.segments.store(Arc::new(segments.into_iter().map(Arc::new).collect()));
    log.end_offset.store(end, Ordering::Release);
    log.start_offset.store(start, Ordering::Release);
    log.on_start_offset_written(start);
    log.is_configured.store(false, Ordering::Relaxed);
    log.clean_end.store(found.clean_end.min(end), Ordering::Release);
    log.high_watermark.store(found.high_watermark.clamp(start, end), Ordering::Release);
    let durable_end = if is_recovered { trusted_end.min(end) } else { end };
    log.durable_end_offset.store(durable_end, Ordering::Release);
    *log.epochs.lock() = epochs;
    log.flush.lock().on_opened(durable_end, found.recovery_point, is_recovered);
    log.sync_recovered(durable_end);
    let mut writer = log.writer.lock();
    writer.changed = is_recovered;
    writer.snapshots = files.snapshots;
    while let Some(snapshot) = writer.snapshots.pop_if(|snapshot| *snapshot > end) {
        remove_if_exists(&log.snapshot_path(snapshot))?;
    }
    log.reload_producers(&mut writer, end)?;
    drop(writer);
    // Thousands of partitions may be opened; the files stay closed until somebody needs them.
    for segment in log.segments.load().iter() {
        segment.close();
    }
    Ok(log)
}

/// Opens the segments in order. The second half of the pair: below it, everything is as it was flushed.
fn open_segments(
    log: &PartitionLog,
    found: &FoundLog,
    files: &Files,
    scanned: &mut Vec<(LeaderEpoch, Offset)>,
) -> Result<(Vec<Segment>, Offset)> {
    let bases = &files.segments;
    let now_ms = wall_ms();
    let interval = log.config.load().index_interval_bytes;
    let first_suspect = if found.is_trusted {
        bases.len()
    } else {
        bases.partition_point(|&base| base <= found.recovery_point).saturating_sub(1)
    };
    let mut segments: Vec<Segment> = Vec::with_capacity(bases.len());
    for (index, &base) in bases.iter().enumerate() {
        let next_base = bases.get(index + 1).copied();
        let is_suspect = index >= first_suspect;
        if !is_suspect
            && let Some(segment) =
                Segment::open_trusted(&log.path, base, next_base.unwrap_or(Offset::MAX), now_ms)?
            && (next_base.is_some() || segment.load_end().is_ok())
        {
            segments.push(segment);
            continue;
        }
        let segment = Segment::open_unindexed(&log.path, base, now_ms)?;
        // Damage before the recovery point is no torn tail. To cut there would drop records that were safe.
        let may_cut = is_suspect || next_base.is_none();
        let is_cut = segment.recover(interval, may_cut, |header| {
            let is_new = scanned.last().is_none_or(|last| last.0 != header.leader_epoch);
            if is_suspect && is_new {
                scanned.push((header.leader_epoch, header.base_offset));
            }
        })?;
        // Between two segments, a gap is where the end of the first one was lost, unless it was there when the log
        // rolled: on a follower, when the leader's log is compacted. The snapshot of that moment bears witness.
        let end = segment.next_offset();
        let has_gap = next_base.is_some_and(|next_base| end < next_base)
            && files.snapshots.binary_search(&end).is_err();
        segments.push(segment);
        if is_cut || (is_suspect && has_gap) {
            for &later in bases[index + 1..].iter().rev() {
                let later = Segment::open_unindexed(&log.path, later, now_ms)?;
                tracing::warn!(path = %later.path().display(), "dropped: what precedes it is lost");
                remove_segment(&later)?;
            }
            break;
        }
    }
    Ok((segments, bases.get(first_suspect).copied().unwrap_or(Offset::MAX)))
}

/// Reads epochs from batch headers, because the checkpoint is lost.
fn scan_epochs(segments: &[Segment]) -> Result<EpochCache> {
    let mut epochs = EpochCache::default();
    for segment in segments {
        let mut scan = || -> Result<(), ReadError> {
            let file = segment.file()?;
            let mut scanner = Scanner::sequential(&file, segment.size());
            while let Some(batch) =
                scanner.next().map_err(|error| error.into_read_error(segment.path()))?
            {
                epochs.assign(batch.header.leader_epoch, batch.header.base_offset);
            }
            Ok(())
        };
        scan().map_err(|error| into_error(error, segment))?;
    }
    Ok(epochs)
}

/// Segments that are wholly below the log start were about to be deleted. Which of them a crash has left is chance.
fn drop_below(log: &PartitionLog, start: Offset, files: &mut Files) -> Result<()> {
    let below = files.segments.windows(2).take_while(|pair| pair[1] <= start).count();
    for base in files.segments.drain(..below) {
        remove_segment(&Segment::open_unindexed(&log.path, base, 0)?)?;
    }
    Ok(())
}

/// Of a file with a name like `00000000000000000017.log.swap`.
fn leftover_base(path: &Path) -> Option<Offset> {
    path.file_name()?.to_str()?.split('.').next()?.parse().ok()
}

/// What is in a partition's directory. Leftovers of interrupted work go.
fn list_files(dir: &Path) -> Result<Files> {
    let mut files = Files::default();
    let (mut indexes, mut unwanted) = (Vec::new(), Vec::new());
    let mut leftovers = Leftovers::default();
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let path = entry.map_err(Error::io("list", dir))?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let base: Option<Offset> = stem.parse().ok().filter(|_| stem.len() == 20);
        match (path.extension().and_then(|extension| extension.to_str()), base) {
            (Some("log"), Some(base)) => files.segments.push(base),
            (Some("snapshot"), Some(offset)) => files.snapshots.push(offset),
            (Some("index" | "timeindex" | "txnindex"), Some(base)) => indexes.push((base, path)),
            (Some(extension @ ("deleted" | "cleaned" | "tmp")), _) => {
                if extension == "cleaned" {
                    let base = leftover_base(&path);
                    leftovers.first_cleaned = leftovers.first_cleaned.into_iter().chain(base).min();
                }
                unwanted.push(path);
            }
            (Some("swap"), _) => {
                leftovers.swaps.extend(leftover_base(&path).map(|base| (base, path)));
            }
            _ => {}
        }
    }
    if !leftovers.swaps.is_empty() {
        leftovers.finish(dir, &files.segments)?;
        return list_files(dir);
    }
    // What tells whether a swap had begun goes after the swaps.
    unwanted.iter().try_for_each(|path| remove_if_exists(path))?;
    files.segments.sort_unstable();
    files.snapshots.sort_unstable();
    for (base, path) in indexes {
        if files.segments.binary_search(&base).is_err() {
            remove_if_exists(&path)?;
        }
    }
    Ok(files)
}
