//! Preferred leaders: a partition is led by its first replica again, once that may (replication.md 2.10).
//!
//! Placement spreads first replicas evenly, so leaders are spread evenly when each is where it should be.

use std::collections::BTreeSet;

use super::request::refuse;
use super::sweep::Sweep;
use super::{ControllerReply, Decision, Refusal};
use crate::metadata::{MetadataImage, PartitionImage, TopicImage};
use crate::protocol::ErrorCode;
use crate::types::{NodeId, TopicIdPartition};

/// Partitions that a broker of `settled` should lead, and may, and does not; at most `count_max`.
pub fn misplaced(
    image: &MetadataImage,
    settled: &BTreeSet<NodeId>,
    count_max: usize,
) -> Vec<TopicIdPartition> {
    let is_misplaced = |id: TopicIdPartition, partition: &PartitionImage| {
        partition.replicas.first().is_some_and(|first| {
            partition.leader != *first
                && settled.contains(first)
                && partition.isr.contains(first)
                && image.can_serve(*first, id)
        })
    };
    let all = all_partitions(image).filter(|(id, _, partition)| is_misplaced(*id, partition));
    all.map(|(id, ..)| id).take(count_max).collect()
}

/// Elects the first replicas of these partitions, or of all.
pub(super) fn elect(image: &MetadataImage, asked: Option<&[TopicIdPartition]>) -> Decision {
    let acceptable = |node| image.is_active(node);
    let sweep = Sweep { prefers_first: true, ..Sweep::new(image, &acceptable) };
    let mut records = Vec::new();
    let mut results = Vec::new();
    let mut elect_one = |id: TopicIdPartition, topic: &TopicImage, old: &PartitionImage| {
        let first = old.replicas.first().copied().unwrap_or(NodeId::NONE);
        if old.leader == first {
            let sentence = format!("node {first} leads it already");
            return refuse(ErrorCode::ElectionNotNeeded, sentence);
        }
        let changed = sweep.change(id, old, old.clone(), image.min_isr(&topic.name));
        let Some(changed) =
            changed.filter(|_| old.isr.contains(&first) && image.can_serve(first, id))
        else {
            let sentence = format!("node {first} is not in sync, or not there");
            return refuse(ErrorCode::PreferredLeaderNotAvailable, sentence);
        };
        records.push(changed);
        Ok(())
    };
    match asked {
        None => {
            for (id, topic, partition) in all_partitions(image) {
                let result = elect_one(id, topic, partition);
                let is_needless = |refusal: &Refusal| refusal.code == ErrorCode::ElectionNotNeeded;
                if !result.as_ref().is_err_and(is_needless) {
                    results.push((id, result));
                }
            }
        }
        Some(asked) => {
            for &id in asked.iter().collect::<BTreeSet<_>>() {
                let result = match image.topic_and_partition(id) {
                    Some((topic, partition)) => elect_one(id, topic, partition),
                    None => {
                        refuse(ErrorCode::UnknownTopicOrPartition, "there is no such partition")
                    }
                };
                results.push((id, result));
            }
        }
    }
    let reply = Ok(ControllerReply::ElectLeaders { results, index: image.index });
    Decision { records, reply }
}

fn all_partitions(
    image: &MetadataImage,
) -> impl Iterator<Item = (TopicIdPartition, &TopicImage, &PartitionImage)> {
    image.topics.values().flat_map(|topic| {
        (0..).zip(&topic.partitions).map(|(partition, state)| {
            (TopicIdPartition { topic_id: topic.topic_id, partition }, &**topic, &**state)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::ControllerRequest;
    use crate::controller::test_support::World;
    use crate::metadata::test_support::uuid;

    fn id(partition: i32) -> TopicIdPartition {
        TopicIdPartition { topic_id: uuid(7), partition }
    }

    fn leaders(world: &World) -> Vec<i32> {
        let topic = world.image.topic_by_id(uuid(7)).unwrap();
        topic.partitions.iter().map(|partition| partition.leader.0).collect()
    }

    /// Broker 1 was away, and is back in the ISR of partition 0 only.
    fn after_a_restart() -> World {
        let mut world = World::new(3);
        world.create("t", 7, &[&[1, 2, 3], &[1, 3, 2], &[2, 1, 3]]);
        world.fence(1);
        world.unfence(1).unwrap();
        world.rejoin(id(0), 1);
        assert_eq!(leaders(&world), [2, 3, 2]);
        world
    }

    fn elect(
        world: &mut World,
        partitions: Option<Vec<TopicIdPartition>>,
    ) -> Vec<(i32, ErrorCode)> {
        match world.call(ControllerRequest::ElectLeaders { partitions }).unwrap() {
            ControllerReply::ElectLeaders { results, .. } => {
                let code = |result: Result<(), Refusal>| {
                    result.map_or_else(|refusal| refusal.code, |()| ErrorCode::None)
                };
                results.into_iter().map(|(id, result)| (id.partition, code(result))).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_replica_leads_again_where_it_is_in_sync() {
        let mut world = after_a_restart();
        let settled = |ids: &[i32]| ids.iter().map(|id| NodeId(*id)).collect::<BTreeSet<_>>();
        assert_eq!(misplaced(&world.image, &settled(&[1, 2, 3]), 10), [id(0)]);
        assert_eq!(misplaced(&world.image, &settled(&[2, 3]), 10), []);
        assert_eq!(misplaced(&world.image, &settled(&[1]), 0), []);

        assert_eq!(
            elect(&mut world, None),
            [(0, ErrorCode::None), (1, ErrorCode::PreferredLeaderNotAvailable)]
        );
        assert_eq!(leaders(&world), [1, 3, 2]);
        assert_eq!(misplaced(&world.image, &settled(&[1, 2, 3]), 10), []);
    }

    #[test]
    fn each_partition_that_is_named_gets_its_answer() {
        let mut world = after_a_restart();
        let unknown = TopicIdPartition { topic_id: uuid(99), partition: 9 };
        let asked = vec![id(0), id(0), id(1), id(2), unknown];
        assert_eq!(
            elect(&mut world, Some(asked)),
            [
                (0, ErrorCode::None),
                (1, ErrorCode::PreferredLeaderNotAvailable),
                (2, ErrorCode::ElectionNotNeeded),
                (9, ErrorCode::UnknownTopicOrPartition),
            ]
        );
        assert_eq!(leaders(&world), [1, 3, 2]);
    }
}
