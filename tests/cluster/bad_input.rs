//! Bytes of other protocols and frames that lie, on every port, while records are written.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::harness::{Cluster, DEADLINE};
use super::workload::{Load, TOPIC, under_load};

/// Most that a node may hold after all this; each of the forged lengths asks for more.
const RESIDENT_BYTES_MAX: f64 = 400e6;

/// What arrives, and what it is.
fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |length: u32, rest: &[u8]| [&length.to_be_bytes()[..], rest].concat();
    // Header of a Kafka request: key, version, correlation id, client id.
    let kafka = |key: i16, version: i16, body: &[u8]| {
        let header =
            [&key.to_be_bytes()[..], &version.to_be_bytes(), &7_i32.to_be_bytes(), &[0, 1, b'x']];
        let content = [&header.concat()[..], body].concat();
        frame(u32::try_from(content.len()).expect("small"), &content)
    };
    let native = |length: u32, kind: u16, body_size: u32, body: &[u8]| {
        let head = [&1_u16.to_be_bytes()[..], &kind.to_be_bytes(), &1_u64.to_be_bytes()].concat();
        frame(length, &[&head[..], &body_size.to_be_bytes(), body].concat())
    };
    let preface = |rest: Vec<u8>| [&b"\xffKT1"[..], &rest].concat();
    let mut inputs = vec![
        ("nothing", Vec::new()),
        ("one byte", vec![0]),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x8f\x1d\x00\x11\x22\x33".to_vec()),
        ("SSH", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        ("a frame of length 0", frame(0, &[])),
        ("a negative length", frame(u32::MAX, &[0; 64])),
        ("the longest length", frame(i32::MAX as u32, &[0; 64])),
        ("a truncated frame", frame(1000, &[0; 10])),
        ("an unknown API", kafka(999, 0, &[])),
        ("a negative API", kafka(-1, 0, &[])),
        ("an unknown version", kafka(3, 99, &[0; 16])),
        ("Metadata of 2^31 topics", kafka(3, 1, &i32::MAX.to_be_bytes())),
        (
            "Produce of 2^31 topics",
            kafka(0, 3, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff]),
        ),
        (
            "Fetch of 2^31 topics",
            kafka(1, 4, &[&[0xff; 4][..], &[0; 12], &[0], &i32::MAX.to_be_bytes()].concat()),
        ),
        ("a forged compact length", kafka(18, 3, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2])),
        ("only the preface", preface(Vec::new())),
        ("the preface and HTTP", preface(b"GET / HTTP/1.1\r\n\r\n".to_vec())),
        ("a native hello of garbage", preface(native(20, 1, 4, &[9; 4]))),
        ("a native frame with too large a body", preface(native(20, 1, 4000, &[9; 4]))),
        ("a native frame of 2 GB", preface(native(i32::MAX as u32, 1, 4, &[9; 4]))),
        ("a native frame of an unknown kind", preface(native(20, 9999, 4, &[9; 4]))),
        ("a peer hello of garbage", native(20, 1, 4, &[9; 4])),
        ("a Raft call before the hello", native(20, 16, 4, &[9; 4])),
        ("a peer frame of 4 GB", native(u32::MAX, 1, 4, &[9; 4])),
    ];
    // Noise: always the same, so that a failure can be repeated.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20 {
        let noise = (0..512)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[0]
            })
            .collect();
        inputs.push(("noise", noise));
    }
    inputs
}

/// Sends the bytes and the end of the stream, and waits until the node has closed the connection.
fn send(port: u16, bytes: &[u8]) -> Result<(), String> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = TcpStream::connect_timeout(&address, DEADLINE).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(DEADLINE)).map_err(|e| e.to_string())?;
    // The node may close before it has read everything; then a write or a read fails, and that is an answer too.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err("the connection is still open".to_owned())
        }
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_hurts_nobody_but_its_own_connection() {
    let (mut cluster, load) = under_load(1).await;

    for id in cluster.ids() {
        for (what, bytes) in inputs() {
            for port in [cluster.client_port(id), cluster.peer_port(id)] {
                let sent = tokio::task::block_in_place(|| send(port, &bytes));
                sent.unwrap_or_else(|problem| {
                    panic!("{what} on port {port} of node {id}: {problem}")
                });
            }
        }
    }
    load.progress().await;

    for id in cluster.ids() {
        assert!(cluster.node(id).is_running(), "node {id} has ended");
        let metrics = cluster.get(id, "/metrics").expect("answered").body;
        let resident = metrics
            .lines()
            .find_map(|line| line.strip_prefix("process_resident_memory_bytes "))
            .and_then(|value| value.parse::<f64>().ok());
        if let Some(resident) = resident {
            assert!(resident < RESIDENT_BYTES_MAX, "node {id} holds {resident} bytes");
        }
    }
    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_do_not_keep_others_out() {
    let cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 1).await;
    let held: Vec<TcpStream> = (0..200)
        .map(|i| {
            let port = if i % 2 == 0 { cluster.client_port(1) } else { cluster.peer_port(1) };
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
            // Begins a frame and never ends it.
            stream.write_all(&[0, 0]).expect("the buffer of a new connection has room");
            stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout above zero");
            stream
        })
        .collect();
    let load = Load::start(&cluster, TOPIC).await;
    load.progress().await;
    load.check(&cluster).await;
    drop(held);
    cluster.finish();
}
