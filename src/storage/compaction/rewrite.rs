//! A group of segments becomes one. Nothing is written when nothing would change.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::segment::Segment;
use super::super::{Error, Result, fs};
use super::chunks::{CHUNK_SIZE, Chunks};
use super::pass::{Pass, Stop};
use super::rules::{Fate, Rules};
use crate::record::batches;
use crate::types::Offset;

/// What the group becomes.
struct Output {
    segment: Segment,
    /// Not written yet.
    buffer: Vec<u8>,
}

impl Pass<'_, '_> {
    pub(super) fn rewrite(
        &mut self,
        group: &[Arc<Segment>],
        rules: &mut Rules,
    ) -> Result<(), Stop> {
        let Some(last) = group.iter().rfind(|segment| segment.size() > 0) else {
            return Ok(());
        };
        let mut output = None;
        let copied = self.copy(group, last, rules, &mut output);
        let Some(output) = output else {
            return copied;
        };
        let paths = output.segment.paths();
        let swapped = copied.and_then(|()| self.finish(group, output, rules));
        if !matches!(swapped, Ok(true) | Err(Stop::Failed(_))) {
            let removed = paths.iter().try_for_each(|path| fs::remove_if_exists(path));
            removed.map_err(|error| self.on_write_error(error))?;
        }
        if swapped? { Ok(()) } else { Err(Stop::Interrupted) }
    }

    /// Copies what stays. The output begins with the first change.
    fn copy(
        &mut self,
        group: &[Arc<Segment>],
        last: &Arc<Segment>,
        rules: &mut Rules,
        output: &mut Option<Output>,
    ) -> Result<(), Stop> {
        if group.len() > 1 {
            *output = Some(self.begin(group, rules)?);
        }
        for segment in group {
            let mut chunks = Chunks::new(segment, 0).map_err(|error| self.on_read_error(error))?;
            let size = segment.size();
            let mut position = 0;
            while let Some(bytes) = chunks.next().map_err(|error| self.on_read_error(error))? {
                self.on_read(bytes.len())?;
                for batch in batches(bytes) {
                    let batch = batch?;
                    batch.check_crc()?;
                    let start = position;
                    position += batch.header.size as u64;
                    let holds_end = position == size && Arc::ptr_eq(segment, last);
                    let fate = rules.judge(&batch, holds_end)?;
                    if output.is_none() && fate != Fate::Keep {
                        let begun = output.insert(self.begin(group, rules)?);
                        self.copy_prefix(segment, start, begun)?;
                    }
                    let Some(output) = output.as_mut() else {
                        continue;
                    };
                    match fate {
                        Fate::Keep => output.buffer.extend_from_slice(batch.bytes),
                        Fate::Replace(bytes) => output.buffer.extend_from_slice(&bytes),
                        Fate::Drop => {}
                    }
                    if output.buffer.len() >= CHUNK_SIZE {
                        self.write(output)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&self, group: &[Arc<Segment>], rules: &Rules) -> Result<Output, Stop> {
        let segment = Segment::create_cleaned(self.log.path(), group[0].base_offset, rules.now_ms)
            .map_err(|error| self.on_write_error(error))?;
        Ok(Output { segment, buffer: Vec::with_capacity(CHUNK_SIZE + CHUNK_SIZE / 4) })
    }

    /// What comes before the first change, which is at `end`.
    fn copy_prefix(
        &mut self,
        segment: &Segment,
        end: u64,
        output: &mut Output,
    ) -> Result<(), Stop> {
        let mut chunks = Chunks::new(segment, 0).map_err(|error| self.on_read_error(error))?;
        while chunks.position() < end {
            let left = usize::try_from(end - chunks.position()).unwrap_or(usize::MAX);
            let Some(bytes) = chunks.next().map_err(|error| self.on_read_error(error))? else {
                break;
            };
            self.on_read(bytes.len())?;
            output.buffer.extend_from_slice(&bytes[..bytes.len().min(left)]);
            self.write(output)?;
        }
        Ok(())
    }

    fn write(&mut self, output: &mut Output) -> Result<(), Stop> {
        output
            .segment
            .append(&output.buffer, &self.config)
            .map_err(|error| self.on_write_error(error))?;
        self.on_written(output.buffer.len())?;
        output.buffer.clear();
        Ok(())
    }

    /// Makes the output durable and swaps it in. False when the log is not what it was.
    fn finish(
        &mut self,
        group: &[Arc<Segment>],
        mut output: Output,
        rules: &mut Rules,
    ) -> Result<bool, Stop> {
        self.write(&mut output)?;
        let kept_aborts = std::mem::take(&mut rules.kept_aborts);
        write_transaction_index(group, &output.segment, &kept_aborts)
            .and_then(|()| output.segment.seal())
            .and_then(|()| {
                output.segment.paths().iter().try_for_each(|path| fs::sync_if_exists(path))
            })
            .and_then(|()| self.log.swap_in(self.view, group, output.segment))
            .map_err(|error| self.on_write_error(error))
    }

    /// Takes the directory offline, unless the partition was deleted meanwhile.
    fn on_write_error(&self, error: Error) -> Stop {
        if self.log.is_gone() || error.is_resource_limit() {
            return Stop::Interrupted;
        }
        Stop::Failed(self.log.dir().fail(error))
    }
}

/// Of the aborted transactions that the segments' indexes list, those whose markers stayed.
fn write_transaction_index(
    group: &[Arc<Segment>],
    output: &Segment,
    kept_aborts: &BTreeSet<Offset>,
) -> Result<()> {
    /// Version, producer id, first offset; then the offset of the marker.
    const MARKER_AT: usize = 18;
    const ENTRY_SIZE: usize = 34;
    let mut kept = Vec::new();
    for segment in group {
        let entries = fs::read_if_exists(&segment.transaction_index_path())?.unwrap_or_default();
        for entry in entries.chunks_exact(ENTRY_SIZE) {
            let marker = entry[MARKER_AT..].first_chunk().map(|at| Offset::from_be_bytes(*at));
            if marker.is_some_and(|marker| kept_aborts.contains(&marker)) {
                kept.extend_from_slice(entry);
            }
        }
    }
    if kept.is_empty() {
        return Ok(());
    }
    let path = output.transaction_index_path();
    fs::write(&fs::create(&path)?, &path, &kept, 0)
}
