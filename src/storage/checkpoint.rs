//! The text checkpoints, which are Kafka's (kafka-protocol.md 4.2): a version, a count, one entry a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::Result;
use super::fs::read_if_exists;
use crate::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

const VERSION_LINE: &str = "0";

fn format_lines(lines: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("{VERSION_LINE}\n{}\n", lines.len());
    for line in lines {
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The entry lines of a checkpoint; the reason when it is not a whole one.
fn parse_lines(content: &[u8]) -> Result<Vec<&str>, &'static str> {
    let text = std::str::from_utf8(content).map_err(|_| "not text")?;
    if !text.ends_with('\n') {
        return Err("cut short");
    }
    let mut lines = text.lines();
    if lines.next() != Some(VERSION_LINE) {
        return Err("unknown version");
    }
    let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or("no entry count")?;
    let entries: Vec<&str> = lines.collect();
    if entries.len() == count { Ok(entries) } else { Err("entry count does not match") }
}

/// `leader-epoch-checkpoint`.
pub(super) fn format_epochs(epochs: &[(LeaderEpoch, Offset)]) -> String {
    format_lines(epochs.iter().map(|(epoch, start)| format!("{epoch} {start}")))
}

pub(super) fn parse_epochs(content: &[u8]) -> Result<Vec<(LeaderEpoch, Offset)>, &'static str> {
    let mut epochs: Vec<(LeaderEpoch, Offset)> = Vec::new();
    for line in parse_lines(content)? {
        let (epoch, start) = line.split_once(' ').ok_or("malformed entry")?;
        let epoch = LeaderEpoch(epoch.parse().map_err(|_| "malformed epoch")?);
        let start: Offset = start.parse().map_err(|_| "malformed offset")?;
        if epochs.last().is_some_and(|last| last.0 >= epoch || last.1 > start) {
            return Err("entries do not ascend");
        }
        epochs.push((epoch, start));
    }
    Ok(epochs)
}

/// One offset per partition: recovery points, high watermarks, log starts.
pub(super) type OffsetMap = BTreeMap<TopicPartition, Offset>;

pub(super) fn format_offsets(offsets: &OffsetMap) -> String {
    format_lines(offsets.iter().map(|(name, offset)| {
        let mut line = String::with_capacity(name.topic.len() + 24);
        let _ = write!(line, "{} {} {offset}", name.topic, name.partition);
        line
    }))
}

/// Empty when there is no such file. A damaged one counts as empty, too: all three only say what to do less of.
pub(super) fn read_offsets(path: &Path) -> Result<OffsetMap> {
    let Some(content) = read_if_exists(path)? else {
        return Ok(OffsetMap::new());
    };
    parse_offsets(&content).or_else(|reason| {
        tracing::warn!(path = %path.display(), reason, "damaged checkpoint is ignored");
        Ok(OffsetMap::new())
    })
}

pub(super) fn parse_offsets(content: &[u8]) -> Result<OffsetMap, &'static str> {
    parse_lines(content)?
        .into_iter()
        .map(|line| {
            let mut words = line.split(' ');
            let mut next = || words.next().ok_or("malformed entry");
            let topic: Arc<str> = next()?.into();
            let partition = next()?.parse().map_err(|_| "malformed partition")?;
            let offset = next()?.parse().map_err(|_| "malformed offset")?;
            Ok((TopicPartition { topic, partition }, offset))
        })
        .collect()
}

/// `partition.metadata`.
pub(super) fn format_topic_id(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

pub(super) fn parse_topic_id(content: &[u8]) -> Option<TopicId> {
    let text = std::str::from_utf8(content).ok()?;
    let mut lines = text.lines();
    let known_version = lines.next()? == "version: 0";
    let topic_id: TopicId = lines.next()?.strip_prefix("topic_id: ")?.parse().ok()?;
    (known_version && !topic_id.is_zero()).then_some(topic_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_as_kafka_writes_them() {
        let epochs = [(LeaderEpoch(0), 0), (LeaderEpoch(3), 17)];
        let text = format_epochs(&epochs);
        assert_eq!(text, "0\n2\n0 0\n3 17\n");
        assert_eq!(parse_epochs(text.as_bytes()), Ok(epochs.to_vec()));
        for damaged in
            ["", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\n0 x\n", "0\n2\n3 1\n2 5\n", "0\n1\n0 0"]
        {
            assert!(parse_epochs(damaged.as_bytes()).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn offsets_as_kafka_writes_them() {
        let name = |topic: &str, partition| TopicPartition { topic: topic.into(), partition };
        let offsets = OffsetMap::from([(name("a.b_c-d", 3), 17), (name("z", 0), 0)]);
        let text = format_offsets(&offsets);
        assert_eq!(text, "0\n2\na.b_c-d 3 17\nz 0 0\n");
        assert_eq!(parse_offsets(text.as_bytes()), Ok(offsets));
    }

    #[test]
    fn topic_id_as_kafka_writes_it() {
        let topic_id: TopicId = "0123456789abcdefghijkA".parse().unwrap();
        let text = format_topic_id(topic_id);
        assert_eq!(text, "version: 0\ntopic_id: 0123456789abcdefghijkA");
        assert_eq!(parse_topic_id(text.as_bytes()), Some(topic_id));
        for damaged in ["", "version: 0\n", "version: 1\ntopic_id: 0123456789abcdefghijkA"] {
            assert_eq!(parse_topic_id(damaged.as_bytes()), None);
        }
    }
}
