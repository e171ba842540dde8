//! What became of the transactions in a range, read from the batches themselves: exact, and independent of any index.

use std::collections::BTreeMap;

use crate::record::{Batch, DECOMPRESSED_SIZE_MAX, Refusal, records};
use crate::types::{Offset, ProducerId};

/// How a transaction ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    Abort,
    Commit,
}

/// The marker that a control batch holds. `None` for control records of other kinds, and for a batch whose marker
/// compaction has removed.
pub(super) fn marker_of(batch: &Batch<'_>) -> Result<Option<Marker>, Refusal> {
    let records = records(batch, DECOMPRESSED_SIZE_MAX)?;
    let Some(record) = records.iter().next().transpose()? else {
        return Ok(None);
    };
    // A version, then the type.
    Ok(match record.key {
        Some([_, _, 0, 0]) => Some(Marker::Abort),
        Some([_, _, 0, 1]) => Some(Marker::Commit),
        _ => None,
    })
}

/// Of a part of the log that was given batch by batch.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// First offset and marker of each aborted transaction, in the order of the markers.
    aborted: BTreeMap<ProducerId, Vec<(Offset, Offset)>>,
    /// First offsets of the transactions without a marker.
    open: BTreeMap<ProducerId, Offset>,
}

impl Outcomes {
    pub(super) fn add(&mut self, batch: &Batch<'_>) -> Result<(), Refusal> {
        let header = &batch.header;
        if header.is_control() {
            if let Some(marker) = marker_of(batch)?
                && let Some(first) = self.open.remove(&header.producer_id)
                && marker == Marker::Abort
            {
                let aborted = self.aborted.entry(header.producer_id).or_default();
                aborted.push((first, header.base_offset));
            }
        } else if header.is_transactional() {
            self.open.entry(header.producer_id).or_insert(header.base_offset);
        }
        Ok(())
    }

    /// Where the first transaction begins that may still end either way.
    pub(super) fn first_undecided(&self) -> Option<Offset> {
        self.open.values().min().copied()
    }

    /// Whether the transaction of this producer that has a batch at `offset` was aborted.
    pub(super) fn is_aborted(&self, producer_id: ProducerId, offset: Offset) -> bool {
        self.aborted.get(&producer_id).is_some_and(|transactions| {
            let next = transactions.partition_point(|(_, marker)| *marker < offset);
            transactions.get(next).is_some_and(|(first, _)| *first <= offset)
        })
    }
}
