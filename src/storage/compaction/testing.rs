//! Logs that are compacted by hand, by a clock that is given, and what a reader makes of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::log::View;
use super::super::test_support::{Disk, read_all, wait_until};
use super::choice::{Dirt, Verdict, judge};
use super::pace::Pace;
use super::pass::{Done, Stop, clean};
use super::transactions::{Marker, marker_of};
use super::{Compaction, CompactionConfig};
use crate::metadata::config::{CleanupPolicy, Durability, TopicConfig};
use crate::record::{BatchBuilder, Compression, assign_offset, batches, records};
use crate::storage::PartitionLog;
use crate::types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

pub(super) const COMPACT: CleanupPolicy = CleanupPolicy { compact: true, delete: false };
/// Room for every key of a test.
pub(super) const LARGE_MAP: usize = 1 << 20;

pub(super) fn compacted(segment_bytes: u32) -> TopicConfig {
    TopicConfig {
        cleanup_policy: COMPACT,
        segment_bytes,
        index_interval_bytes: 100,
        delete_retention_ms: 1_000,
        ..TopicConfig::default()
    }
}

pub(super) fn without_thread() -> CompactionConfig {
    CompactionConfig { enabled: false, ..CompactionConfig::default() }
}

/// A log directory without a cleaner thread.
pub(super) fn disk() -> Disk {
    disk_with(without_thread())
}

pub(super) fn disk_with(config: CompactionConfig) -> Disk {
    let mut disk = closed_disk(config);
    assert!(disk.open().is_empty());
    disk
}

/// In memory where that is possible: compaction syncs a lot.
pub(super) fn closed_disk(config: CompactionConfig) -> Disk {
    let memory = std::path::Path::new("/dev/shm");
    let temp = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    Disk::closed(temp.unwrap(), Durability::PageCache, config)
}

pub(super) type KeyValue<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

#[derive(Debug, Clone, Copy)]
pub(super) struct Producer {
    pub(super) id: ProducerId,
    pub(super) sequence: i32,
    pub(super) is_transactional: bool,
}

pub(super) fn batch_of(
    compression: Compression,
    timestamp_ms: TimestampMs,
    producer: Option<Producer>,
    pairs: &[KeyValue<'_>],
) -> Vec<u8> {
    let mut builder = BatchBuilder::new(compression);
    if let Some(producer) = producer {
        builder.set_producer(producer.id, 0, producer.sequence);
    }
    for (index, (key, value)) in pairs.iter().enumerate() {
        builder.push(timestamp_ms + index as i64 % 3, *key, *value, &[("h", Some(b"v"))]);
    }
    let bytes = builder.build();
    match producer {
        Some(Producer { is_transactional: true, .. }) => with_attributes(bytes, 0x10),
        _ => bytes,
    }
}

pub(super) fn marker(producer_id: ProducerId, timestamp_ms: TimestampMs, commits: bool) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Compression::None);
    builder.set_producer(producer_id, 0, -1);
    builder.push(timestamp_ms, Some(&[0, 0, 0, u8::from(commits)]), Some(&[0; 6]), &[]);
    with_attributes(builder.build(), 0x30)
}

fn with_attributes(mut bytes: Vec<u8>, attributes: u8) -> Vec<u8> {
    bytes[22] |= attributes;
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

/// Appends a batch as it would come from a leader. Returns its base offset.
pub(super) fn append_raw(log: &PartitionLog, mut bytes: Vec<u8>) -> Offset {
    let base = log.end_offset();
    assign_offset(&mut bytes, base, LeaderEpoch(log.latest_epoch().0.max(0)));
    log.append_as_follower(&bytes).unwrap();
    base
}

pub(super) fn put(log: &PartitionLog, timestamp_ms: TimestampMs, key: &str, value: Option<&str>) {
    let pair = (Some(key.as_bytes()), value.map(str::as_bytes));
    append_raw(log, batch_of(Compression::None, timestamp_ms, None, &[pair]));
}

/// Brings everything that is complete to the disk, and lets the high watermark follow.
pub(super) fn settle(log: &Arc<PartitionLog>) {
    log.set_high_watermark_checkpoint(log.end_offset());
    flush_sealed(log);
}

pub(super) fn flush_sealed(log: &Arc<PartitionLog>) {
    // The housekeeper may be at it, too.
    wait_until("complete segments are on disk", || {
        log.sync_sealed().unwrap();
        let segments = log.view().segments;
        let complete = segments.len().checked_sub(2).map(|last| segments[last].next_offset());
        complete.is_none_or(|end| log.recovery_point() >= end)
    });
    log.dir().write_recovery_points().unwrap();
}

/// As [`judge`] sees it; however little is dirty.
pub(super) fn dirt_of(log: &PartitionLog, now_ms: TimestampMs) -> Dirt {
    let config = log.config();
    let eager = TopicConfig { min_cleanable_dirty_ppm: 0, ..(*config).clone() };
    log.update_config(Arc::new(eager));
    let verdict = judge(log, None, now_ms).unwrap();
    log.update_config(config);
    match verdict {
        Verdict::Clean(dirt) | Verdict::Wait { dirt: Some(dirt), .. } => dirt,
        other => panic!("nothing to clean: {other:?}"),
    }
}

/// One pass, whatever the share of what is dirty.
pub(super) fn pass(
    log: &Arc<PartitionLog>,
    now_ms: TimestampMs,
    map_bytes_max: usize,
) -> Result<Done, Stop> {
    let dirt = dirt_of(log, now_ms);
    let shared = Compaction::new(CompactionConfig::default());
    let done = clean(log, &dirt, now_ms, map_bytes_max, &mut Pace::new(&shared))?;
    log.set_clean_end(&dirt.view, done.clean_end);
    Ok(done)
}

/// A record as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) offset: Offset,
    pub(super) timestamp_ms: TimestampMs,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: usize,
}

/// What a reader of committed records gets, and what it does not get because it was aborted. Records of open
/// transactions are in neither.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) committed: Vec<Entry>,
    pub(super) aborted: Vec<Entry>,
    pub(super) markers: Vec<Offset>,
}

impl Reading {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut reading = Self::default();
        let mut open: BTreeMap<ProducerId, Vec<Entry>> = BTreeMap::new();
        let mut end = 0;
        for batch in batches(bytes) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            let header = batch.header;
            assert!(header.base_offset >= end, "offsets ascend");
            end = header.next_offset();
            if header.is_control() {
                let waiting = open.remove(&header.producer_id).unwrap_or_default();
                match marker_of(&batch).unwrap() {
                    Some(Marker::Commit) => reading.committed.extend(waiting),
                    Some(Marker::Abort) => reading.aborted.extend(waiting),
                    None => assert!(waiting.is_empty(), "a transaction without its marker"),
                }
                reading.markers.extend((header.record_count > 0).then_some(header.base_offset));
                continue;
            }
            let records = records(&batch, 1 << 20).unwrap();
            let entries: Vec<Entry> = records
                .iter()
                .map(|record| record.unwrap())
                .map(|record| Entry {
                    offset: record.offset,
                    timestamp_ms: record.timestamp_ms,
                    key: record.key.map(<[u8]>::to_vec),
                    value: record.value.map(<[u8]>::to_vec),
                    headers: record.headers.len(),
                })
                .collect();
            if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
                assert!(first.offset >= header.base_offset && last.offset < end);
                let newest = entries.iter().map(|entry| entry.timestamp_ms).max();
                assert_eq!(newest, Some(header.max_timestamp_ms));
            }
            if header.is_transactional() {
                open.entry(header.producer_id).or_default().extend(entries);
            } else {
                reading.committed.extend(entries);
            }
        }
        reading.committed.sort_by_key(|entry| entry.offset);
        reading
    }

    pub(super) fn of_log(log: &PartitionLog) -> Self {
        Self::of(&read_all(log, log.start_offset()))
    }

    /// The last value of each key.
    pub(super) fn table(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut table = BTreeMap::new();
        for entry in &self.committed {
            match (&entry.key, &entry.value) {
                (Some(key), Some(value)) => drop(table.insert(key.clone(), value.clone())),
                (Some(key), None) => drop(table.remove(key)),
                (None, _) => {}
            }
        }
        table
    }
}

/// The segments of a log, as pairs of base offset and size.
pub(super) fn shape(view: &View) -> Vec<(Offset, u64)> {
    view.segments.iter().map(|segment| (segment.base_offset, segment.size())).collect()
}
