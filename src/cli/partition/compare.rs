//! `kontiki partition compare`.
//!
//! Each broker tells the digest of a range of its own replica. Only where digests differ are the bytes fetched.

use clap::Args;
use serde_json::{Value, json};

use super::super::connect::Connect;
use super::super::error::Failure;
use super::super::output::{Progress, nodes, table};
use super::difference::{Difference, of_bytes, of_records};
use crate::client::{Admin, Client, ReadReplicaRequest, ReplicaRange};
use crate::protocol::native::{PartitionView, TopicView};
use crate::types::{NodeId, Offset, TopicIdPartition};

/// Bytes of one digest, unless a batch is larger.
const CHUNK_SIZE: u32 = 1 << 20;
/// The same range may be larger elsewhere, before compaction.
const CHUNK_SIZE_MAX: u32 = 8 << 20;

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    topic: String,
    /// One partition [default: all]
    partition: Option<i32>,
}

pub(super) async fn run(
    connect: &Connect,
    client: &Client,
    args: CompareArgs,
) -> Result<(), Failure> {
    let admin = client.admin();
    // So that the client knows where the brokers are.
    client.topic(&args.topic).await?;
    let topic = admin.describe_topic(&args.topic).await?;
    let wanted = |view: &&PartitionView| args.partition.is_none_or(|p| p == view.partition);
    let views: Vec<&PartitionView> = topic.partitions.iter().filter(wanted).collect();
    if views.is_empty() {
        let count = topic.partitions.len();
        let problem = format!("topic {} has {count} partitions, numbered from 0", topic.name);
        return Err(Failure::refused(problem));
    }
    let progress = Progress::start(None, "bytes");
    let mut compared = Vec::new();
    for view in views {
        compared.push(Comparison::run(&admin, &topic, view, &progress).await);
    }
    drop(progress);
    let json: Value = compared.iter().map(|partition| partition.to_json(&topic.name)).collect();
    connect.output.print(&json, || {
        let heading = ["partition", "replicas", "from", "to", "bytes", "verdict"];
        table(heading, compared.iter().map(Comparison::to_row))
    })?;
    let is_fine = compared.iter().all(|partition| partition.problems.is_empty());
    if is_fine { Ok(()) } else { Err(Failure::unhealthy()) }
}

/// One partition.
struct Comparison {
    partition: i32,
    /// The first is the one that the others are compared with.
    replicas: Vec<NodeId>,
    start: Offset,
    end: Offset,
    size: u64,
    problems: Vec<(NodeId, Problem)>,
}

enum Problem {
    Differs(Difference),
    Unreadable(String),
}

impl Comparison {
    async fn run(
        admin: &Admin,
        topic: &TopicView,
        view: &PartitionView,
        progress: &Progress,
    ) -> Self {
        let mut replicas = view.replicas.clone();
        // A replica that was fenced may hold anything; the leader is right by definition.
        replicas.sort_by_key(|node| (*node != view.leader, !view.isr.contains(node)));
        let partition = TopicIdPartition { topic_id: topic.topic_id, partition: view.partition };
        let mut own = Self {
            partition: view.partition,
            replicas,
            start: 0,
            end: Offset::MAX,
            size: 0,
            problems: Vec::new(),
        };
        let replicas = Replicas { admin, partition };
        let mut left = Vec::new();
        for node in own.replicas.clone() {
            match replicas.range(node, 0, 0, CHUNK_SIZE).await {
                Ok(status) => {
                    own.start = own.start.max(status.log_start_offset);
                    own.end = own.end.min(status.high_watermark);
                    left.push(node);
                }
                Err(problem) => own.problems.push((node, Problem::Unreadable(problem))),
            }
        }
        let is_compacted =
            topic.configs.get("cleanup.policy").is_some_and(|policy| policy.contains("compact"));
        if let Some((first, others)) = left.split_first()
            && let Err(problem) =
                own.compare(&replicas, *first, others.to_vec(), is_compacted, progress).await
        {
            own.problems.push((*first, Problem::Unreadable(problem)));
        }
        own
    }

    /// Fails when the first replica cannot be read.
    async fn compare(
        &mut self,
        replicas: &Replicas<'_>,
        first: NodeId,
        mut others: Vec<NodeId>,
        is_compacted: bool,
        progress: &Progress,
    ) -> Result<(), String> {
        let mut from = self.start;
        while from < self.end && !others.is_empty() {
            let range = replicas.range(first, from, self.end, CHUNK_SIZE).await?;
            // Above the last batch there may be a gap on this replica only.
            let upper = if range.size == 0 { self.end } else { range.next_offset };
            let mut equal = Vec::new();
            for node in others {
                match replicas.find(first, node, (from, upper), &range, is_compacted).await {
                    Ok(None) => equal.push(node),
                    Ok(Some(difference)) => {
                        self.problems.push((node, Problem::Differs(difference)));
                    }
                    Err(problem) => self.problems.push((node, Problem::Unreadable(problem))),
                }
            }
            others = equal;
            self.size += u64::from(range.size);
            progress.advance(range.size.into());
            from = upper;
        }
        Ok(())
    }

    fn to_json(&self, topic: &str) -> Value {
        let problems = self.problems.iter().map(|(node, problem)| match problem {
            Problem::Differs(Difference { offset, reason }) => {
                json!({ "replica": node, "offset": offset, "difference": reason })
            }
            Problem::Unreadable(error) => json!({ "replica": node, "error": error }),
        });
        json!({
            "topic": topic,
            "partition": self.partition,
            "replicas": self.replicas,
            "start_offset": self.start,
            "end_offset": self.end,
            "size": self.size,
            "equal": self.problems.is_empty(),
            "problems": problems.collect::<Value>(),
        })
    }

    fn to_row(&self) -> [String; 6] {
        let problems = self.problems.iter().map(|(node, problem)| match problem {
            Problem::Differs(Difference { offset, reason }) => {
                format!("replica {node} DIFFERS at offset {offset}: {reason}")
            }
            Problem::Unreadable(error) => format!("replica {node}: {error}"),
        });
        let verdict = if self.problems.is_empty() {
            "equal".to_owned()
        } else {
            problems.collect::<Vec<_>>().join("; ")
        };
        [
            self.partition.to_string(),
            nodes(&self.replicas),
            self.start.to_string(),
            self.end.to_string(),
            self.size.to_string(),
            verdict,
        ]
    }
}

struct Replicas<'a> {
    admin: &'a Admin,
    partition: TopicIdPartition,
}

impl Replicas<'_> {
    async fn range(
        &self,
        node: NodeId,
        from: Offset,
        upper: Offset,
        bytes_max: u32,
    ) -> Result<ReplicaRange, String> {
        let partition = self.partition;
        let request = ReadReplicaRequest { partition, from, upper, bytes_max, with_bytes: false };
        let read = self.admin.read_replica(node, request).await;
        read.map(|(range, _)| range).map_err(|error| error.to_string())
    }

    /// Everything from `from` on and below `upper`.
    async fn bytes(&self, node: NodeId, from: Offset, upper: Offset) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut from = from;
        while from < upper {
            let request = ReadReplicaRequest {
                partition: self.partition,
                from,
                upper,
                bytes_max: CHUNK_SIZE,
                with_bytes: true,
            };
            let read = self.admin.read_replica(node, request).await;
            let (range, some) = read.map_err(|error| error.to_string())?;
            if some.is_empty() {
                break;
            }
            bytes.extend_from_slice(&some);
            from = range.next_offset;
        }
        Ok(bytes)
    }

    /// The first difference between two replicas in a range, of which one has told its digest.
    async fn find(
        &self,
        first: NodeId,
        other: NodeId,
        (from, upper): (Offset, Offset),
        range: &ReplicaRange,
        is_compacted: bool,
    ) -> Result<Option<Difference>, String> {
        let there = self.range(other, from, upper, CHUNK_SIZE_MAX).await?;
        if (there.size, there.digest) == (range.size, range.digest) {
            return Ok(None);
        }
        let (one, other) =
            (self.bytes(first, from, upper).await?, self.bytes(other, from, upper).await?);
        Ok(if is_compacted { of_records(&one, &other) } else { of_bytes(&one, &other) })
    }
}
