//! A history's report as one page that needs nothing beside itself: verdict, figures, anomalies and a timeline.

use std::fmt::Write;

use super::check::sentence;
use crate::checker::{AnomalyKind, Availability, Report, Verdict};

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{text-align:left;padding:.2em 1em .2em 0;vertical-align:top}\
    .clean{color:#176b2c}.violated{color:#b00020}.unknown{color:#8a5a00}svg{width:100%;background:#fafafa}\
    svg text{font-size:10px;fill:#555}code{font-size:12px}";

/// Pixels.
const WIDTH: u64 = 1000;
const BARS_HEIGHT: u64 = 120;
const ROW_HEIGHT: u64 = 12;

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut out = String::new();
    write_page(report, &mut out).expect("writing to a string cannot fail");
    out
}

/// As JSON names it.
pub(super) fn kind_name(kind: AnomalyKind) -> String {
    let name = serde_json::to_value(kind).expect("an enum of names");
    name.as_str().unwrap_or_default().to_owned()
}

fn write_page(report: &Report, out: &mut String) -> std::fmt::Result {
    let begin = &report.begin;
    let class = match report.verdict {
        Verdict::Clean => "clean",
        Verdict::Violated => "violated",
        Verdict::Unknown => "unknown",
    };
    let title = format!("{}, workload {}, seed {}", begin.target, begin.workload, begin.seed);
    let title = escape(&title);
    write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         <h1>{title}</h1><h2 class=\"{class}\">{}</h2>",
        escape(sentence(report))
    )?;
    let counts = &report.counts;
    let availability = &report.availability;
    let figures = [
        ("sent", counts.sent.to_string()),
        ("acknowledged", counts.acknowledged.to_string()),
        ("failed", counts.failed.to_string()),
        ("unknown outcome", counts.unknown.to_string()),
        ("read", counts.polled.to_string()),
        ("longest time without an acknowledgement", milliseconds(availability.longest_gap_us)),
        ("latency, median", milliseconds(availability.median_us)),
        ("latency, 99 of 100", milliseconds(availability.p99_us)),
        ("latency, worst", milliseconds(availability.max_us)),
    ];
    out.push_str("<table>");
    for (name, value) in figures {
        write!(out, "<tr><th>{name}<td>{value}")?;
    }
    out.push_str("</table><h3>Timeline</h3>");
    write_timeline(availability, out)?;
    write_faults(availability, out)?;
    out.push_str("<h3>Anomalies</h3>");
    if report.anomalies.is_empty() {
        out.push_str("<p>None.");
    }
    for anomaly in &report.anomalies {
        write!(out, "<h4>{}: {}</h4><ul>", kind_name(anomaly.kind), anomaly.count)?;
        for example in &anomaly.examples {
            write!(out, "<li><code>{}</code>", escape(example))?;
        }
        out.push_str("</ul>");
    }
    out.push_str("</html>\n");
    Ok(())
}

/// Bars: acknowledged records of each second. Below: what was broken, one row a fault, and in red where nothing was
/// acknowledged.
fn write_timeline(availability: &Availability, out: &mut String) -> std::fmt::Result {
    let seconds = availability.seconds.len().max(1) as u64;
    let x = |us: u64| us * WIDTH / (seconds * 1_000_000);
    let most = availability.seconds.iter().map(|second| second.acknowledged).max().unwrap_or(0);
    let height = BARS_HEIGHT + 20 + ROW_HEIGHT * availability.faults.len() as u64;
    write!(out, "<svg viewBox=\"0 0 {WIDTH} {height}\">")?;
    for window in &availability.windows {
        let (left, width) = (x(window.begin_us), x(window.end_us - window.begin_us).max(1));
        write!(
            out,
            "<rect x=\"{left}\" y=\"0\" width=\"{width}\" height=\"{height}\" fill=\"#f6c6cc\"/>"
        )?;
    }
    for (number, second) in (0_u64..).zip(&availability.seconds) {
        let bar = second.acknowledged * BARS_HEIGHT / most.max(1);
        write!(
            out,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{bar}\" fill=\"#4a7ebb\"><title>second {number}: {} acknowledged, {} failed, {} unknown, median {}, worst {}</title></rect>",
            number * WIDTH / seconds,
            BARS_HEIGHT - bar,
            (WIDTH / seconds).max(1),
            second.acknowledged,
            second.failed,
            second.unknown,
            milliseconds(second.median_us),
            milliseconds(second.max_us),
        )?;
    }
    let labels = BARS_HEIGHT + 12;
    write!(
        out,
        "<text x=\"0\" y=\"{labels}\">0 s</text><text x=\"{}\" y=\"{labels}\" text-anchor=\"end\">{seconds} s, at most {most} a second</text>",
        WIDTH
    )?;
    for (row, fault) in (0_u64..).zip(&availability.faults) {
        let (left, top) = (x(fault.begin_us), BARS_HEIGHT + 18 + row * ROW_HEIGHT);
        let width = x(fault.end_us.saturating_sub(fault.begin_us)).max(2);
        let name = escape(&fault.to_string());
        write!(
            out,
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"8\" fill=\"#d98e04\"><title>{name}</title></rect>"
        )?;
        let (at, anchor) = if left > WIDTH / 2 {
            (left.saturating_sub(3), "end")
        } else {
            (left + width + 3, "start")
        };
        write!(out, "<text x=\"{at}\" y=\"{}\" text-anchor=\"{anchor}\">{name}</text>", top + 8)?;
    }
    out.push_str("</svg>");
    Ok(())
}

fn write_faults(availability: &Availability, out: &mut String) -> std::fmt::Result {
    out.push_str("<h3>Without acknowledgements</h3>");
    if availability.windows.is_empty() {
        out.push_str("<p>Never for more than a second.");
        return Ok(());
    }
    out.push_str("<table><tr><th>at<th>for<th>during");
    for window in &availability.windows {
        write!(
            out,
            "<tr><td>{}<td>{}<td>{}",
            milliseconds(window.begin_us),
            milliseconds(window.end_us - window.begin_us),
            escape(&availability.faults_of(window))
        )?;
    }
    out.push_str("</table>");
    Ok(())
}

pub(super) fn milliseconds(us: u64) -> String {
    format!("{}.{} ms", us / 1000, us % 1000 / 100)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker;

    #[test]
    fn a_page_shows_the_verdict_the_faults_and_no_foreign_markup() {
        let history = concat!(
            r#"{"event":"begin","version":1,"target":"a<b","workload":"queue","seed":7,"started_ms":0}"#,
            "\n",
            r#"{"event":"send","process":1,"key":0,"value":1,"begin_us":1,"end_us":9,"outcome":"ok","offset":0}"#,
            "\n",
            r#"{"event":"fault","name":"kill","target":"node 2","begin_us":5,"end_us":2000000}"#,
            "\n",
            r#"{"event":"end","keys":[{"key":0,"offset":0}]}"#,
            "\n",
        );
        let page = page(&checker::check(history.as_bytes()).unwrap());
        for expected in ["class=\"violated\"", "kill node 2", "unseen: 1", "a&lt;b"] {
            assert!(page.contains(expected), "{expected} is missing from {page}");
        }
        assert!(!page.contains("a<b"));
    }
}
