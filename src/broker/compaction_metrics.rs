//! What compaction has done and has to do, as metrics. Documented in `docs/metrics.md`.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::storage::{CompactionFigures, LogDirs};

type Watch = Box<dyn Fn() -> CompactionFigures + Send + Sync>;

/// Nothing, until a broker has opened its logs.
#[derive(Clone, Default)]
pub(super) struct CompactionMetrics(Arc<OnceLock<Watch>>);

impl fmt::Debug for CompactionMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompactionMetrics").finish_non_exhaustive()
    }
}

impl CompactionMetrics {
    /// A second broker over the same metrics shows the first one's logs.
    pub(super) fn observe(&self, logs: &LogDirs) {
        let _ = self.0.set(Box::new(logs.watch_compaction()));
    }
}

impl Collector for CompactionMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(watch) = self.0.get() else { return Ok(()) };
        let figures = watch();
        for (name, help, unit, value) in [
            ("compaction_passes", "Passes over logs", None, figures.passes),
            ("compaction_read", "Bytes read", Some(&Unit::Bytes), figures.read_bytes),
            ("compaction_written", "Bytes written", Some(&Unit::Bytes), figures.written_bytes),
            (
                "compaction_records_without_key",
                "Records dropped because they have no key",
                None,
                figures.records_without_key,
            ),
        ] {
            let counter = ConstCounter::new(value);
            let descriptor = encoder.encode_descriptor(name, help, unit, counter.metric_type())?;
            counter.encode(descriptor)?;
        }
        for (name, help, unit, value) in [
            (
                "compaction_dirtiest_percent",
                "Largest share of a log that is not compacted",
                None,
                figures.dirtiest_percent,
            ),
            (
                "compaction_oldest_dirty",
                "Age of the oldest record that is not compacted",
                Some(&Unit::Seconds),
                figures.oldest_dirty_seconds,
            ),
            (
                "compaction_uncleanable_logs",
                "Logs that cannot be compacted because of what is in them",
                None,
                figures.uncleanable_logs,
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
