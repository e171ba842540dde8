//! Where the replicas of a new topic go: striped over racks and brokers (replication.md 1.6).
//!
//! Leaders are spread evenly over the brokers that live; replicas over as many racks as there are; and the followers
//! of one broker's partitions over all others, so that its load is shared when it fails.

use std::collections::BTreeMap;

use super::Refusal;
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::types::NodeId;
use crate::types::random::Seeded;

fn shuffle<T>(random: &mut Seeded, items: &mut [T]) {
    for end in (1..items.len()).rev() {
        items.swap(end, random.below(end + 1));
    }
}

/// The brokers of one rack that are in one state, taken in turn. Each `round` (partition) starts one further on.
#[derive(Debug, Default)]
struct Wheel {
    brokers: Vec<NodeId>,
    offset: usize,
    taken: usize,
    round: usize,
}

impl Wheel {
    fn next(&mut self, round: usize) -> Option<NodeId> {
        let count = self.brokers.len();
        if self.round != round {
            self.round = round;
            self.taken = 0;
            self.offset = (self.offset + 1) % count.max(1);
        }
        if self.taken == count {
            return None;
        }
        self.taken += 1;
        self.brokers.get((self.offset + self.taken - 1) % count).copied()
    }

    fn restart(&mut self, random: &mut Seeded) {
        shuffle(random, &mut self.brokers);
        *self = Self {
            offset: random.below(self.brokers.len()),
            brokers: std::mem::take(&mut self.brokers),
            ..Self::default()
        };
    }
}

#[derive(Debug, Default)]
struct Rack {
    live: Wheel,
    fenced: Wheel,
}

impl Rack {
    fn next(&mut self, round: usize) -> Option<NodeId> {
        self.live.next(round).or_else(|| self.fenced.next(round))
    }
}

/// Brokers that may get replicas: all that are registered and not about to leave.
pub(super) fn usable_brokers(image: &MetadataImage) -> usize {
    image.brokers.values().filter(|broker| !broker.in_controlled_shutdown).count()
}

/// Replicas of `partition_count` partitions, preferred leader first.
pub(super) fn place(
    image: &MetadataImage,
    partition_count: usize,
    replication_factor: usize,
    seed: u64,
) -> Result<Vec<Vec<NodeId>>, Refusal> {
    let mut by_rack: BTreeMap<Option<&str>, Rack> = BTreeMap::new();
    for (node_id, broker) in &image.brokers {
        if !broker.in_controlled_shutdown {
            let rack = by_rack.entry(broker.registration.rack.as_deref()).or_default();
            let wheel = if broker.fenced { &mut rack.fenced } else { &mut rack.live };
            wheel.brokers.push(*node_id);
        }
    }
    let mut racks: Vec<Rack> = by_rack.into_values().collect();
    let live_count: usize = racks.iter().map(|rack| rack.live.brokers.len()).sum();
    let count = live_count + racks.iter().map(|rack| rack.fenced.brokers.len()).sum::<usize>();
    let refuse = |reason| Err(Refusal::new(ErrorCode::InvalidReplicationFactor, reason));
    if replication_factor > count {
        return refuse(format!(
            "a replication factor of {replication_factor} needs as many brokers, and there are {count}"
        ));
    }
    if live_count == 0 {
        return refuse("no broker is alive to lead the partitions".to_owned());
    }

    let mut random = Seeded(seed);
    for rack in &mut racks {
        // Brokers of a rack start in order: only the starting point is random.
        rack.live.offset = random.below(rack.live.brokers.len());
        rack.fenced.offset = random.below(rack.fenced.brokers.len());
    }
    let mut start = random.below(racks.len());
    let mut round = 0;
    let mut placed = Vec::with_capacity(partition_count);
    for _ in 0..partition_count {
        if round == live_count && live_count > 1 {
            // All leaders had their turn: go on in another order, so that the same pairs do not repeat.
            shuffle(&mut random, &mut racks);
            for rack in &mut racks {
                rack.live.restart(&mut random);
                rack.fenced.restart(&mut random);
            }
            round = 0;
        }
        placed.push(place_one(&mut racks, start, round, replication_factor));
        start = (start + 1) % racks.len();
        round += 1;
    }
    Ok(placed)
}

/// There is a live broker, and there are at least as many brokers as replicas, so both walks end.
fn place_one(racks: &mut [Rack], start: usize, round: usize, count: usize) -> Vec<NodeId> {
    let order: Vec<usize> = (0..racks.len()).map(|i| (start + i) % racks.len()).collect();
    let mut replicas = Vec::with_capacity(count);
    let mut leader_rack = None;
    for &rack in &order {
        if let Some(leader) = racks[rack].live.next(round) {
            replicas.push(leader);
            leader_rack = Some(rack);
            break;
        }
    }
    for &rack in order.iter().cycle() {
        if replicas.len() >= count {
            break;
        }
        // The leader's rack has its replica of the first lap already.
        if leader_rack == Some(rack) {
            leader_rack = None;
        } else {
            replicas.extend(racks[rack].next(round));
        }
    }
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MetadataRecord;
    use crate::metadata::test_support::*;
    use crate::types::BrokerEpoch;

    /// Brokers with these racks, those in `fenced` fenced.
    fn image(racks: &[Option<&str>], fenced: &[i32]) -> MetadataImage {
        let mut image = MetadataImage::default();
        for (id, rack) in (1..).zip(racks) {
            let mut registration = registration(id, 0);
            registration.rack = rack.map(str::to_owned);
            let index = apply(&mut image, vec![MetadataRecord::RegisterBroker(registration)]);
            if !fenced.contains(&id) {
                let epoch = BrokerEpoch(i64::try_from(index).unwrap());
                apply(&mut image, vec![unfenced(id, epoch)]);
            }
        }
        image
    }

    fn counts<'a>(nodes: impl Iterator<Item = &'a NodeId>) -> BTreeMap<NodeId, usize> {
        nodes.fold(BTreeMap::new(), |mut counts, node| {
            *counts.entry(*node).or_default() += 1;
            counts
        })
    }

    #[test]
    fn leaders_and_replicas_are_even() {
        for seed in 0..50 {
            let placed = place(&image(&[None; 5], &[]), 100, 3, seed).unwrap();
            let leaders = counts(placed.iter().map(|replicas| &replicas[0]));
            assert!(leaders.values().all(|count| *count == 20), "seed {seed}: {leaders:?}");
            let all = counts(placed.iter().flatten());
            assert!(all.values().all(|count| *count == 60), "seed {seed}: {all:?}");
            for replicas in &placed {
                assert_eq!(counts(replicas.iter()).len(), 3, "seed {seed}: {replicas:?}");
            }
        }
    }

    #[test]
    fn replicas_are_in_different_racks() {
        let racks = [Some("a"), Some("a"), Some("a"), Some("b"), Some("c"), Some("c")];
        let image = image(&racks, &[]);
        for seed in 0..50 {
            for replicas in place(&image, 40, 3, seed).unwrap() {
                let mut of: Vec<_> =
                    replicas.iter().map(|node| racks[node.0 as usize - 1]).collect();
                of.sort_unstable();
                assert_eq!(of, [Some("a"), Some("b"), Some("c")], "seed {seed}: {replicas:?}");
            }
        }
    }

    #[test]
    fn fenced_brokers_follow_but_do_not_lead() {
        let image = image(&[None; 3], &[2]);
        for seed in 0..20 {
            for replicas in place(&image, 10, 3, seed).unwrap() {
                assert_eq!(replicas.len(), 3);
                assert_ne!(replicas[0], NodeId(2));
                assert_eq!(replicas[2], NodeId(2), "the living come first");
            }
        }
    }

    #[test]
    fn too_few_brokers_are_refused() {
        let code = |image, factor| place(&image, 1, factor, 0).unwrap_err().code;
        assert_eq!(code(image(&[None; 2], &[]), 3), ErrorCode::InvalidReplicationFactor);
        assert_eq!(code(image(&[None; 2], &[1, 2]), 1), ErrorCode::InvalidReplicationFactor);
        assert_eq!(code(image(&[], &[]), 1), ErrorCode::InvalidReplicationFactor);
    }

    #[test]
    fn the_same_seed_places_the_same() {
        let image = image(&[None, Some("a"), Some("b"), Some("b")], &[3]);
        assert_eq!(place(&image, 30, 2, 7), place(&image, 30, 2, 7));
        assert_ne!(place(&image, 30, 2, 7), place(&image, 30, 2, 8));
    }
}
