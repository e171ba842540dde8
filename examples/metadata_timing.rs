//! How long the metadata path takes for a broker that leads or follows in many partitions: deciding its fencing,
//! encoding the batch, replaying it, and the delta that every broker applies (bar: 100 ms in all for 20,000).
//!
//! `cargo run --release --example metadata_timing -- 20000`

use std::time::Instant;

use kontiki::codec;
use kontiki::controller::{
    ClusterDefaults, ControllerCall, ControllerRequest, CreatableTopic, DecisionContext,
    DecisionRequest, Liveness, LivenessConfig, RegisterBrokerRequest, Turn,
};
use kontiki::metadata::{MetadataDelta, MetadataImage, RegisterBrokerRecord};
use kontiki::types::{BrokerEpoch, Endpoints, HostPort, NodeId, Uuid, random, time};

const TOPIC_PARTITIONS: i32 = 1000;

fn main() {
    let partitions = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let cluster_id = random::uuid();
    let mut image = MetadataImage::default();
    for node_id in 1..=3 {
        run(&mut image, cluster_id, &call(register(cluster_id, node_id)));
        let broker_epoch = epoch(&image, node_id);
        let node_id = NodeId(node_id);
        let applied_index = image.index;
        let unfence = DecisionRequest::Unfence { node_id, broker_epoch, applied_index };
        run(&mut image, cluster_id, &unfence);
    }
    for topic in 0..partitions / TOPIC_PARTITIONS {
        let topics = vec![CreatableTopic {
            name: format!("topic-{topic}"),
            topic_id: random::uuid(),
            partition_count: TOPIC_PARTITIONS,
            replication_factor: 3,
            assignments: Default::default(),
            configs: Vec::new(),
        }];
        let request = ControllerRequest::CreateTopics { topics, validate_only: false };
        run(&mut image, cluster_id, &call(request));
    }

    println!("fence a broker:");
    let cause = "timing".to_owned();
    let broker_epoch = epoch(&image, 1);
    let fence = DecisionRequest::Fence { node_id: NodeId(1), broker_epoch, cause };
    let timings = run(&mut image, cluster_id, &fence);
    timings.print();
    println!("one more small batch:");
    run(&mut image, cluster_id, &call(register(cluster_id, 1))).print();
}

struct Timings(Vec<(&'static str, f64)>);

impl Timings {
    fn add(&mut self, what: &'static str, since: Instant) {
        self.0.push((what, since.elapsed().as_secs_f64() * 1e3));
    }

    fn print(&self) {
        for (what, ms) in &self.0 {
            println!("  {what:>8} {ms:8.2} ms");
        }
        println!("  {:>8} {:8.2} ms", "sum", self.0.iter().map(|(_, ms)| ms).sum::<f64>());
    }
}

fn run(image: &mut MetadataImage, cluster_id: Uuid, request: &DecisionRequest) -> Timings {
    let liveness = Liveness::new(LivenessConfig::default());
    let defaults = ClusterDefaults { partition_count: 1, replication_factor: None, cluster_id };
    let context = DecisionContext {
        now_ms: time::wall_ms(),
        seed: random::seed(),
        liveness: &liveness,
        defaults: &defaults,
    };
    let mut timings = Timings(Vec::new());
    let before = image.clone();

    let start = time::now();
    let mut turn = Turn::begin(&before, context);
    turn.decide(request);
    let batch = turn.finish(1).expect("the request changes something");
    timings.add("decide", start);

    let start = time::now();
    let bytes = codec::encode(&batch);
    timings.add("encode", start);

    let start = time::now();
    let batch = codec::decode("batch", &bytes, u64::MAX).expect("it was encoded a moment ago");
    timings.add("decode", start);

    let start = time::now();
    image.replay(image.index + 1, &batch).expect("it was decided on this image");
    timings.add("replay", start);

    let start = time::now();
    let delta = MetadataDelta::between(&before, image);
    timings.add("delta", start);
    assert!(!delta.is_empty(), "the request changes something");
    timings
}

fn call(request: ControllerRequest) -> DecisionRequest {
    DecisionRequest::Call(ControllerCall { principal: "timing".to_owned(), request })
}

fn epoch(image: &MetadataImage, node_id: i32) -> BrokerEpoch {
    image.broker(NodeId(node_id)).expect("it is registered").broker_epoch
}

fn register(cluster_id: Uuid, node_id: i32) -> ControllerRequest {
    let directory = random::uuid();
    let address = |port| HostPort { host: "localhost".to_owned(), port };
    ControllerRequest::RegisterBroker(RegisterBrokerRequest {
        cluster_id,
        registration: RegisterBrokerRecord {
            node_id: NodeId(node_id),
            incarnation: random::uuid(),
            raft_node_id: directory.raft_node_id(),
            directory_ids: vec![directory],
            endpoints: Endpoints { client: address(1), peer: address(2), admin: address(3) },
            rack: None,
            features: Default::default(),
        },
        previous_broker_epoch: BrokerEpoch::NONE,
        supersede: true,
    })
}
