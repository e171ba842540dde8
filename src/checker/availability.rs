//! When records were acknowledged, and when none were.

use std::collections::BTreeMap;

use serde::Serialize;

use super::history::{Fault, Outcome, Send};

/// A longer time without an acknowledgement is listed.
const GAP_MIN_US: u64 = 1_000_000;
const SECOND_US: u64 = 1_000_000;

/// A time in which nothing was acknowledged although somebody sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Window {
    pub begin_us: u64,
    pub end_us: u64,
    /// What was broken meanwhile, by its place in `faults`.
    pub faults: Vec<usize>,
}

/// One second of the run, by when a send came to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Second {
    pub acknowledged: u64,
    pub failed: u64,
    pub unknown: u64,
    /// Of what was acknowledged.
    pub median_us: u64,
    pub max_us: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Availability {
    pub longest_gap_us: u64,
    /// Gaps of more than a second.
    pub windows: Vec<Window>,
    pub median_us: u64,
    pub p99_us: u64,
    pub max_us: u64,
    pub faults: Vec<Fault>,
    /// From the start of the run on.
    pub seconds: Vec<Second>,
}

impl Availability {
    /// The faults that touch a window, as a reader sees them.
    pub fn faults_of(&self, window: &Window) -> String {
        let faults = window.faults.iter().filter_map(|index| self.faults.get(*index));
        faults.map(Fault::to_string).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Debug, Default)]
pub(super) struct AvailabilityBuilder {
    /// End and duration of what was acknowledged.
    acknowledged: Vec<(u64, u64)>,
    /// By second.
    others: BTreeMap<u64, (u64, u64)>,
    faults: Vec<Fault>,
    first_send_us: Option<u64>,
    last_end_us: u64,
}

impl AvailabilityBuilder {
    pub(super) fn add(&mut self, send: &Send) {
        let first = self.first_send_us.get_or_insert(send.begin_us);
        *first = send.begin_us.min(*first);
        self.last_end_us = self.last_end_us.max(send.end_us);
        let second = send.end_us / SECOND_US;
        match send.outcome {
            Outcome::Ok => {
                self.acknowledged.push((send.end_us, send.end_us.saturating_sub(send.begin_us)));
            }
            Outcome::Failed => self.others.entry(second).or_default().0 += 1,
            Outcome::Unknown => self.others.entry(second).or_default().1 += 1,
        }
    }

    pub(super) fn add_fault(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn finish(mut self) -> Availability {
        self.acknowledged.sort_unstable();
        self.faults.sort_by_key(|fault| fault.begin_us);
        let mut availability = Availability::default();
        let ends = self.acknowledged.iter().map(|(end, _)| *end);
        let mut before = self.first_send_us.unwrap_or(0);
        for end in ends.chain([self.last_end_us]) {
            let gap = end.saturating_sub(before);
            availability.longest_gap_us = availability.longest_gap_us.max(gap);
            if gap > GAP_MIN_US {
                let overlaps = |fault: &&Fault| {
                    fault.begin_us < end && fault.end_us.max(fault.begin_us) > before
                };
                let faults = self.faults.iter().enumerate().filter(|(_, fault)| overlaps(fault));
                let faults = faults.map(|(index, _)| index).collect();
                availability.windows.push(Window { begin_us: before, end_us: end, faults });
            }
            before = end.max(before);
        }
        let mut durations: Vec<u64> = self.acknowledged.iter().map(|(_, took)| *took).collect();
        durations.sort_unstable();
        availability.median_us = quantile(&durations, 500);
        availability.p99_us = quantile(&durations, 990);
        availability.max_us = durations.last().copied().unwrap_or(0);
        availability.seconds = self.seconds();
        availability.faults = self.faults;
        availability
    }

    /// Expects `acknowledged` in order.
    fn seconds(&self) -> Vec<Second> {
        let mut seconds = Vec::new();
        let mut rest = &self.acknowledged[..];
        for second in 0..=self.last_end_us / SECOND_US {
            let count = rest.partition_point(|(end, _)| end / SECOND_US <= second);
            let (own, later) = rest.split_at(count);
            rest = later;
            let mut durations: Vec<u64> = own.iter().map(|(_, took)| *took).collect();
            durations.sort_unstable();
            let (failed, unknown) = self.others.get(&second).copied().unwrap_or_default();
            seconds.push(Second {
                acknowledged: own.len() as u64,
                failed,
                unknown,
                median_us: quantile(&durations, 500),
                max_us: durations.last().copied().unwrap_or(0),
            });
        }
        seconds
    }
}

/// The smallest value that `per_mille` of all do not exceed; 0 of none.
fn quantile(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(begin_us: u64, end_us: u64, outcome: Outcome) -> Send {
        Send {
            process: 1,
            key: 0,
            value: begin_us,
            begin_us,
            end_us,
            outcome,
            offset: None,
            error: None,
        }
    }

    #[test]
    fn a_gap_is_a_window_with_the_faults_of_its_time() {
        let mut builder = AvailabilityBuilder::default();
        for at in [0, 100, 3_000_000, 3_000_100] {
            builder.add(&send(at, at + 50, Outcome::Ok));
        }
        builder.add(&send(1_000_000, 2_000_000, Outcome::Unknown));
        for (name, begin_us, end_us) in [("kill", 90, 500), ("later", 3_100_000, 3_200_000)] {
            let (name, target) = (name.to_owned(), "node 1".to_owned());
            builder.add_fault(Fault { name, target, begin_us, end_us });
        }
        let availability = builder.finish();
        let expected = Window { begin_us: 150, end_us: 3_000_050, faults: vec![0] };
        assert_eq!(availability.windows, [expected]);
        assert_eq!(availability.longest_gap_us, 2_999_900);
        let counts: Vec<_> =
            availability.seconds.iter().map(|s| (s.acknowledged, s.unknown)).collect();
        assert_eq!(counts, [(2, 0), (0, 0), (0, 1), (2, 0)]);
    }

    #[test]
    fn a_run_that_ends_without_acknowledgements_has_a_gap_at_its_end() {
        let mut builder = AvailabilityBuilder::default();
        builder.add(&send(0, 10, Outcome::Ok));
        builder.add(&send(20, 5_000_000, Outcome::Unknown));
        assert_eq!(builder.finish().longest_gap_us, 4_999_990);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        assert_eq!(quantile(&[], 500), 0);
        assert_eq!(quantile(&[1, 2, 3, 4], 500), 2);
        assert_eq!(quantile(&[1, 2, 3, 4], 990), 4);
    }
}
