//! The history file: JSON, one event a line.
//!
//! ```text
//! {"event":"begin","version":1,"target":"kontiki","workload":"queue","seed":7,"started_ms":1764500000000}
//! {"event":"send","process":1,"key":0,"value":17,"begin_us":10,"end_us":950,"outcome":"ok","offset":3}
//! {"event":"seek","process":100,"key":0,"offset":0}
//! {"event":"poll","process":100,"key":0,"begin_us":20,"end_us":990,"records":[[3,17]],"next_offset":4}
//! {"event":"fault","name":"kill","target":"node 2","begin_us":500,"end_us":5000}
//! {"event":"end","keys":[{"key":0,"offset":4}]}
//! ```
//! A key is a partition. A process is a producer or a consumer, and does one thing after the other; the values that it
//! sends ascend, and no two sends share one. Times are microseconds since the start of the run.

use std::fmt::{self, Display};
use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};

/// Of the format.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    Begin(Begin),
    Send(Send),
    /// A consumer goes to an offset, by its own decision.
    Seek {
        process: u32,
        key: u32,
        offset: i64,
    },
    Poll(Poll),
    Fault(Fault),
    /// All faults are healed, and everything was read up to these ends of the keys.
    End {
        keys: Vec<KeyEnd>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    pub version: u32,
    /// What was tested.
    pub target: String,
    pub workload: String,
    /// From which everything that was drawn can be drawn again.
    pub seed: u64,
    pub started_ms: i64,
}

/// What the sender knows in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Ok,
    /// Certainly not written.
    Failed,
    /// Perhaps written.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    pub process: u32,
    pub key: u32,
    pub value: u64,
    pub begin_us: u64,
    pub end_us: u64,
    pub outcome: Outcome,
    /// As acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    pub process: u32,
    pub key: u32,
    pub begin_us: u64,
    pub end_us: u64,
    /// Offset and value; `null` for what is not a value that anybody would send.
    pub records: Vec<(i64, Option<u64>)>,
    /// Where the next poll begins: after offsets without a record, too.
    pub next_offset: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub name: String,
    pub target: String,
    pub begin_us: u64,
    /// When it was healed.
    pub end_us: u64,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.target)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEnd {
    pub key: u32,
    pub offset: i64,
}

/// Why a history cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("cannot read the history: {0}")]
    Io(#[from] io::Error),
    #[error("line {line} is no event of a history: {source}")]
    Malformed { line: usize, source: serde_json::Error },
    #[error("the history has version {0}; this program reads version {VERSION}")]
    Version(u32),
    #[error("the history has no `begin`")]
    NoBegin,
}

/// The events of a file. A last line without an end was cut off with the process that wrote it, and is left out.
pub fn read(mut lines: impl BufRead) -> impl Iterator<Item = Result<Event, HistoryError>> {
    let mut number = 0;
    let mut line = String::new();
    std::iter::from_fn(move || {
        loop {
            line.clear();
            number += 1;
            match lines.read_line(&mut line) {
                Ok(0) => return None,
                Ok(_) if !line.ends_with('\n') => return None,
                Ok(_) if line.trim().is_empty() => {}
                Ok(_) => return Some(parse(&line, number)),
                Err(error) => return Some(Err(error.into())),
            }
        }
    })
}

fn parse(line: &str, number: usize) -> Result<Event, HistoryError> {
    let event = serde_json::from_str(line)
        .map_err(|source| HistoryError::Malformed { line: number, source })?;
    match event {
        Event::Begin(Begin { version, .. }) if version != VERSION => {
            Err(HistoryError::Version(version))
        }
        event => Ok(event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str =
        r#"{"event":"begin","version":1,"target":"t","workload":"queue","seed":7,"started_ms":0}"#;

    #[test]
    fn events_are_read_as_they_are_written() {
        let send = Send {
            process: 1,
            key: 0,
            value: 17,
            begin_us: 10,
            end_us: 950,
            outcome: Outcome::Ok,
            offset: Some(3),
            error: None,
        };
        let events = [
            Event::Send(send),
            Event::Seek { process: 2, key: 0, offset: 0 },
            Event::End { keys: vec![KeyEnd { key: 0, offset: 4 }] },
        ];
        let mut text = format!("{BEGIN}\n\n");
        for event in &events {
            text += &format!("{}\n", serde_json::to_string(event).unwrap());
        }
        text += r#"{"event":"se"#;
        let back: Vec<Event> = read(text.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(back[1..], events);
    }

    #[test]
    fn what_is_no_history_is_refused_with_its_line() {
        let text = format!("{BEGIN}\nhello\n");
        let error = read(text.as_bytes()).nth(1).unwrap().unwrap_err().to_string();
        assert!(error.starts_with("line 2 is no event"), "{error}");
        let newer = BEGIN.replace("\"version\":1", "\"version\":2") + "\n";
        let error = read(newer.as_bytes()).next().unwrap().unwrap_err();
        assert!(matches!(error, HistoryError::Version(2)));
    }
}
