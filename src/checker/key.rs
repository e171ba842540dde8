//! One key: which values its offsets hold, by all accounts, and what that says about the log.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::history::{Outcome, Poll, Send};
use super::report::{AnomalyKind, Findings};

type Value = u64;
type Offset = i64;

/// All that was said about one key.
#[derive(Debug, Default)]
pub(super) struct KeyHistory {
    sends: HashMap<Value, Sent>,
    /// By every account: acknowledgements and polls.
    values_at: BTreeMap<Offset, BTreeSet<Value>>,
    /// Those that were polled.
    polled: BTreeMap<Value, BTreeSet<Offset>>,
    unreadable: BTreeSet<Offset>,
    /// Of each consumer, from seek to seek.
    reads: BTreeMap<u32, Vec<Read>>,
    read_to: Offset,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    process: u32,
    outcome: Outcome,
    offset: Option<Offset>,
}

#[derive(Debug, Clone, Copy)]
enum Read {
    Seek(Offset),
    Record(Offset),
}

impl KeyHistory {
    pub(super) fn on_send(&mut self, send: &Send) {
        let offset = send.offset.filter(|offset| *offset >= 0 && send.outcome == Outcome::Ok);
        let sent = Sent { process: send.process, outcome: send.outcome, offset };
        self.sends.insert(send.value, sent);
        if let Some(offset) = offset {
            self.values_at.entry(offset).or_default().insert(send.value);
        }
    }

    pub(super) fn on_seek(&mut self, process: u32, offset: Offset) {
        self.reads.entry(process).or_default().push(Read::Seek(offset));
    }

    pub(super) fn on_poll(&mut self, poll: &Poll) {
        let reads = self.reads.entry(poll.process).or_default();
        for &(offset, value) in &poll.records {
            reads.push(Read::Record(offset));
            match value {
                Some(value) => {
                    self.values_at.entry(offset).or_default().insert(value);
                    self.polled.entry(value).or_default().insert(offset);
                }
                None => {
                    self.unreadable.insert(offset);
                }
            }
        }
        self.read_to = self.read_to.max(poll.next_offset);
    }

    /// Whether some consumer came as far as `end`.
    pub(super) fn is_read_to(&self, end: Offset) -> bool {
        self.read_to >= end
    }

    pub(super) fn judge(&self, key: u32, findings: &mut Findings) {
        self.judge_offsets(key, findings);
        self.judge_values(key, findings);
        self.judge_writers(key, findings);
        self.judge_readers(key, findings);
    }

    fn judge_offsets(&self, key: u32, findings: &mut Findings) {
        for (offset, values) in self.values_at.iter().filter(|(_, values)| values.len() > 1) {
            let sentence = format!("key {key} offset {offset} holds {values:?}");
            findings.add(AnomalyKind::InconsistentOffset, sentence);
        }
        for offset in &self.unreadable {
            let sentence = format!("key {key} offset {offset} holds what nobody sends");
            findings.add(AnomalyKind::Unreadable, sentence);
        }
    }

    fn judge_values(&self, key: u32, findings: &mut Findings) {
        let mut offsets_of: BTreeMap<Value, BTreeSet<Offset>> = BTreeMap::new();
        for (offset, values) in &self.values_at {
            for value in values {
                offsets_of.entry(*value).or_default().insert(*offset);
            }
        }
        for (value, offsets) in offsets_of.iter().filter(|(_, offsets)| offsets.len() > 1) {
            let sentence = format!("key {key} value {value} is at offsets {offsets:?}");
            findings.add(AnomalyKind::Duplicate, sentence);
        }
        for value in self.polled.keys() {
            match self.sends.get(value).map(|sent| sent.outcome) {
                None => {
                    let sentence = format!("key {key} value {value} was polled and never sent");
                    findings.add(AnomalyKind::Phantom, sentence);
                }
                Some(Outcome::Failed) => {
                    let sentence =
                        format!("key {key} value {value} was polled although its send failed");
                    findings.add(AnomalyKind::AbortedRead, sentence);
                }
                Some(Outcome::Ok | Outcome::Unknown) => {}
            }
        }
        // By its earliest place each: what moved back says nothing about what readers have passed.
        let earliest = |offsets: &BTreeSet<Offset>| offsets.first().copied();
        let passed = self.polled.values().filter_map(earliest).max().unwrap_or(-1);
        let mut unpolled: Vec<(Value, Offset)> = (self.sends.iter())
            .filter(|(value, sent)| sent.outcome == Outcome::Ok && !self.polled.contains_key(value))
            .map(|(value, sent)| (*value, sent.offset.unwrap_or(-1)))
            .collect();
        unpolled.sort_unstable();
        for (value, offset) in unpolled {
            let sentence = format!("key {key} value {value}, acknowledged at offset {offset}");
            let kind = if offset <= passed { AnomalyKind::Lost } else { AnomalyKind::Unseen };
            findings.add(kind, sentence);
        }
    }

    /// What one process sends lands in that order.
    fn judge_writers(&self, key: u32, findings: &mut Findings) {
        let mut by_process: BTreeMap<u32, BTreeMap<Value, Offset>> = BTreeMap::new();
        for (value, sent) in &self.sends {
            let polled = self.polled.get(value).and_then(|offsets| offsets.first().copied());
            if let Some(offset) = sent.offset.or(polled) {
                by_process.entry(sent.process).or_default().insert(*value, offset);
            }
        }
        for (process, offsets) in by_process {
            let (mut last_value, mut last_offset) = (0, -1);
            for (value, offset) in offsets {
                if offset <= last_offset {
                    let sentence = format!(
                        "key {key} process {process} sent {last_value}, then {value}, to offsets {last_offset} and {offset}"
                    );
                    findings.add(AnomalyKind::NonmonotonicSend, sentence);
                }
                (last_value, last_offset) = (value, offset);
            }
        }
    }

    /// Between two seeks a reader meets every record once, in order.
    fn judge_readers(&self, key: u32, findings: &mut Findings) {
        for (process, reads) in &self.reads {
            let mut next = None;
            for read in reads {
                let offset = match *read {
                    Read::Seek(offset) => {
                        next = Some(offset);
                        continue;
                    }
                    Read::Record(offset) => offset,
                };
                let expected = next.unwrap_or(offset);
                if offset < expected {
                    let sentence = format!(
                        "key {key} process {process} was at {expected} and was given {offset}"
                    );
                    findings.add(AnomalyKind::NonmonotonicPoll, sentence);
                } else if let Some((missed, _)) = self.values_at.range(expected..offset).next() {
                    let sentence = format!(
                        "key {key} process {process} was at {expected} and was given {offset}, past {missed}"
                    );
                    findings.add(AnomalyKind::PollSkip, sentence);
                }
                next = Some(offset + 1);
            }
        }
    }
}
