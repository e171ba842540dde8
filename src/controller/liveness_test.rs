//! Sessions, probes and stalls of the controller itself, on a clock of the test.

use super::super::DecisionRequest;
use super::super::test_support::World;
use super::*;

/// Brokers `1..=count`, a controller elected at 0, ticks every 50 ms.
struct Watch {
    world: World,
    now: u64,
    /// Brokers that send heartbeats.
    beating: Vec<i32>,
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Watch {
    fn new(count: i32) -> Self {
        let mut world = World::new(count);
        assert_eq!(world.liveness.on_elected(&world.image, Duration::ZERO), []);
        Self { world, now: 0, beating: (1..=count).collect() }
    }

    fn beat(&mut self, node_id: i32) {
        let request = HeartbeatRequest {
            node_id: NodeId(node_id),
            broker_epoch: self.world.epoch(node_id),
            applied_index: self.world.image.index,
            want_fence: false,
            want_shutdown: false,
            disk_stall_ms: 0,
        };
        self.world.liveness.on_heartbeat(&request, ms(self.now));
    }

    fn tick(&mut self) -> Vec<LivenessEffect> {
        self.now += 50;
        for node_id in self.beating.clone() {
            self.beat(node_id);
        }
        self.world.liveness.on_tick(&self.world.image, ms(self.now))
    }

    /// Ticks until there is an effect, for so long; with the time that it took.
    fn until_effect(&mut self, patience: u64) -> (u64, Vec<LivenessEffect>) {
        let start = self.now;
        while self.now < start + patience {
            let effects = self.tick();
            if !effects.is_empty() {
                return (self.now - start, effects);
            }
        }
        (patience, Vec::new())
    }

    fn fence(&self, node_id: i32, cause: &str) -> LivenessEffect {
        let broker_epoch = self.world.epoch(node_id);
        LivenessEffect::Fence { node_id: NodeId(node_id), broker_epoch, cause: cause.to_owned() }
    }

    fn incarnation(&self, node_id: i32) -> IncarnationId {
        self.world.image.broker(NodeId(node_id)).unwrap().registration.incarnation
    }

    fn lost(&mut self, node_id: i32) -> Vec<LivenessEffect> {
        let incarnation = self.incarnation(node_id);
        self.world.liveness.on_peer_lost(NodeId(node_id), incarnation, ms(self.now))
    }

    fn probed(&mut self, node_id: i32, verdict: ProbeVerdict) -> Vec<LivenessEffect> {
        let (id, incarnation) = (NodeId(node_id), self.incarnation(node_id));
        let World { liveness, image, .. } = &mut self.world;
        liveness.on_probe(image, id, incarnation, verdict, ms(self.now))
    }

    fn probe(&self, node_id: i32) -> LivenessEffect {
        let incarnation = self.incarnation(node_id);
        LivenessEffect::Probe { node_id: NodeId(node_id), incarnation }
    }
}

#[test]
fn a_silent_broker_is_fenced_when_its_session_ends() {
    let mut watch = Watch::new(3);
    assert_eq!(watch.until_effect(5000), (5000, vec![]));
    watch.beating = vec![1, 3];
    let fence = watch.fence(2, "no heartbeat for 700 ms");
    assert_eq!(watch.until_effect(5000), (700, vec![fence]));
    assert_eq!(watch.tick(), [], "it is asked for once");
    let again = watch.fence(2, "no heartbeat for 1400 ms");
    assert_eq!(watch.until_effect(5000).1, [again], "and again if nothing came of it");
    watch.world.fence(2);
    assert_eq!(watch.until_effect(5000), (5000, vec![]));
}

#[test]
fn a_refused_probe_fences_at_once() {
    let mut watch = Watch::new(3);
    watch.tick();
    assert_eq!(watch.lost(2), [watch.probe(2)]);
    assert_eq!(watch.lost(2), [], "one probe at a time");
    let fence = watch.fence(2, "its process is gone");
    assert_eq!(watch.probed(2, ProbeVerdict::Dead), [fence]);
    watch.world.fence(2);
    assert_eq!(watch.tick(), []);

    // A heartbeat that it had sent before does not bring it back.
    let request = HeartbeatRequest {
        node_id: NodeId(2),
        broker_epoch: watch.world.epoch(2),
        applied_index: watch.world.image.index,
        want_fence: false,
        want_shutdown: false,
        disk_stall_ms: 0,
    };
    let next = |watch: &Watch| {
        super::super::heartbeat_reply(&watch.world.image, &watch.world.liveness, &request)
            .unwrap()
            .1
    };
    assert_eq!(next(&watch), None);
    watch.until_effect(1100);
    assert!(matches!(next(&watch), Some(DecisionRequest::Unfence { .. })));
}

#[test]
fn a_probe_that_is_answered_or_times_out_fences_nobody() {
    let mut watch = Watch::new(3);
    for verdict in [ProbeVerdict::Alive, ProbeVerdict::Unknown] {
        assert_eq!(watch.lost(2), [watch.probe(2)]);
        assert_eq!(watch.probed(2, verdict), []);
    }
    watch.lost(2);
    watch.until_effect(1000);
    assert_eq!(watch.lost(2), [watch.probe(2)], "a probe whose answer was lost is forgotten");
}

#[test]
fn the_death_of_an_earlier_life_is_no_news() {
    let mut watch = Watch::new(2);
    let earlier = watch.incarnation(2);
    let previous = watch.world.epoch(2);
    watch.world.register(2, 1, previous).unwrap();
    watch.world.unfence(2).unwrap();
    let World { liveness, image, .. } = &mut watch.world;
    let effects = liveness.on_probe(image, NodeId(2), earlier, ProbeVerdict::Dead, ms(0));
    assert_eq!(effects, []);
}

#[test]
fn a_new_controller_asks_once_more_after_those_it_saw_die() {
    let mut watch = Watch::new(3);
    watch.world.liveness.on_deposed();
    watch.lost(2);
    assert_eq!(watch.probed(2, ProbeVerdict::Dead), [], "only the active controller judges");
    watch.lost(3);
    watch.probed(3, ProbeVerdict::Alive);
    watch.now += 500;
    let effects = watch.world.liveness.on_elected(&watch.world.image, ms(watch.now));
    assert_eq!(effects, [watch.probe(2)]);
    let fence = watch.fence(2, "its process is gone");
    assert_eq!(watch.probed(2, ProbeVerdict::Dead), [fence]);

    watch.world.liveness.on_deposed();
    watch.lost(3);
    watch.probed(3, ProbeVerdict::Dead);
    watch.now += 1500;
    let effects = watch.world.liveness.on_elected(&watch.world.image, ms(watch.now));
    assert_eq!(effects, [], "old evidence is worth nothing");
}

#[test]
fn a_new_controller_gives_everybody_a_session() {
    let mut watch = Watch::new(3);
    watch.beating = vec![];
    watch.world.liveness.on_deposed();
    watch.now = 60_000;
    let effects = watch.world.liveness.on_elected(&watch.world.image, ms(watch.now));
    assert_eq!(effects, []);
    watch.beating = vec![1, 3];
    assert_eq!(watch.until_effect(5000).0, 700);
}

#[test]
fn a_controller_that_was_not_served_blames_nobody() {
    let mut watch = Watch::new(3);
    watch.tick();
    watch.beating = vec![1, 3];
    watch.now += 5000;
    assert_eq!(watch.tick(), []);
    assert_eq!(watch.until_effect(5000).0, 700);
    let mut watch = Watch::new(3);
    watch.beating = vec![1, 3];
    watch.until_effect(600);
    watch.world.liveness.on_stall(ms(watch.now));
    assert_eq!(watch.until_effect(5000).0, 700);
}

#[test]
fn many_silent_brokers_are_probed_before_they_are_fenced() {
    let mut watch = Watch::new(5);
    watch.beating = vec![1, 2];
    let (after, effects) = watch.until_effect(5000);
    assert_eq!((after, effects), (700, vec![watch.probe(3), watch.probe(4), watch.probe(5)]));
    let mut fenced = Vec::new();
    while fenced.is_empty() {
        fenced = watch.tick();
        fenced.retain(|effect| matches!(effect, LivenessEffect::Fence { .. }));
    }
    assert_eq!((fenced.len(), watch.now), (3, 1400));
}

#[test]
fn a_wrong_fencing_doubles_the_session_for_a_while() {
    let mut watch = Watch::new(3);
    for session in [700, 1400, 2800, 5600, 9000, 9000] {
        watch.beating = vec![1, 3];
        let (after, effects) = watch.until_effect(20_000);
        assert_eq!((after, effects.len()), (session, 1));
        watch.world.fence(2);
        watch.beating = vec![1, 2, 3];
        watch.tick();
        watch.world.unfence(2).unwrap();
    }
    watch.until_effect(3_600_000);
    watch.beating = vec![1, 3];
    assert_eq!(watch.until_effect(20_000).0, 700);
}

#[test]
fn a_restarted_broker_keeps_its_damping_but_not_its_silence() {
    let mut watch = Watch::new(3);
    watch.beating = vec![1, 3];
    watch.until_effect(5000);
    watch.world.fence(2);
    let previous = watch.world.epoch(2);
    watch.world.register(2, 1, previous).unwrap();
    watch.beating = vec![1, 2, 3];
    watch.tick();
    watch.world.unfence(2).unwrap();
    watch.beating = vec![1, 3];
    assert_eq!(watch.until_effect(5000).0, 700, "its death was no mistake");
}
