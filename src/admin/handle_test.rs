//! Requests against a stand-in for the broker, and bytes against the real listener.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::fake::FakeNode;
use super::handle::handle;
use super::route::Routes;
use crate::controller::{ConfigOperation, ControllerRequest, Refusal};
use crate::protocol::ErrorCode;
use crate::types::NodeId;

/// One answer, read whole.
struct Answer {
    status: u16,
    headers: hyper::HeaderMap,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn send(node: &Arc<FakeNode>, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Full::new(body.into()))
        .unwrap();
    read(handle(&node.api(), &Routes::new(), request).await).await
}

async fn read(response: Response<Full<Bytes>>) -> Answer {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    Answer { status: head.status.as_u16(), headers: head.headers, body }
}

fn get(path: &str) -> Answer {
    send(&FakeNode::new(), "GET", path, "")
}

#[test]
fn reads() {
    assert_eq!(get("/healthz").status, 200);
    assert_eq!(get("/readyz").status, 200);
    assert!(get("/metrics").body.ends_with("# EOF\n"));

    let cluster = get("/v1/cluster").json();
    assert_eq!(cluster["controller_id"], 2);
    assert_eq!(cluster["brokers"], json!({ "registered": 2, "active": 1 }));
    assert_eq!(cluster["under_replicated_partitions"], 1);
    assert_eq!(cluster["leaderless_partitions"], 0);

    let quorum = get("/v1/quorum").json();
    assert_eq!((&quorum["leader_id"], &quorum["term"]), (&json!(2), &json!(6)));
    assert_eq!(quorum["voters"][0]["raft_node_id"], u64::MAX.to_string());

    assert_eq!(get("/v1/brokers").json()["brokers"][1]["state"], "fenced");
    let broker = get("/v1/brokers/1").json();
    assert_eq!((&broker["leaders"], &broker["replicas"]), (&json!(1), &json!(1)));

    assert_eq!(get("/v1/topics").json()["topics"][0]["name"], "orders");
    let topic = get("/v1/topics/orders").json();
    assert_eq!(topic["replication_factor"], 2);
    assert_eq!(topic["configs"]["segment.bytes"]["source"], "default");
    let partition = get("/v1/topics/orders/partitions").json()["partitions"][0].clone();
    assert_eq!(partition, topic["partitions"][0]);
    let explanation = get("/v1/topics/orders/partitions/0/explain").json();
    assert_eq!(explanation["replicas"].as_array().map(Vec::len), Some(2), "{explanation}");
    assert_eq!(explanation["partition"], 0);
    assert_eq!(partition["isr"], json!([1]));
}

#[test]
fn a_node_that_is_not_ready_says_why() {
    let node = FakeNode::new();
    *node.readiness.lock() = Err("broker 1 is fenced".to_owned());
    let answer = send(&node, "GET", "/readyz", "");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["detail"], "broker 1 is fenced");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(send(&node, "GET", "/healthz", "").status, 200);
}

#[test]
fn creating_a_topic_asks_the_controller_exactly_that() {
    let node = FakeNode::new();
    let body = json!({
        "name": "new", "assignments": { "0": [1, 2] }, "configs": { "segment.bytes": "1048576" }
    });
    let answer = send(&node, "POST", "/v1/topics", body.to_string());
    assert_eq!((answer.status, answer.header("location")), (201, "/v1/topics/new"));
    let asked = node.asked.lock();
    let (principal, ControllerRequest::CreateTopics { topics, validate_only: false }) = &asked[0]
    else {
        panic!("asked {asked:?}")
    };
    assert_eq!(principal, "User:ANONYMOUS");
    assert_eq!((topics[0].partition_count, topics[0].replication_factor), (-1, -1));
    assert_eq!(topics[0].assignments[&0], [NodeId(1), NodeId(2)]);
    assert_eq!(topics[0].configs, [("segment.bytes".to_owned(), Some("1048576".to_owned()))]);
    assert_eq!(answer.json()["topic_id"], topics[0].topic_id.to_string());
}

#[test]
fn changing_deleting_and_draining() {
    let node = FakeNode::new();
    let body = r#"{"configs": {"segment.bytes": "1048576", "segment.ms": null}}"#;
    assert_eq!(send(&node, "PATCH", "/v1/topics/orders", body).status, 200);
    assert_eq!(send(&node, "DELETE", "/v1/topics/orders", "").status, 204);
    assert_eq!(send(&node, "POST", "/v1/brokers/2/drain", "").json()["node_id"], 2);

    let asked = node.asked.lock();
    let ControllerRequest::AlterConfigs { changes, .. } = &asked[0].1 else {
        panic!("asked {asked:?}")
    };
    let expected = [
        ("segment.bytes".to_owned(), ConfigOperation::Set("1048576".to_owned())),
        ("segment.ms".to_owned(), ConfigOperation::Delete),
    ];
    assert_eq!(changes[0].operations, expected);
    assert!(matches!(asked[1].1, ControllerRequest::DeleteTopics { .. }));
    assert_eq!(asked[2].1, ControllerRequest::Drain { node_id: NodeId(2) });
}

#[test]
fn refusals_keep_their_code_and_get_a_status() {
    for (code, status) in [
        (ErrorCode::TopicAlreadyExists, 409),
        (ErrorCode::InvalidReplicationFactor, 400),
        (ErrorCode::PolicyViolation, 403),
        (ErrorCode::NotController, 503),
        (ErrorCode::RequestTimedOut, 504),
        (ErrorCode::UnknownServerError, 500),
    ] {
        let node = FakeNode::new();
        *node.refusal.lock() = Some(Refusal::new(code, "because"));
        let answer = send(&node, "POST", "/v1/topics", r#"{"name": "orders"}"#);
        assert_eq!(answer.status, status, "{code:?}");
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        assert_eq!(problem["code"], code.name());
        assert_eq!(problem["status"], status);
        assert_eq!(problem["detail"], "because");
    }
}

#[test]
fn what_does_not_exist_is_named_with_its_nearest() {
    for (path, nearest) in [
        ("/v1/topic", "/v1/topics"),
        ("/v1/topics/ordres", "orders"),
        ("/v1/topics/orderz/partitions", "orders"),
        ("/v1/topics/orders/partitions/99/explain", "99"),
        ("/v1/topics/orders/partitions/x/explain", "x"),
        ("/v1/brokers/7", "1, 2"),
        ("/v1/brokers/one", "1, 2"),
        ("/completely/elsewhere", "openapi.json"),
    ] {
        let answer = get(path);
        assert_eq!(answer.status, 404, "{path}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(nearest), "{path}: {detail}");
    }
    // The controller has the last word on a change; its refusal gets the same suggestion.
    let node = FakeNode::new();
    *node.refusal.lock() = Some(Refusal::new(ErrorCode::UnknownTopicOrPartition, "no such topic"));
    let answer = send(&node, "DELETE", "/v1/topics/ordres", "");
    assert_eq!(answer.status, 404);
    assert!(answer.body.contains("orders"), "{}", answer.body);
}

#[test]
fn bad_requests_never_reach_the_controller() {
    let large = format!(r#"{{"name": "{}"}}"#, "a".repeat(super::body::BODY_SIZE_MAX));
    let cases: &[(&str, &str, &str, u16, &str)] = &[
        ("POST", "/v1/topics", "{", 400, "EOF"),
        ("POST", "/v1/topics", "", 400, "EOF"),
        ("POST", "/v1/topics", r#"{"partition_count": 1}"#, 400, "name"),
        ("POST", "/v1/topics", r#"{"name": "a", "partitons": 1}"#, 400, "partitons"),
        ("POST", "/v1/topics", r#"{"name": "a", "partition_count": 4294967296}"#, 400, "i32"),
        ("POST", "/v1/topics", r#"{"name": "a"} {}"#, 400, "trailing"),
        ("POST", "/v1/topics", &large, 413, "limit"),
        ("PATCH", "/v1/topics/orders", r#"{"configs": {}}"#, 400, "nothing to change"),
        ("DELETE", "/v1/topics/orders", r#"{"really": true}"#, 400, "no body"),
        ("POST", "/v1/brokers/7/drain", "", 404, "1, 2"),
        ("PUT", "/v1/topics", "", 405, "GET, POST"),
        ("DELETE", "/v1/topics/orders/partitions", "", 405, "GET"),
        ("GET", "/v1/topics?limit=1", "", 400, "query"),
    ];
    let node = FakeNode::new();
    for (method, path, body, status, mentions) in cases {
        let answer = send(&node, method, path, (*body).to_owned());
        assert_eq!(answer.status, *status, "{method} {path}: {}", answer.body);
        assert!(answer.body.contains(mentions), "{method} {path}: {}", answer.body);
        if *status == 405 {
            assert_eq!(answer.header("allow"), *mentions);
        }
    }
    assert!(node.asked.lock().is_empty());
}

#[test]
fn a_body_of_another_type_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let node = FakeNode::new();
    let request = Request::post("/v1/topics")
        .header("content-type", "text/plain")
        .body(Full::new(Bytes::from_static(br#"{"name": "a"}"#)))
        .unwrap();
    let answer =
        runtime.block_on(async { read(handle(&node.api(), &Routes::new(), request).await).await });
    assert_eq!(answer.status, 415);
    assert!(node.asked.lock().is_empty());
}

/// Runs the real listener around a test that talks to it with blocking sockets.
fn with_listener(test: impl FnOnce(std::net::SocketAddr)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (stop, shutdown) = watch::channel(false);
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let served = runtime.spawn(super::serve(listener, FakeNode::new().api(), shutdown));
    test(address);
    stop.send(true).unwrap();
    let ended =
        runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), served).await });
    ended.expect("the listener stops").unwrap();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn garbage_closes_its_own_connection_only() {
    with_listener(|address| {
        let mut idle = TcpStream::connect(address).unwrap();
        let get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on\r\n\r\n";
        let kafka = b"\x00\x00\x00\x10\x00\x12\x00\x03\x00\x00\x00\x01\x00\x04test\r\n\r\n";
        for garbage in [&tls[..], &kafka[..], b"GET\r\n\r\n"] {
            let answer = exchange(&mut TcpStream::connect(address).unwrap(), garbage);
            assert!(answer.starts_with("HTTP/1.1 400"), "{garbage:?}: {answer:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(20_000));
        let answer = exchange(&mut TcpStream::connect(address).unwrap(), long.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 414"), "{answer:.100?}");
        let answer = exchange(&mut idle, get);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        let foreign = b"GET /healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n";
        let answer = exchange(&mut TcpStream::connect(address).unwrap(), foreign);
        assert!(answer.starts_with("HTTP/1.1 421"), "{answer:?}");
    });
}

#[test]
fn one_connection_too_many_is_told_so() {
    with_listener(|address| {
        // Each proves that it was accepted before the next one comes.
        let held: Vec<TcpStream> = (0..256)
            .map(|_| {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
                let mut first = [0; 12];
                stream.read_exact(&mut first).unwrap();
                assert_eq!(&first, b"HTTP/1.1 200");
                stream
            })
            .collect();
        let answer = exchange(&mut TcpStream::connect(address).unwrap(), b"");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer:?}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(serde_json::from_str::<Value>(body).unwrap()["status"], 503);
        drop(held);
    });
}
