//! Checks a partition directory: every batch, and everything beside the batches against them.
//!
//! One pass over the log, in order. What lies beside it is compared as the pass goes by.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::checkpoint::{OffsetMap, parse_offsets};
use super::super::fs::read_if_exists;
use super::super::log::{EPOCHS, PARTITION_METADATA};
use super::super::log_dir::{CLEAN_ENDS, CLEAN_SHUTDOWN, LOG_STARTS, RECOVERY_POINTS};
use super::super::producers::Producers;
use super::super::segment::file_name;
use super::super::{Error, Result};
use super::content::{Content, read};
use super::files::PartitionFiles;
use super::indexes::Indexes;
use super::walk::LogFile;
use crate::record::{Batch, BatchHeader, DECOMPRESSED_SIZE_MAX, Refusal, records};
use crate::types::{LeaderEpoch, Offset, ProducerId, TopicPartition};

/// What is at fault, and so what can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Records are lost or cannot be read. Only another replica has them.
    Records,
    /// The end of the log, beyond what was flushed, is torn. Opening cuts it off.
    Tail,
    /// An index disagrees with its log. It can be made anew.
    Index,
    /// `leader-epoch-checkpoint` disagrees with the batches. It can be made anew.
    Epochs,
    /// A producer snapshot disagrees with the batches. Without it, the log is replayed.
    Producers,
    /// `partition.metadata` does not say which topic this is.
    Identity,
}

impl Fault {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Tail => "tail",
            Self::Index => "index",
            Self::Epochs => "epochs",
            Self::Producers => "producers",
            Self::Identity => "identity",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub fault: Fault,
    pub path: PathBuf,
    /// In the file, in bytes.
    pub position: Option<u64>,
    pub reason: String,
}

/// What was looked at, and what is wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    pub findings: Vec<Finding>,
    pub files: PartitionFiles,
    pub start_offset: Offset,
    pub end_offset: Offset,
    pub batches: u64,
    pub records: u64,
    pub size: u64,
    /// Transactions with records that must not be seen by whoever reads committed ones only: aborted, or not ended.
    pub uncommitted: u64,
}

/// More are not listed, but for the first of a kind; whoever has that many needs another replica.
const FINDINGS_MAX: usize = 1000;

/// Checks one partition directory. The checkpoints of its log directory, if they are there, say what was flushed.
pub fn verify(dir: &Path) -> Result<Verified> {
    let files = PartitionFiles::list(dir)?;
    let mut pass = Pass::new(dir, files)?;
    for index in 0..pass.seen.files.segments.len() {
        pass.segment(index)?;
    }
    pass.finish();
    Ok(pass.seen)
}

struct Pass<'d> {
    dir: &'d Path,
    seen: Verified,
    recovery_point: Offset,
    is_clean: bool,
    /// Offsets are missing inside of batches or between them: the log was compacted.
    is_sparse: bool,
    /// Segments before which offsets are missing, from this one on. Not lost if the log was compacted.
    gaps: Vec<(PathBuf, Offset)>,
    epochs: Vec<(LeaderEpoch, Offset)>,
    last_epoch: LeaderEpoch,
    epoch_found: bool,
    producers: Producers,
    /// How many of the snapshots have been compared.
    snapshots_done: usize,
    /// First offsets of transactions whose end was not seen.
    open: BTreeMap<ProducerId, Offset>,
}

impl<'d> Pass<'d> {
    fn new(dir: &'d Path, files: PartitionFiles) -> Result<Self> {
        let parent = dir.parent().filter(|_| dir.file_name().is_some()).unwrap_or(Path::new("."));
        let name = dir.file_name().and_then(|name| name.to_str()).and_then(TopicPartition::parse);
        let offset = |file: &str| -> Result<Option<Offset>> {
            let content = read_if_exists(&parent.join(file))?.unwrap_or_default();
            let offsets: OffsetMap = parse_offsets(&content).unwrap_or_default();
            Ok(name.as_ref().and_then(|name| offsets.get(name)).copied())
        };
        let first = files.segments.first().copied().unwrap_or(0);
        let start_offset = offset(LOG_STARTS)?.unwrap_or(0).max(first);
        let mut pass = Self {
            dir,
            recovery_point: offset(RECOVERY_POINTS)?.unwrap_or(0),
            is_clean: parent.join(CLEAN_SHUTDOWN).exists(),
            is_sparse: offset(CLEAN_ENDS)?.is_some(),
            gaps: Vec::new(),
            epochs: Vec::new(),
            last_epoch: LeaderEpoch::NONE,
            epoch_found: false,
            producers: Producers::default(),
            snapshots_done: 0,
            open: BTreeMap::new(),
            seen: Verified { files, start_offset, end_offset: start_offset, ..Verified::default() },
        };
        let metadata = dir.join(PARTITION_METADATA);
        if let Err(error) = read(&metadata) {
            pass.find_error(Fault::Identity, &metadata, &error);
        }
        let epochs = dir.join(EPOCHS);
        match read(&epochs) {
            Ok(Content::LeaderEpochs(entries)) => pass.epochs = entries,
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                pass.find_error(Fault::Epochs, &epochs, &error);
                pass.epoch_found = true;
            }
            Ok(_) => {}
        }
        Ok(pass)
    }

    fn find(
        &mut self,
        fault: Fault,
        path: &Path,
        position: Option<u64>,
        reason: impl Into<String>,
    ) {
        let findings = &mut self.seen.findings;
        if findings.len() < FINDINGS_MAX || !findings.iter().any(|found| found.fault == fault) {
            let (path, reason) = (path.to_path_buf(), reason.into());
            findings.push(Finding { fault, path, position, reason });
        }
    }

    fn find_error(&mut self, fault: Fault, path: &Path, error: &Error) {
        let reason = match error {
            Error::Malformed { reason, .. } => reason.clone(),
            Error::Io { source, .. } => source.to_string(),
            error => error.to_string(),
        };
        self.find(fault, path, None, reason);
    }

    fn has_lost_records(&self) -> bool {
        self.seen.findings.iter().any(|finding| finding.fault <= Fault::Tail)
    }

    fn segment(&mut self, index: usize) -> Result<()> {
        let bases = &self.seen.files.segments;
        let (base, is_last) = (bases[index], index + 1 == bases.len());
        let path = self.dir.join(file_name(base, "log"));
        let expected = self.seen.end_offset;
        if index > 0 && base < expected {
            let reason = format!("begins below {expected}, where the segment before it ends");
            self.find(Fault::Records, &path, Some(0), reason);
        }
        let witness = self.seen.files.snapshots.binary_search(&expected).is_ok();
        if index > 0 && base > expected && !witness {
            self.gaps.push((path.clone(), expected));
        }
        let log = LogFile::open(&path)?;
        self.seen.size += log.size();
        let mut indexes = Indexes::load(&path, base);
        let mut next = base;
        let mut aborts = Vec::new();
        let mut last_refused = None;
        let (position, stopped) = log.walk(|position, batch| {
            let header = batch.header;
            if header.base_offset < next || header.last_offset() - base > i64::from(i32::MAX) {
                let reason = format!(
                    "offsets {} to {} do not follow on {next}",
                    header.base_offset,
                    header.last_offset()
                );
                self.find(Fault::Records, &path, Some(position), reason);
                return Ok::<(), Error>(());
            }
            self.is_sparse |= header.base_offset > next && next > base;
            next = header.next_offset();
            self.compare_snapshots(header.base_offset);
            self.seen.batches += 1;
            let offered = batch.check_crc().and_then(|()| self.records(&batch, &mut aborts));
            last_refused = None;
            match offered {
                Ok(()) => {
                    indexes.on_batch(position, &header);
                    self.producers.on_appended(&header, 0);
                    self.epoch(&path, position, &header, is_last);
                }
                Err(refusal) => {
                    let offset = header.base_offset;
                    last_refused = Some((position, offset, refusal));
                    indexes.on_unreadable(position, &header);
                }
            }
            if let Some((position, offset, refusal)) = &last_refused
                && !(is_last && position + header.size as u64 == log.size())
            {
                let reason = format!("batch at offset {offset}: {refusal}");
                self.find(Fault::Records, &path, Some(*position), reason);
                last_refused = None;
            }
            Ok(())
        })?;
        let torn = last_refused.or_else(|| stopped.map(|refusal| (position, next, refusal)));
        let is_whole = torn.is_none();
        if let Some((position, offset, refusal)) = torn {
            self.torn(&path, position, offset, &refusal, is_last, log.size());
        }
        let must_be_complete = is_whole && (!is_last || self.is_clean);
        for (path, position, reason) in indexes.finish(must_be_complete && log.size() > 0) {
            self.find(Fault::Index, &path, position, reason);
        }
        self.transactions(&path, &aborts);
        self.seen.end_offset = next.max(self.seen.end_offset);
        Ok(())
    }

    /// What cannot be a batch, up to the end of the segment. Only beyond what was flushed is that what a crash leaves.
    fn torn(
        &mut self,
        path: &Path,
        position: u64,
        offset: Offset,
        refusal: &Refusal,
        is_last: bool,
        size: u64,
    ) {
        let is_tail = is_last && !self.is_clean && offset >= self.recovery_point;
        let fault = if is_tail { Fault::Tail } else { Fault::Records };
        let rest = size - position;
        let reason =
            format!("no batch in the last {rest} bytes, from offset {offset} on: {refusal}");
        self.find(fault, path, Some(position), reason);
    }

    fn records(
        &mut self,
        batch: &Batch<'_>,
        aborts: &mut Vec<(ProducerId, Offset)>,
    ) -> Result<(), Refusal> {
        let header = &batch.header;
        let mut next = header.base_offset;
        let mut count = 0;
        let mut is_abort = false;
        let body = records(batch, DECOMPRESSED_SIZE_MAX)?;
        for record in body.iter() {
            let record = record?;
            if record.offset < next || record.offset > header.last_offset() {
                return Err(Refusal::Corrupt("offsets of records do not ascend"));
            }
            next = record.offset + 1;
            count += 1;
            is_abort = record.key.is_some_and(|key| key == ABORT_KEY);
        }
        if i64::from(header.record_count) != count {
            return Err(Refusal::Corrupt("fewer records than it says"));
        }
        self.is_sparse |= count != i64::from(header.last_offset_delta) + 1;
        self.seen.records += count.cast_unsigned();
        if header.is_control() && header.is_transactional() {
            let is_open = self.open.remove(&header.producer_id).is_some();
            if is_abort && is_open {
                self.seen.uncommitted += 1;
                aborts.push((header.producer_id, header.base_offset));
            }
        } else if header.is_transactional() {
            self.open.entry(header.producer_id).or_insert(header.base_offset);
        }
        Ok(())
    }

    /// The epoch that the checkpoint says for the batch. What is newer than the checkpoint stands in the last segment only.
    fn epoch(&mut self, log: &Path, position: u64, header: &BatchHeader, is_last: bool) {
        let found = header.leader_epoch;
        if found < self.last_epoch {
            let reason = format!("leader epoch {found} after {}", self.last_epoch);
            self.find(Fault::Records, log, Some(position), reason);
        }
        self.last_epoch = found.max(self.last_epoch);
        let above = self.epochs.partition_point(|entry| entry.1 <= header.last_offset());
        let stated = above.checked_sub(1).map(|at| self.epochs[at].0);
        let lags =
            is_last && !self.is_clean && self.epochs.last().is_none_or(|last| last.0 < found);
        let is_below_start = header.last_offset() < self.seen.start_offset;
        if stated == Some(found)
            || found < LeaderEpoch(0)
            || lags
            || is_below_start
            || self.epoch_found
        {
            return;
        }
        self.epoch_found = true;
        let stated = stated.map_or("nothing".to_owned(), |stated| format!("epoch {stated}"));
        let reason =
            format!("says {stated} for offset {}, its batch epoch {found}", header.base_offset);
        self.find(Fault::Epochs, &self.dir.join(EPOCHS), None, reason);
    }

    /// Compares the snapshots that cover what was read, which ends at or before `offset`.
    fn compare_snapshots(&mut self, offset: Offset) {
        while let Some(&at) = self.seen.files.snapshots.get(self.snapshots_done)
            && at <= offset
        {
            self.snapshots_done += 1;
            let path = self.dir.join(file_name(at, "snapshot"));
            let decoded = std::fs::read(&path).map(|content| Producers::decode(&content, at, 0));
            let reason = match decoded {
                Err(error) => Some(error.to_string()),
                Ok(None) => Some("not a whole snapshot, or its checksum does not match".to_owned()),
                // The batches of a producer may be gone by compaction, or lost.
                Ok(Some(_))
                    if self.is_sparse || self.has_lost_records() || !self.gaps.is_empty() =>
                {
                    None
                }
                Ok(Some(stated)) => {
                    let first = self.seen.files.segments.first().copied().unwrap_or(at);
                    self.producers.disagreement(&stated, first)
                }
            };
            if let Some(reason) = reason {
                self.find(Fault::Producers, &path, None, reason);
            }
        }
    }

    /// The transaction index of a segment against its markers. As long as transactions are not served, ours have none.
    fn transactions(&mut self, log: &Path, aborts: &[(ProducerId, Offset)]) {
        let path = log.with_extension("txnindex");
        let stated = match read(&path) {
            Ok(Content::Aborted(stated)) => stated,
            Err(error) if error.is_not_found() => return,
            Err(error) => return self.find_error(Fault::Index, &path, &error),
            Ok(_) => return,
        };
        let missing = aborts.iter().find(|(producer_id, offset)| {
            !stated.iter().any(|a| a.producer_id == *producer_id && a.last_offset == *offset)
        });
        if let Some((producer_id, offset)) = missing {
            let reason = format!("does not list the abort of producer {producer_id} at {offset}");
            self.find(Fault::Index, &path, None, reason);
        }
        if !stated.is_sorted_by(|a, b| a.last_offset < b.last_offset) {
            self.find(Fault::Index, &path, None, "entries do not ascend");
        }
    }

    fn finish(&mut self) {
        if !self.is_sparse {
            for (path, from) in std::mem::take(&mut self.gaps) {
                let reason = format!("offsets from {from} on are missing before it");
                self.find(Fault::Records, &path, Some(0), reason);
            }
        }
        let end = self.seen.end_offset;
        self.seen.uncommitted += self.open.len() as u64;
        self.compare_snapshots(end);
        let beyond = self.seen.files.snapshots[self.snapshots_done..].to_vec();
        for offset in beyond {
            let path = self.dir.join(file_name(offset, "snapshot"));
            self.find(
                Fault::Producers,
                &path,
                None,
                format!("is of offset {offset}, the log ends at {end}"),
            );
        }
        if end < self.recovery_point && !self.has_lost_records() {
            let reason = format!("ends at {end}, but {} was flushed", self.recovery_point);
            self.find(Fault::Records, self.dir, None, reason);
        }
    }
}

/// Version 0, type 0.
const ABORT_KEY: &[u8] = &[0; 4];
