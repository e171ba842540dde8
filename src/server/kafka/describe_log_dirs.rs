//! DescribeLogDirs: what lies in which log directory of this broker, and which of them are offline.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dispatch::{Call, Reply};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use crate::storage::{DescribedDir, DescribedLog};
use crate::types::TopicPartition;

pub(super) async fn handle(
    call: Call,
    request: DescribeLogDirsRequest,
) -> Reply<DescribeLogDirsResponse> {
    let asked = request.topics;
    let is_asked = |name: &TopicPartition| asked.as_ref().is_none_or(|asked| asks(asked, name));
    let dirs = call.front.broker.describe_log_dirs();
    let results = dirs.into_iter().map(|dir| describe(dir, is_asked)).collect();
    DescribeLogDirsResponse { results, ..Default::default() }.into()
}

fn asks(asked: &[DescribableLogDirTopic], name: &TopicPartition) -> bool {
    let mut of_topic = asked.iter().filter(|asked| *asked.topic == *name.topic);
    of_topic.any(|asked| asked.partitions.contains(&name.partition))
}

fn describe(
    dir: DescribedDir,
    is_asked: impl Fn(&TopicPartition) -> bool,
) -> DescribeLogDirsResult {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut result = DescribeLogDirsResult {
        log_dir: dir.path.display().to_string().into(),
        total_bytes: dir.space.map_or(-1, |space| bytes(space.total)),
        usable_bytes: dir.space.map_or(-1, |space| bytes(space.free)),
        ..Default::default()
    };
    if dir.is_offline {
        result.error_code = ErrorCode::KafkaStorageError.code();
        return result;
    }
    let mut topics: BTreeMap<Arc<str>, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for DescribedLog { name, size } in dir.logs.into_iter().filter(|log| is_asked(&log.name)) {
        topics.entry(name.topic).or_default().push(DescribeLogDirsPartition {
            partition_index: name.partition,
            partition_size: bytes(size),
            // A log's high watermark is never beyond its end.
            offset_lag: 0,
            is_future_key: false,
        });
    }
    let topics = topics
        .into_iter()
        .map(|(name, partitions)| DescribeLogDirsTopic { name: name.into(), partitions });
    result.topics = topics.collect();
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Space;

    #[test]
    fn what_was_asked_for_is_listed_and_offline_directories_say_so() {
        let log = |topic: &str, partition| DescribedLog {
            name: TopicPartition { topic: topic.into(), partition },
            size: 7,
        };
        let dir = |is_offline| DescribedDir {
            path: "/a".into(),
            is_offline,
            space: Some(Space { free: 10, total: 100 }),
            logs: vec![log("t", 0), log("t", 1), log("u", 0)],
        };
        let asked = [DescribableLogDirTopic { topic: "t".into(), partitions: vec![1, 9] }];
        let shown = describe(dir(false), |name| asks(&asked, name));
        let partitions: Vec<_> =
            shown.topics[0].partitions.iter().map(|p| p.partition_index).collect();
        assert_eq!((shown.topics.len(), partitions), (1, vec![1]));
        assert_eq!((shown.error_code, shown.usable_bytes, shown.total_bytes), (0, 10, 100));
        assert_eq!(describe(dir(false), |_| true).topics.len(), 2);
        let offline = describe(dir(true), |_| true);
        assert_eq!((offline.error_code, offline.topics.len()), (56, 0));
    }
}
