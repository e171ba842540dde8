//! Small files: written whole to a temporary name and renamed, so that a reader sees the old or the new one.
//!
//! The text checkpoints are Kafka's (kafka-protocol.md 4.2): a version, a count, one entry a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::{Error, Result};
use crate::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

/// Whether a small file must survive a power loss before the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    Now,
    /// Somebody else syncs it, or it can be rebuilt.
    Later,
}

/// Replaces the file at `path`.
pub(super) fn replace(path: &Path, content: &[u8], sync: Sync) -> Result<()> {
    let temporary = path.with_added_extension("tmp");
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        if sync == Sync::Now {
            file.sync_data()?;
        }
        fs::rename(&temporary, path)
    };
    write().map_err(Error::io("write", path))?;
    if sync == Sync::Now
        && let Some(parent) = path.parent()
    {
        sync_dir(parent)?;
    }
    Ok(())
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(Error::io("sync directory", path))
}

/// `None` when there is no such file.
pub(super) fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

/// Succeeds when it is not there already.
pub(super) fn remove_if_exists(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

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

fn parse_offsets(content: &[u8]) -> Result<OffsetMap, &'static str> {
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

    #[test]
    fn a_file_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leader-epoch-checkpoint");
        assert_eq!(read_if_exists(&path).unwrap(), None);
        replace(&path, b"one", Sync::Now).unwrap();
        replace(&path, b"two", Sync::Later).unwrap();
        assert_eq!(read_if_exists(&path).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        remove_if_exists(&path).unwrap();
        remove_if_exists(&path).unwrap();
    }
}
