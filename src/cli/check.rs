//! `kontiki check`: what a history says about the log that its clients used.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;

use clap::Args;

use super::error::Failure;
use super::output::{Output, table};
use super::report_html::{self, milliseconds};
use crate::checker::{self, Report, Verdict};

/// Judge a history: lost, duplicated, reordered, phantom and diverging records
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kontiki check history.jsonl\n  kontiki check history.jsonl --html report.html --output json\n\nEnds with 0 when clean, 10 when a promise was broken or not everything was read."
)]
pub(super) struct CheckArgs {
    /// As `kontiki chaos` writes it; - is standard input
    #[arg(value_name = "HISTORY")]
    history: PathBuf,
    /// Also write a page with a timeline
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// For people, or for programs
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let name = args.history.display();
    let lines: Box<dyn BufRead> = if args.history.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&args.history);
        let file =
            file.map_err(|error| Failure::refused(format!("cannot open {name}: {error}")))?;
        Box::new(BufReader::new(file))
    };
    let report =
        checker::check(lines).map_err(|error| Failure::refused(format!("{name}: {error}")))?;
    if let Some(path) = &args.html {
        fs::write(path, report_html::page(&report)).map_err(|error| {
            Failure::refused(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    show(&report, args.output)
}

/// Prints the report. Anything but clean is bad news.
pub(super) fn show(report: &Report, output: Output) -> Result<(), Failure> {
    let json = serde_json::to_value(report).expect("a report has only string keys");
    output.print(&json, || to_text(report))?;
    match report.verdict {
        Verdict::Clean => Ok(()),
        Verdict::Violated | Verdict::Unknown => Err(Failure::unhealthy()),
    }
}

/// The verdict in a sentence.
pub(super) fn sentence(report: &Report) -> &'static str {
    match report.verdict {
        Verdict::Clean => "clean: everything that was acknowledged was read back, once, in order",
        Verdict::Violated => "VIOLATED: a promise was broken",
        Verdict::Unknown if report.counts.acknowledged == 0 => {
            "unknown: nothing was acknowledged, so nothing could be checked"
        }
        Verdict::Unknown => "unknown: not everything could be read back",
    }
}

fn to_text(report: &Report) -> String {
    let (counts, availability) = (&report.counts, &report.availability);
    let seconds = |us: u64| format!("{}.{:03}", us / 1_000_000, us % 1_000_000 / 1000);
    let facts = [
        ["sent".to_owned(), counts.sent.to_string()],
        ["acknowledged".to_owned(), counts.acknowledged.to_string()],
        ["failed".to_owned(), counts.failed.to_string()],
        ["unknown".to_owned(), counts.unknown.to_string()],
        ["read".to_owned(), counts.polled.to_string()],
        ["faults".to_owned(), availability.faults.len().to_string()],
        ["longest gap".to_owned(), milliseconds(availability.longest_gap_us)],
        [
            "latency".to_owned(),
            format!(
                "median {}, p99 {}, max {}",
                milliseconds(availability.median_us),
                milliseconds(availability.p99_us),
                milliseconds(availability.max_us)
            ),
        ],
    ];
    let mut text = table(["what", "value"], facts);
    if !report.anomalies.is_empty() {
        let rows = report.anomalies.iter().flat_map(|anomaly| {
            let kind = report_html::kind_name(anomaly.kind);
            let first = [kind, anomaly.count.to_string(), String::new()];
            let examples = anomaly.examples.iter();
            std::iter::once(first)
                .chain(examples.map(|example| [String::new(), String::new(), example.clone()]))
        });
        text += &format!("\n\n{}", table(["anomaly", "count", "examples"], rows));
    }
    if !availability.windows.is_empty() {
        let rows = availability.windows.iter().map(|window| {
            let length = window.end_us - window.begin_us;
            [seconds(window.begin_us), milliseconds(length), availability.faults_of(window)]
        });
        text += &format!("\n\n{}", table(["nothing from (s)", "for", "during"], rows));
    }
    format!("{text}\n\n{}", sentence(report))
}
