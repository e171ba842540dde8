//! Opening the log of one partition: trusted after a clean shutdown, else recovered (replication.md 3.5).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::checkpoint::parse_epochs;
use super::super::epochs::EpochCache;
use super::super::fs::{self, Durable, read_if_exists, remove_if_exists};
use super::super::log_dir::LogDir;
use super::super::scan::{ScanError, Scanner};
use super::super::segment::{RecoveryRules, Segment, base_offset};
use super::super::{Error, Result};
use super::damage::{Damage, REPAIR_MARK};
use super::replace::Leftovers;
use super::truncate::remove_segment;
use super::{EPOCHS, PartitionLog, Producers};
use crate::metadata::config::TopicConfig;
use crate::record::BatchHeader;
use crate::types::time::wall_ms;
use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};

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
    /// Being repaired.
    is_marked: bool,
}

pub(in super::super) fn open_log(
    dir: &Arc<LogDir>,
    found: FoundLog,
    config: Arc<TopicConfig>,
) -> Result<Arc<PartitionLog>> {
    let log = PartitionLog::new(dir, found.name.clone(), found.topic_id, config);
    let mut files = list_files(&log.path)?;
    drop_below(&log, found.log_start, &mut files)?;
    let is_marked = files.is_marked;
    let mut opening = Opening::begin(&log, &found, files)?;
    opening.open_segments()?;
    let Opening {
        mut segments,
        mut epochs,
        producers,
        snapshots,
        suspect_from,
        mut damage,
        is_changed,
        ..
    } = opening;

    let mut end = segments.last().map_or(found.log_start, |last| last.next_offset());
    end = damage.as_ref().map_or(end, |damage| damage.from.min(end));
    let first_base = segments.first().map_or(end, |first| first.base_offset);
    if end < found.log_start && damage.is_none() {
        // What lies below the log start was deleted on purpose.
        for segment in segments.drain(..).rev() {
            remove_segment(&segment)?;
        }
        end = found.log_start;
        segments.push(Arc::new(Segment::create(&log.path, end, wall_ms())?));
    }
    let start = found.log_start.max(first_base).min(end);
    epochs.truncate_from_end(end);
    if start < end && epochs.entries().first().is_none_or(|first| first.1 > start) {
        // Of a log start that did not reach the disk.
        epochs = EpochCache::default();
        for segment in &segments {
            let damaged = for_each_batch(segment, |header| {
                epochs.assign(header.leader_epoch, header.base_offset);
            })?;
            damage = damage.or(damaged);
        }
    }
    epochs.truncate_from_start(start);

    let suspects = segments.partition_point(|segment| segment.base_offset < suspect_from);
    let durable_end = found.recovery_point.max(suspect_from).min(end);
    log.flush.lock().on_opened(durable_end, found.recovery_point, &segments[suspects..]);
    if suspects + 1 < segments.len() {
        dir.chores.work.lock().sealed.push(Arc::clone(&log));
    }
    log.segments.store(Arc::new(segments));
    log.end_offset.store(end, Ordering::Release);
    log.start_offset.store(start, Ordering::Release);
    log.on_start_offset_written(start);
    log.is_configured.store(false, Ordering::Relaxed);
    log.clean_end.store(found.clean_end.min(end), Ordering::Release);
    log.high_watermark.store(found.high_watermark.clamp(start, end), Ordering::Release);
    log.durable_end_offset.store(durable_end, Ordering::Release);
    *log.epochs.lock() = epochs;
    let mut writer = log.writer.lock();
    writer.changed = is_changed;
    writer.snapshots = snapshots;
    writer.producers = producers;
    drop(writer);
    log.on_opened(damage, is_marked);
    // Thousands of partitions may be opened; the files stay closed until somebody needs them.
    for segment in log.segments.load().iter() {
        segment.close();
    }
    Ok(log)
}

/// A log that is being opened: its segments one after the other, and what they tell.
struct Opening<'a> {
    log: &'a PartitionLog,
    found: &'a FoundLog,
    bases: Vec<Offset>,
    /// Segments from here on are read. Below, everything is as it was synced.
    suspect_from: Offset,
    segments: Vec<Arc<Segment>>,
    epochs: EpochCache,
    epochs_lost: bool,
    producers: Producers,
    /// What `producers` knows of.
    producers_until: Offset,
    snapshots: Vec<Offset>,
    /// Snapshots that may be of batches that are gone. They are written anew.
    doubtful: Vec<Offset>,
    now_ms: TimestampMs,
    damage: Option<Damage>,
    /// Some file has to be completed before the log may be closed.
    is_changed: bool,
}

impl<'a> Opening<'a> {
    fn begin(log: &'a PartitionLog, found: &'a FoundLog, files: Files) -> Result<Self> {
        let bases = files.segments;
        let suspect_from = if found.is_trusted {
            Offset::MAX
        } else {
            let first = bases.partition_point(|&base| base <= found.recovery_point);
            bases.get(first.saturating_sub(1)).copied().unwrap_or(Offset::MAX)
        };
        let checkpoint = read_if_exists(&log.path.join(EPOCHS))?;
        let parsed = checkpoint.as_deref().and_then(|content| parse_epochs(content).ok());
        let epochs_lost = parsed.is_none();
        let mut epochs = EpochCache::new(parsed.unwrap_or_default());
        epochs.truncate_from_end(suspect_from);
        let mut opening = Self {
            log,
            found,
            suspect_from,
            segments: Vec::with_capacity(bases.len()),
            epochs,
            epochs_lost,
            producers: Producers::default(),
            producers_until: bases.first().copied().unwrap_or(0),
            snapshots: files.snapshots,
            doubtful: Vec::new(),
            now_ms: wall_ms(),
            bases,
            damage: None,
            is_changed: false,
        };
        opening.load_snapshot()?;
        Ok(opening)
    }

    /// Takes the newest snapshot that is whole and was synced with the segments before it. Later ones may be of batches
    /// that are gone.
    fn load_snapshot(&mut self) -> Result<()> {
        while let Some(snapshot) = self.snapshots.pop() {
            let path = self.log.snapshot_path(snapshot);
            if snapshot > self.suspect_from {
                self.doubtful.push(snapshot);
                continue;
            }
            let content = std::fs::read(&path).map_err(Error::io("read", &path))?;
            if let Some(producers) = Producers::decode(&content, snapshot, self.now_ms) {
                self.producers = producers;
                self.producers_until = self.producers_until.max(snapshot);
                self.snapshots.push(snapshot);
                break;
            }
            tracing::warn!(path = %path.display(), "damaged producer snapshot is replayed");
            remove_if_exists(&path)?;
        }
        Ok(())
    }

    fn on_batch(&mut self, header: &BatchHeader) {
        if self.epochs_lost || header.base_offset >= self.suspect_from {
            self.epochs.assign(header.leader_epoch, header.base_offset);
        }
        if header.base_offset >= self.producers_until {
            self.producers.on_appended(header, self.now_ms);
        }
    }

    fn open_segments(&mut self) -> Result<()> {
        let bases = std::mem::take(&mut self.bases);
        for (index, &base) in bases.iter().enumerate() {
            let later = &bases[index + 1..];
            let segment = match self.open_trusted(base, later.first().copied())? {
                Some(segment) => segment,
                None => self.recover(base, later)?,
            };
            let end = segment.next_offset();
            self.segments.push(Arc::new(segment));
            if self.damage.is_some() {
                break;
            }
            let Some(reason) = self.what_is_missing(end, later) else {
                self.write_snapshot(base, end, later)?;
                continue;
            };
            if end < self.found.recovery_point {
                self.damage = Some(Damage { from: end, segment: base, reason });
                break;
            }
            for &later in later.iter().rev() {
                let later = Segment::open_unindexed(&self.log.path, later, self.now_ms)?;
                tracing::warn!(path = %later.path().display(), "dropped: what precedes it is lost");
                remove_segment(&later)?;
            }
            break;
        }
        for doubtful in std::mem::take(&mut self.doubtful) {
            if !self.snapshots.contains(&doubtful) {
                remove_if_exists(&self.log.snapshot_path(doubtful))?;
            }
        }
        // A snapshot beyond the end tells of batches that are gone.
        let end = self.segments.last().map_or(0, |last| last.next_offset());
        if self.damage.is_none() && self.snapshots.last().is_some_and(|&snapshot| snapshot > end) {
            self.reload_producers()?;
        }
        Ok(())
    }

    /// A roll wrote one at the end of a segment that is read again now.
    fn write_snapshot(&mut self, base: Offset, end: Offset, later: &[Offset]) -> Result<()> {
        if base < self.suspect_from || later.is_empty() {
            return Ok(());
        }
        let content = self.producers.encode();
        fs::replace(&self.log.snapshot_path(end), &content, Durable::Later)?;
        self.snapshots.push(end);
        Ok(())
    }

    /// What the log says of the place where the last segment ends: nothing if the next one goes on there, or if it is
    /// the end of the log.
    fn what_is_missing(&self, end: Offset, later: &[Offset]) -> Option<String> {
        match later.first() {
            None if end < self.found.recovery_point => Some(format!(
                "ends at {end}, before what was synced ({})",
                self.found.recovery_point
            )),
            None => None,
            // A segment begins where the one before ends, but for a gap that is too large for one.
            Some(&next) if end < next && next - end <= i64::from(i32::MAX) => {
                Some(format!("offsets {end} to {next} are missing"))
            }
            Some(_) => None,
        }
    }

    /// The segment, if nothing in it has to be read, or next to nothing.
    fn open_trusted(&mut self, base: Offset, next_base: Option<Offset>) -> Result<Option<Segment>> {
        if base >= self.suspect_from {
            return Ok(None);
        }
        let end = next_base.unwrap_or(Offset::MAX);
        let Some(segment) = Segment::open_trusted(&self.log.path, base, end, self.now_ms)? else {
            return Ok(None);
        };
        if next_base.is_none() {
            let recovery_point = self.found.recovery_point;
            if segment.load_end().is_err()
                || (recovery_point > 0 && segment.next_offset() != recovery_point)
            {
                return Ok(None);
            }
        }
        if self.epochs_lost || segment.next_offset() > self.producers_until {
            let damage = for_each_batch(&segment, |header| self.on_batch(header))?;
            self.damage = self.damage.take().or(damage);
        }
        Ok(Some(segment))
    }

    /// Reads the segment, and cuts off what a crash left at its end.
    fn recover(&mut self, base: Offset, later: &[Offset]) -> Result<Segment> {
        self.is_changed = true;
        let segment = Segment::open_unindexed(&self.log.path, base, self.now_ms)?;
        let is_suspect = base >= self.suspect_from;
        let recovery_point = self.found.recovery_point;
        let clean_end = Some(recovery_point).filter(|&end| !is_suspect && end > 0);
        let end_max = later.first().copied().or(clean_end).unwrap_or(Offset::MAX);
        let rules = RecoveryRules {
            index_interval: self.log.config.load().index_interval_bytes,
            // When something is not as it should be, everything is looked at.
            flushed: if is_suspect { recovery_point } else { 0 },
            end_max,
            epoch_min: self.epochs.epoch_of(base - 1).unwrap_or(LeaderEpoch::NONE),
            is_active: later.is_empty(),
        };
        let size = segment.size();
        let Some(refusal) = segment.recover(&rules, |header| self.on_batch(header))? else {
            return Ok(segment);
        };
        let (position, from) = (segment.size(), segment.next_offset());
        if from < recovery_point || !is_suspect {
            let reason = format!("byte {position} of segment {base}: {refusal}");
            self.damage = Some(Damage { from, segment: base, reason });
        } else {
            tracing::warn!(
                path = %segment.path().display(), position, size, reason = %refusal,
                "the end of the segment is damaged and is cut off"
            );
            segment.cut_tail()?;
        }
        Ok(segment)
    }

    /// Without the snapshot, which was wrong.
    fn reload_producers(&mut self) -> Result<()> {
        let end = self.segments.last().map_or(0, |last| last.next_offset());
        while let Some(snapshot) = self.snapshots.pop_if(|snapshot| *snapshot > end) {
            remove_if_exists(&self.log.snapshot_path(snapshot))?;
        }
        (self.producers, self.producers_until) = (Producers::default(), 0);
        self.load_snapshot()?;
        for segment in &self.segments {
            if segment.next_offset() > self.producers_until {
                for_each_batch(segment, |header| {
                    if header.base_offset >= self.producers_until {
                        self.producers.on_appended(header, self.now_ms);
                    }
                })?;
            }
        }
        Ok(())
    }
}

/// Shows the headers of a segment to `on_batch`. Some damage, if there is.
fn for_each_batch(
    segment: &Segment,
    mut on_batch: impl FnMut(&BatchHeader),
) -> Result<Option<Damage>> {
    let file = segment.file()?;
    let mut scanner = Scanner::sequential(&file, 0, segment.size());
    let mut from = segment.base_offset;
    loop {
        match scanner.next() {
            Ok(Some(batch)) => {
                on_batch(&batch.header);
                from = batch.header.next_offset();
            }
            Ok(None) => return Ok(None),
            Err(ScanError::Refused(refusal)) => {
                let position = scanner.position();
                let base = segment.base_offset;
                let reason = format!("byte {position} of segment {base}: {refusal}");
                return Ok(Some(Damage { from, segment: base, reason }));
            }
            Err(ScanError::Io(error)) => return Err(Error::io("read", segment.path())(error)),
        }
    }
}

/// Segments that are wholly below the log start were about to be deleted. Which of them a crash has left is chance.
fn drop_below(log: &PartitionLog, start: Offset, files: &mut Files) -> Result<()> {
    let below = files.segments.windows(2).take_while(|pair| pair[1] <= start).count();
    for base in files.segments.drain(..below) {
        remove_segment(&Segment::open_unindexed(&log.path, base, 0)?)?;
    }
    Ok(())
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
                    let base = base_offset(&path);
                    leftovers.first_cleaned = leftovers.first_cleaned.into_iter().chain(base).min();
                }
                unwanted.push(path);
            }
            (Some("swap"), _) => {
                leftovers.swaps.extend(base_offset(&path).map(|base| (base, path)));
            }
            _ => files.is_marked |= path.file_name().is_some_and(|name| name == REPAIR_MARK),
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
