//! Tables for people, JSON for programs, progress for those who watch.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use crate::types::{NodeId, time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Text
    Table,
    /// One JSON document; of streams, one a line
    Json,
}

impl Output {
    /// Prints an answer in the form that was asked for.
    pub(super) fn print(self, json: &Value, text: impl FnOnce() -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Json => writeln!(out, "{json}"),
            Self::Table => writeln!(out, "{}", text().trim_end()),
        }
    }
}

/// Columns under headings, without lines: good to read and good to cut.
pub(super) fn table<const N: usize>(
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(heading.map(str::to_uppercase));
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// `1, 2, 3`, or a dash for none.
pub(super) fn nodes(ids: &[NodeId]) -> String {
    if ids.is_empty() {
        return "-".to_owned();
    }
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(",")
}

/// A count with its noun.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A bar for those who watch something that takes longer than a second.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// Draws nothing when standard error is not a terminal.
    pub(super) fn start(length: Option<u64>, noun: &str) -> Self {
        let (bar, template) = match length {
            Some(length) => (
                ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden()),
                format!("{{bar:30}} {{human_pos}}/{{human_len}} {noun}, {{per_sec}}, {{eta}} left"),
            ),
            None => (
                ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
                format!("{{spinner}} {{human_pos}} {noun}, {{per_sec}}"),
            ),
        };
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Self { bar, started: time::now() }
    }

    pub(super) fn advance(&self, by: u64) {
        const PATIENCE: Duration = Duration::from_secs(1);
        if self.bar.is_hidden() && io::stderr().is_terminal() && self.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.inc(by);
    }

    pub(super) fn elapsed(&self) -> Duration {
        time::now() - self.started
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_columns_and_no_lines() {
        let rows = [["a".to_owned(), "1".to_owned()], ["long name".to_owned(), "2".to_owned()]];
        assert_eq!(table(["name", "n"], rows), "NAME       N\na          1\nlong name  2");
    }

    #[test]
    fn words_for_lists_and_counts() {
        assert_eq!(nodes(&[NodeId(1), NodeId(3)]), "1,3");
        assert_eq!(nodes(&[]), "-");
        assert_eq!((count(1, "node"), count(0, "node")), ("1 node".into(), "0 nodes".into()));
    }
}
