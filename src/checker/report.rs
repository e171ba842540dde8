//! The verdict, and everything that speaks for and against it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::availability::Availability;
use super::history::{Begin, Outcome, Send};

/// Of each kind, this many are told; the others are counted.
const EXAMPLES_MAX: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything was read back, and nothing is wrong.
    Clean,
    /// A promise was broken.
    Violated,
    /// Nothing is wrong with what was seen, but not all was.
    Unknown,
}

/// What can be wrong (reliability.md 1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnomalyKind {
    /// Acknowledged, and readers that passed its place did not get it.
    Lost,
    /// Acknowledged, and beyond all that was read. A loss, if everything was read.
    Unseen,
    /// One value at two offsets.
    Duplicate,
    /// One offset with two values: replicas diverged, or an acknowledged record was overwritten.
    InconsistentOffset,
    /// What a process sent later lies before what it sent earlier.
    NonmonotonicSend,
    /// A reader was given again what it had, or something before it.
    NonmonotonicPoll,
    /// A reader was led past a record.
    PollSkip,
    /// Read although its send certainly failed.
    AbortedRead,
    /// Read and never sent.
    Phantom,
    /// Read, and torn or damaged.
    Unreadable,
}

impl AnomalyKind {
    /// Whether it breaks a promise.
    pub fn is_violation(self, is_read_to_end: bool) -> bool {
        self != Self::Unseen || is_read_to_end
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Anomaly {
    pub kind: AnomalyKind,
    pub count: u64,
    /// The first few.
    pub examples: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    by_kind: BTreeMap<AnomalyKind, (u64, Vec<String>)>,
}

impl Findings {
    pub(super) fn add(&mut self, kind: AnomalyKind, sentence: String) {
        let (count, examples) = self.by_kind.entry(kind).or_default();
        *count += 1;
        if examples.len() < EXAMPLES_MAX {
            examples.push(sentence);
        }
    }

    pub(super) fn into_anomalies(self) -> Vec<Anomaly> {
        let anomaly = |(kind, (count, examples))| Anomaly { kind, count, examples };
        self.by_kind.into_iter().map(anomaly).collect()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub sent: u64,
    pub acknowledged: u64,
    pub failed: u64,
    pub unknown: u64,
    /// By all consumers together.
    pub polled: u64,
}

impl Counts {
    pub(super) fn add(&mut self, send: &Send) {
        self.sent += 1;
        *match send.outcome {
            Outcome::Ok => &mut self.acknowledged,
            Outcome::Failed => &mut self.failed,
            Outcome::Unknown => &mut self.unknown,
        } += 1;
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    pub begin: Begin,
    pub verdict: Verdict,
    /// Whether every key was read to its end after all faults were healed.
    pub is_read_to_end: bool,
    pub counts: Counts,
    pub anomalies: Vec<Anomaly>,
    pub availability: Availability,
}
