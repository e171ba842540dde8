//! Counts over a partition's batches, without opening them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::segment::file_name;
use super::super::{Error, Result};
use super::files::PartitionFiles;
use super::walk::LogFile;
use crate::types::{LeaderEpoch, Offset, ProducerId, TimestampMs};

/// Sums over some batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    pub batches: u64,
    pub records: u64,
    pub size: u64,
}

impl Tally {
    fn add(&mut self, records: i32, size: usize) {
        self.batches += 1;
        self.records += u64::try_from(records).unwrap_or(0);
        self.size += size as u64;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentStats {
    pub base_offset: Offset,
    pub end_offset: Offset,
    pub tally: Tally,
    /// `None` without a batch.
    pub max_timestamp_ms: Option<TimestampMs>,
}

/// Of a whole partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    pub segments: Vec<SegmentStats>,
    pub total: Tally,
    /// Smallest and largest batch, in bytes.
    pub batch_sizes: Option<(usize, usize)>,
    /// By the number of the codec.
    pub codecs: BTreeMap<u8, Tally>,
    /// Smallest and largest of the batches' largest timestamps.
    pub timestamps_ms: Option<(TimestampMs, TimestampMs)>,
    pub control_batches: u64,
    pub transactional_batches: u64,
    pub producers: BTreeSet<ProducerId>,
    /// With the offset of the first batch of each.
    pub leader_epochs: BTreeMap<LeaderEpoch, Offset>,
    /// Bytes at the end of segments that hold no batch.
    pub unreadable_size: u64,
}

/// Reads the headers of all batches in a partition directory.
pub fn stats(dir: &Path) -> Result<Stats> {
    let mut stats = Stats::default();
    for base_offset in PartitionFiles::list(dir)?.segments {
        let log = LogFile::open(&dir.join(file_name(base_offset, "log")))?;
        let mut segment = SegmentStats {
            base_offset,
            end_offset: base_offset,
            tally: Tally::default(),
            max_timestamp_ms: None,
        };
        let (end, _) = log.walk(|_, batch| {
            let header = batch.header;
            let (count, size) = (header.record_count, header.size);
            for tally in [
                &mut segment.tally,
                &mut stats.total,
                stats.codecs.entry(header.codec()).or_default(),
            ] {
                tally.add(count, size);
            }
            segment.end_offset = header.next_offset();
            let at_ms = header.max_timestamp_ms;
            segment.max_timestamp_ms = segment.max_timestamp_ms.max(Some(at_ms));
            let (low, high) = stats.timestamps_ms.unwrap_or((at_ms, at_ms));
            stats.timestamps_ms = Some((low.min(at_ms), high.max(at_ms)));
            let (low, high) = stats.batch_sizes.unwrap_or((size, size));
            stats.batch_sizes = Some((low.min(size), high.max(size)));
            stats.control_batches += u64::from(header.is_control());
            stats.transactional_batches += u64::from(header.is_transactional());
            if header.producer_id >= 0 {
                stats.producers.insert(header.producer_id);
            }
            stats.leader_epochs.entry(header.leader_epoch).or_insert(header.base_offset);
            Ok::<(), Error>(())
        })?;
        stats.unreadable_size += log.size() - end;
        stats.segments.push(segment);
    }
    Ok(stats)
}
