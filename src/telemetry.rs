//! Logs and metrics of the process.
//!
//! Logs go to standard error, one line an event, filtered by `RUST_LOG`. ERROR means that a human must look: the cluster
//! tests fail on one that they did not provoke. Metrics live in one registry that `node` makes, every module registers
//! with, and `admin` prints; their names are stable and listed in `docs/metrics.md`.

use std::io::IsTerminal;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tracing_subscriber::EnvFilter;

/// What is logged when `RUST_LOG` says nothing. The quorum's libraries report each peer that they cannot reach as an
/// error of their own; what matters of that, `quorum` says itself.
const DEFAULT_FILTER: &str = "info,openraft=off,sled=warn,hyper=warn";

/// Starts logging for the whole process. A second call changes nothing.
pub fn init_logging() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| DEFAULT_FILTER.into());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init();
}

/// A registry that holds the metrics of the process itself. Modules add theirs.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ProcessCollector));
    registry
}

/// Reads `/proc/self` when asked. Other systems than Linux report none of these.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(process) = ProcessFigures::read() else { return Ok(()) };
        let cpu = ConstCounter::new(process.cpu_seconds);
        let help = "User and system CPU time spent";
        let unit = Some(&Unit::Seconds);
        cpu.encode(encoder.encode_descriptor("process_cpu", help, unit, cpu.metric_type())?)?;
        let resident = ConstGauge::new(process.resident_bytes);
        let help = "Resident memory";
        let unit = Some(&Unit::Bytes);
        let descriptor = "process_resident_memory";
        resident.encode(encoder.encode_descriptor(
            descriptor,
            help,
            unit,
            resident.metric_type(),
        )?)?;
        for (name, help, value) in [
            ("process_open_fds", "Open file descriptors", process.open_fds),
            ("process_threads", "Threads", process.threads),
        ] {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

struct ProcessFigures {
    cpu_seconds: f64,
    resident_bytes: i64,
    open_fds: i64,
    threads: i64,
}

impl ProcessFigures {
    fn read() -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let open_fds = std::fs::read_dir("/proc/self/fd").ok()?.count();
        Self::parse(&stat, i64::try_from(open_fds).ok()?)
    }

    /// Fields are counted from the closing bracket of the command name, which may itself hold spaces (proc(5)).
    fn parse(stat: &str, open_fds: i64) -> Option<Self> {
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<i64>().ok();
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let page_size = i64::try_from(rustix::param::page_size()).ok()?;
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks_per_second,
            resident_bytes: field(24)? * page_size,
            open_fds,
            threads: field(20)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_spaces_and_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 250 150 0 0 20 0 11 0 1 1000 42 99";
        let process = ProcessFigures::parse(stat, 5).expect("well-formed");
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_seconds, 400.0 / ticks);
        assert_eq!(process.threads, 11);
        assert_eq!(process.resident_bytes, 42 * rustix::param::page_size() as i64);
        assert!(ProcessFigures::parse("7 (short) S 1", 5).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_registry_reports_this_process() {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry()).expect("encodes");
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_threads",
        ] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name} in {text}");
        }
    }
}
