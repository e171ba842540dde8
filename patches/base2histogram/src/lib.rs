//! The part of `base2histogram` that openraft names when its feature `runtime-stats` is off.
//!
//! The real crate computes tables of 26 MiB when the first histogram is made, which is as much as the rest of an idle
//! node, and openraft makes one in any case. Nothing reads it: these histograms count and forget
//! (`docs/decisions/0003-sled-and-openraft-as-used.md`). Remove this when openraft makes none.

use std::fmt;
use std::marker::PhantomData;

/// Counts values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    samples: u64,
    of: PhantomData<T>,
}

impl<T> Histogram<T> {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { samples: 0, of: PhantomData }
    }

    pub fn record(&mut self, _value: u64) {
        self.samples += 1;
    }

    pub fn record_n(&mut self, _value: u64, count: u64) {
        self.samples += count;
    }

    pub fn total(&self) -> u64 {
        self.samples
    }

    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats { samples: self.samples, ..PercentileStats::default() }
    }
}

/// All zero but `samples`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PercentileStats {
    pub samples: u64,
    pub p0_1: u64,
    pub p1: u64,
    pub p5: u64,
    pub p10: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[samples: {}]", self.samples)
    }
}

/// Draws nothing.
#[derive(Debug, Default)]
pub struct AsciiChart;

impl AsciiChart {
    pub fn new() -> Self {
        Self
    }

    pub fn add<T>(self, _name: impl ToString, _histogram: Histogram<T>) -> Self {
        self
    }

    pub fn detailed(&self) -> &'static str {
        ""
    }
}
