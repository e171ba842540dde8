//! Topics through the admin port of any node: what was answered is visible everywhere (INV-8).

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;

use kontiki::client::NewTopic;
use serde_json::{Value, json};

use super::harness::{Cluster, eventually};
use super::workload::{Load, TOPIC};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_answered_is_visible_on_every_node() {
    let cluster = Cluster::start().await;
    for round in 0..12 {
        let name = format!("topic-{round}");
        let path = format!("/v1/topics/{name}");
        // By turns, so that the request is forwarded from nodes that are not the controller too.
        let asked = 1 + round % 3;
        let body = json!({ "name": name, "partition_count": 3, "replication_factor": 3 });
        let created = cluster.http(asked, "POST", "/v1/topics", Some(&body)).expect("answered");
        assert_eq!(created.status, 201, "{created:?}");
        for id in cluster.ids() {
            let seen = cluster.get(id, &path).expect("answered");
            assert_eq!(seen.status, 200, "node {id} does not see {name}: {seen:?}");
            assert_eq!(seen.json()["topic_id"], created.json()["topic_id"]);
        }

        let patch = json!({ "configs": { "segment.bytes": "1048576" } });
        let patched = cluster.http(asked, "PATCH", &path, Some(&patch)).expect("answered");
        assert_eq!(patched.status, 200, "{patched:?}");
        for id in cluster.ids() {
            let configs = &cluster.get(id, &path).expect("answered").json()["configs"];
            assert_eq!(configs["segment.bytes"]["value"], "1048576", "node {id}");
        }

        let deleted = cluster.http(asked, "DELETE", &path, None).expect("answered");
        assert_eq!(deleted.status, 204, "{deleted:?}");
        for id in cluster.ids() {
            let seen = cluster.get(id, &path).expect("answered");
            assert_eq!(seen.status, 404, "node {id} still sees {name}: {seen:?}");
        }
    }
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wrong_request_gets_its_own_answer() {
    let cluster = Cluster::start().await;
    cluster.create_topic("orders", 1).await;
    let long = "a".repeat(250);
    let cases: &[(&str, &str, Value, u16, &str)] = &[
        ("POST", "/v1/topics", json!({ "name": "orders" }), 409, "TOPIC_ALREADY_EXISTS"),
        ("POST", "/v1/topics", json!({ "name": "" }), 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/v1/topics", json!({ "name": ".." }), 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/v1/topics", json!({ "name": "a/b" }), 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/v1/topics", json!({ "name": "ümlaut" }), 400, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/v1/topics", json!({ "name": long }), 400, "INVALID_TOPIC_EXCEPTION"),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "replication_factor": 4 }),
            400,
            "INVALID_REPLICATION_FACTOR",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "replication_factor": 0 }),
            400,
            "INVALID_REPLICATION_FACTOR",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "partition_count": 0 }),
            400,
            "INVALID_PARTITIONS",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "assignments": { "0": [1, 9] } }),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "assignments": { "0": [1, 1] } }),
            400,
            "INVALID_REPLICA_ASSIGNMENT",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "assignments": { "0": [1] }, "partition_count": 1 }),
            400,
            "INVALID_REQUEST",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "configs": { "retentoin.ms": "1" } }),
            400,
            "INVALID_CONFIG",
        ),
        (
            "POST",
            "/v1/topics",
            json!({ "name": "a", "configs": { "segment.bytes": "many" } }),
            400,
            "INVALID_CONFIG",
        ),
        (
            "PATCH",
            "/v1/topics/orders",
            json!({ "configs": { "min.insync.replicas": "-1" } }),
            400,
            "INVALID_CONFIG",
        ),
        (
            "PATCH",
            "/v1/topics/ordres",
            json!({ "configs": { "segment.ms": "1000" } }),
            404,
            "orders",
        ),
        ("DELETE", "/v1/topics/ordres", Value::Null, 404, "orders"),
        ("POST", "/v1/brokers/9/drain", Value::Null, 404, "1, 2, 3"),
    ];
    for id in cluster.ids() {
        for (method, path, body, status, mentions) in cases {
            let body = (!body.is_null()).then_some(body);
            let answer = cluster.http(id, method, path, body).expect("answered");
            assert_eq!(answer.status, *status, "{method} {path} {body:?}: {answer:?}");
            assert!(answer.body.contains(mentions), "{method} {path} {body:?}: {answer:?}");
        }
        let topics = cluster.get(id, "/v1/topics").expect("answered").json();
        let names: Vec<&Value> = topics["topics"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|topic| &topic["name"])
            .collect();
        assert_eq!(names, ["orders"], "nothing is half done");
    }
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_broker_leads_nothing_and_everything_is_still_led() {
    let cluster = Cluster::start().await;
    cluster.create_topic("orders", 6).await;
    let drained = cluster.http(1, "POST", "/v1/brokers/2/drain", None).expect("answered");
    assert_eq!(drained.status, 200, "{drained:?}");
    for id in cluster.ids() {
        let broker = cluster.get(id, "/v1/brokers/2").expect("answered").json();
        assert_eq!(broker["leaders"], 0, "as node {id} sees it: {broker}");
        let view = cluster.get(id, "/v1/cluster").expect("answered").json();
        assert_eq!(view["leaderless_partitions"], 0, "as node {id} sees it: {view}");
    }
    cluster.finish();
}

/// The least that a Kafka client says: ApiVersions, version 0, without a client id.
fn say_hello(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff]).expect("there is room");
    let mut head = [0; 8];
    stream.read_exact(&mut head).expect("answered");
    assert_eq!(head[4..], [0, 0, 0, 7], "to the request");
}

/// Names in `docs/metrics.md` and names that a node reports are the same set.
#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let cluster = Cluster::start().await;
    // A metric with labels shows when the first label has a value.
    say_hello(cluster.client_port(1));
    let body = cluster.get(1, "/metrics").expect("answered").body;
    let reported: BTreeSet<String> = body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|rest| {
            let (name, kind) = rest.split_once(' ')?;
            Some(if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        })
        .collect();
    let documented: BTreeSet<String> = include_str!("../../docs/metrics.md")
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    assert!(!reported.is_empty());
    assert_eq!(reported, documented);
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_move_while_records_are_written() {
    let cluster = Cluster::start().await;
    let admin = cluster.client().await.admin();
    let node = |id: i32| kontiki::types::NodeId(id);
    let mut topic = NewTopic::new(TOPIC);
    topic.assignments.insert(0, vec![node(1), node(2)]);
    admin.create_topic(topic).await.expect("created");
    let load = Load::start(&cluster, TOPIC).await;

    for (to, leads) in [([3, 2], 3), ([1, 3], 3), ([2, 1], 2)] {
        let replicas = to.map(node).to_vec();
        admin.reassign(TOPIC, vec![(0, Some(replicas.clone()))]).await.expect("it is possible");
        eventually("the move has ended", || async {
            let topic = admin.describe_topic(TOPIC).await.map_err(|error| error.to_string())?;
            let partition = &topic.partitions[0];
            let has_moved = partition.replicas == replicas && partition.removing.is_empty();
            if has_moved { Ok(()) } else { Err(format!("{partition:?}")) }
        })
        .await;
        load.progress().await;
        // A leader that stays leads; when it leaves, the first replica does.
        assert_eq!(cluster.leader(TOPIC, 0).await, leads);
    }
    let none = admin.reassign(TOPIC, vec![(0, None)]).await.expect_err("nothing moves");
    assert_eq!(none.code(), Some(kontiki::protocol::ErrorCode::NoReassignmentInProgress));

    load.check(&cluster).await;
    cluster.finish();
}
