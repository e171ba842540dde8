//! What a log promised its clients, held against what they saw.
//!
//! A history is what clients of a log did and were told, a line each ([`Event`]); `kontiki chaos` writes one, and any
//! other program can. [`check`] judges it by the definitions of Jepsen's Kafka test (reliability.md 1.2): lost,
//! duplicated, reordered, phantom and diverging records, and times in which nothing was acknowledged. It knows nothing
//! of the log that was tested, nor how.
//!
//! Invariant: pure. The verdict depends on the history alone.

mod availability;
mod history;
mod key;
#[cfg(test)]
mod key_test;
mod report;

use std::collections::BTreeMap;
use std::io::BufRead;

pub use availability::{Availability, Second, Window};
pub use history::{Begin, Event, Fault, HistoryError, KeyEnd, Outcome, Poll, Send, VERSION, read};
pub use report::{Anomaly, AnomalyKind, Counts, Report, Verdict};

use availability::AvailabilityBuilder;
use key::KeyHistory;
use report::Findings;

/// Judges a whole history. Needs memory for each record, about a hundred bytes.
pub fn check(lines: impl BufRead) -> Result<Report, HistoryError> {
    let mut checker = Checker::default();
    for event in read(lines) {
        checker.add(event?);
    }
    checker.finish()
}

/// Takes the events of a history as they come.
#[derive(Debug, Default)]
pub struct Checker {
    begin: Option<Begin>,
    end: Option<Vec<KeyEnd>>,
    keys: BTreeMap<u32, KeyHistory>,
    counts: Counts,
    availability: AvailabilityBuilder,
}

impl Checker {
    /// In any order; polls of one process in the order in which it made them.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Begin(begin) => self.begin = Some(begin),
            Event::Send(send) => {
                self.counts.add(&send);
                self.availability.add(&send);
                self.keys.entry(send.key).or_default().on_send(&send);
            }
            Event::Seek { process, key, offset } => {
                self.keys.entry(key).or_default().on_seek(process, offset);
            }
            Event::Poll(poll) => {
                self.counts.polled += poll.records.len() as u64;
                self.keys.entry(poll.key).or_default().on_poll(&poll);
            }
            Event::Fault(fault) => self.availability.add_fault(fault),
            Event::End { keys } => self.end = Some(keys),
        }
    }

    pub fn finish(self) -> Result<Report, HistoryError> {
        let begin = self.begin.ok_or(HistoryError::NoBegin)?;
        let mut findings = Findings::default();
        let mut is_read_to_end = self.end.is_some();
        let ends: BTreeMap<u32, i64> =
            self.end.into_iter().flatten().map(|end| (end.key, end.offset)).collect();
        for (key, history) in &self.keys {
            let end = ends.get(key).copied();
            is_read_to_end &= end.is_some_and(|end| history.is_read_to(end));
            history.judge(*key, &mut findings);
        }
        let anomalies = findings.into_anomalies();
        let verdict = if anomalies.iter().any(|anomaly| anomaly.kind.is_violation(is_read_to_end)) {
            Verdict::Violated
        } else if !is_read_to_end || self.counts.acknowledged == 0 {
            // A run in which nothing could be checked proves nothing.
            Verdict::Unknown
        } else {
            Verdict::Clean
        };
        Ok(Report {
            begin,
            verdict,
            is_read_to_end,
            counts: self.counts,
            anomalies,
            availability: self.availability.finish(),
        })
    }
}
