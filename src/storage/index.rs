//! Offset and time indexes, in Kafka's format (kafka-protocol.md 4.1).
//!
//! An index is a file of fixed-size entries and a tail that is not written yet: the active segment's entries stay in
//! memory until there are enough for a write, so that an append is one system call. What a crash takes can be rebuilt
//! from the log. Files are not preallocated and not mapped; a lookup is a binary search by `pread`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Error, Result, fs};
use crate::types::TimestampMs;

pub(super) trait Entry: Copy {
    const SIZE: usize;
    fn encode(self, out: &mut Vec<u8>);
    /// `bytes` holds [`Entry::SIZE`] of them.
    fn decode(bytes: &[u8]) -> Self;
}

/// The batch at `position` ends with this offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OffsetEntry {
    pub(super) relative_offset: u32,
    pub(super) position: u32,
}

/// The largest timestamp so far is in the batch that ends with this offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeEntry {
    pub(super) timestamp_ms: TimestampMs,
    pub(super) relative_offset: u32,
}

const ENTRY: &str = "an entry has its size";

impl Entry for OffsetEntry {
    const SIZE: usize = 8;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            relative_offset: u32::from_be_bytes(bytes[..4].try_into().expect(ENTRY)),
            position: u32::from_be_bytes(bytes[4..8].try_into().expect(ENTRY)),
        }
    }
}

impl Entry for TimeEntry {
    const SIZE: usize = 12;

    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp_ms.to_be_bytes());
        out.extend_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self {
            timestamp_ms: i64::from_be_bytes(bytes[..8].try_into().expect(ENTRY)),
            relative_offset: u32::from_be_bytes(bytes[8..12].try_into().expect(ENTRY)),
        }
    }
}

/// Entries in memory that are worth a write.
const TAIL_MAX: usize = 4096;
/// The binary search ends with one read of this many entries.
const LEAF: usize = 256;

#[derive(Debug)]
pub(super) struct Index<E> {
    on_disk: usize,
    tail: Vec<E>,
    /// The last entry, once somebody asked.
    last: Option<E>,
}

/// Where the answer to a lookup lies.
#[derive(Debug)]
pub(super) enum Found<E> {
    Here(E),
    /// Among the first so many entries of the file, if anywhere. To be searched without holding a lock.
    OnDisk(usize),
}

impl<E: Entry> Index<E> {
    pub(super) fn new() -> Self {
        Self { on_disk: 0, tail: Vec::new(), last: None }
    }

    /// An index whose entries are all in the file; `None` when there is no file, or not one of whole entries.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let size = usize::try_from(path.metadata().ok()?.len()).ok()?;
        let on_disk = size / E::SIZE;
        size.is_multiple_of(E::SIZE).then_some(Self { on_disk, tail: Vec::new(), last: None })
    }

    pub(super) fn count(&self) -> usize {
        self.on_disk + self.tail.len()
    }

    /// Bytes that the file has, or will have.
    pub(super) fn size(&self) -> usize {
        self.count() * E::SIZE
    }

    pub(super) fn push(&mut self, entry: E) {
        self.tail.push(entry);
        self.last = Some(entry);
    }

    pub(super) fn last(&mut self, path: &Path) -> Result<Option<E>> {
        if self.last.is_none() {
            self.last = find_on_disk(path, self.on_disk, |_| true)?;
        }
        Ok(self.last)
    }

    /// The last entry for which `holds`; it holds for none after the first for which it does not.
    pub(super) fn find(&self, holds: impl Fn(&E) -> bool) -> Found<E> {
        match self.tail.partition_point(holds).checked_sub(1) {
            Some(index) => Found::Here(self.tail[index]),
            None => Found::OnDisk(self.on_disk),
        }
    }

    pub(super) fn wants_spill(&self) -> bool {
        self.tail.len() >= TAIL_MAX
    }

    /// Writes the tail. Makes the file even when there is nothing to write.
    pub(super) fn spill(&mut self, path: &Path) -> Result<()> {
        let mut bytes = Vec::with_capacity(self.tail.len() * E::SIZE);
        self.tail.iter().for_each(|entry| entry.encode(&mut bytes));
        fs::write(&fs::open_or_create(path)?, path, &bytes, (self.on_disk * E::SIZE) as u64)?;
        self.on_disk = self.count();
        self.tail = Vec::new();
        Ok(())
    }

    /// Drops the entries from the first for which `keep` does not hold on.
    pub(super) fn truncate(&mut self, path: &Path, keep: impl Fn(&E) -> bool) -> Result<()> {
        let kept = self.tail.partition_point(&keep);
        self.tail.truncate(kept);
        self.last = self.tail.last().copied();
        if kept > 0 || self.on_disk == 0 {
            return Ok(());
        }
        let on_disk = count_on_disk(path, self.on_disk, keep)?;
        if on_disk < self.on_disk {
            self.on_disk = on_disk;
            fs::truncate(&fs::open(path)?, path, (on_disk * E::SIZE) as u64)?;
        }
        Ok(())
    }
}

/// As [`Index::find`], in the first `count` entries of the file.
pub(super) fn find_on_disk<E: Entry>(
    path: &Path,
    count: usize,
    holds: impl Fn(&E) -> bool,
) -> Result<Option<E>> {
    if count == 0 {
        return Ok(None);
    }
    let search = || -> io::Result<Option<E>> {
        let file = File::open(path)?;
        let Some(index) = search(&file, count, &holds)?.checked_sub(1) else {
            return Ok(None);
        };
        // In a damaged index, whose entries do not ascend, a search may end anywhere.
        Ok(read_entries(&file, index, 1)?.into_iter().next().filter(holds))
    };
    search().map_err(Error::io("read", path))
}

fn count_on_disk<E: Entry>(path: &Path, count: usize, holds: impl Fn(&E) -> bool) -> Result<usize> {
    File::open(path).and_then(|file| search(&file, count, holds)).map_err(Error::io("read", path))
}

/// For how many of the first `count` entries `holds`.
fn search<E: Entry>(file: &File, count: usize, holds: impl Fn(&E) -> bool) -> io::Result<usize> {
    let (mut low, mut high) = (0, count);
    while high - low > LEAF {
        let middle = low + (high - low) / 2;
        let entry = read_entries(file, middle, 1)?;
        if entry.first().is_some_and(&holds) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low + read_entries(file, low, high - low)?.partition_point(holds))
}

fn read_entries<E: Entry>(file: &File, from: usize, count: usize) -> io::Result<Vec<E>> {
    let mut bytes = vec![0; count * E::SIZE];
    file.read_exact_at(&mut bytes, (from * E::SIZE) as u64)?;
    Ok(bytes.chunks_exact(E::SIZE).map(E::decode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: usize) -> OffsetEntry {
        let n = u32::try_from(n).unwrap();
        OffsetEntry { relative_offset: n * 10 + 9, position: n * 1000 }
    }

    fn lookup(index: &Index<OffsetEntry>, path: &Path, offset: u32) -> Option<OffsetEntry> {
        match index.find(|entry| entry.relative_offset <= offset) {
            Found::Here(entry) => Some(entry),
            Found::OnDisk(count) => {
                find_on_disk(path, count, |entry: &OffsetEntry| entry.relative_offset <= offset)
                    .unwrap()
            }
        }
    }

    #[test]
    fn lookups_agree_with_a_scan_wherever_the_entries_lie() {
        let dir = tempfile::tempdir().unwrap();
        for (total, spilled) in [(0, 0), (1, 0), (1, 1), (700, 0), (700, 699), (700, 700), (700, 1)]
        {
            let path = dir.path().join(format!("{total}-{spilled}.index"));
            let mut index = Index::new();
            for n in 0..total {
                if n == spilled {
                    index.spill(&path).unwrap();
                }
                index.push(entry(n));
            }
            if spilled == total {
                index.spill(&path).unwrap();
            }
            for offset in 0..7_100 {
                let expected = (0..total).map(entry).take_while(|e| e.relative_offset <= offset);
                assert_eq!(lookup(&index, &path, offset), expected.last(), "{total} {spilled}");
            }
            for kept in [total, total.saturating_sub(1), total / 2, 0] {
                index
                    .truncate(&path, |e| e.position < u32::try_from(kept).unwrap() * 1000)
                    .unwrap();
                assert_eq!(index.count(), kept);
                assert_eq!(index.last(&path).unwrap(), kept.checked_sub(1).map(entry));
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut offsets = Index::new();
        offsets.push(OffsetEntry { relative_offset: 0x0102, position: 0x0304_0506 });
        offsets.spill(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(Index::<OffsetEntry>::open(&path).unwrap().count(), 1);
        assert!(Index::<TimeEntry>::open(&path).is_none(), "not whole entries");
        let mut times = Index::new();
        times.push(TimeEntry { timestamp_ms: 0x0102_0304, relative_offset: 5 });
        times.spill(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 5]);
    }
}
