//! `make bench`: what a cluster of three nodes does on this machine, by our own client and the harness of the cluster tests.
//!
//! Figures are of the machine they were taken on; load generator and nodes share its cores. CPU-seconds per GB hold from
//! run to run where MB/s do not.

#![allow(dead_code, unused_imports, reason = "the harness has more than the benchmark needs")]

#[path = "../tests/cluster/harness/mod.rs"]
mod harness;

use std::time::Duration;

use harness::Cluster;
use kontiki::client::{ProducerConfig, Record};
use kontiki::types::time;

const RECORD_SIZE: usize = 1000;
const PARTITIONS: i32 = 6;
const THROUGHPUT_RECORDS: usize = 200_000;
const LATENCY_RECORDS: usize = 2_000;
const FAILOVERS: usize = 5;

#[tokio::main]
async fn main() {
    println!("three nodes, three replicas, acks=all, records of {RECORD_SIZE} bytes");
    for durability in ["fsync", "page-cache"] {
        let cluster = Cluster::start_with(&[("log.durability", durability)]).await;
        cluster.create_topic("bench", PARTITIONS).await;
        throughput(&cluster, durability).await;
        latency(&cluster, durability).await;
    }
    failover().await;
}

/// As many as the client's buffer lets through.
async fn throughput(cluster: &Cluster, durability: &str) {
    let client = cluster.client().await;
    let config = ProducerConfig { linger: Duration::from_millis(5), ..ProducerConfig::default() };
    let producer = client.producer(config);
    let value = vec![b'x'; RECORD_SIZE];
    let cpu_before = cpu_seconds(cluster);
    let start = time::now();
    let mut last = None;
    for _ in 0..THROUGHPUT_RECORDS {
        let record = Record::to("bench").value(value.clone());
        last = Some(producer.send(record).await.expect("taken"));
    }
    producer.flush().await;
    last.expect("there are records").await.expect("acknowledged");
    let seconds = start.elapsed().as_secs_f64();
    let gigabytes = (THROUGHPUT_RECORDS * RECORD_SIZE) as f64 / 1e9;
    let cpu = (cpu_seconds(cluster) - cpu_before) / gigabytes;
    let rate = THROUGHPUT_RECORDS as f64 / seconds;
    let megabytes = gigabytes * 1e3 / seconds;
    println!(
        "{durability:>10}  throughput {rate:>9.0} records/s {megabytes:>7.1} MB/s  {cpu:>6.1} broker CPU-s/GB"
    );
}

/// One record at a time.
async fn latency(cluster: &Cluster, durability: &str) {
    let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
    let producer = cluster.client().await.producer(config);
    let mut times = Vec::with_capacity(LATENCY_RECORDS);
    for _ in 0..LATENCY_RECORDS {
        let start = time::now();
        let record = Record::to("bench").partition(0).value(vec![b'x'; RECORD_SIZE]);
        producer.send(record).await.expect("taken").await.expect("acknowledged");
        times.push(start.elapsed());
    }
    let at = |percent: usize| quantile(&mut times.clone(), percent);
    println!(
        "{durability:>10}  latency    p50 {:.2?}  p90 {:.2?}  p99 {:.2?}",
        at(50),
        at(90),
        at(99)
    );
}

/// From `kill -9` of the leader to the next acknowledgement, writing all the time.
async fn failover() {
    let mut cluster = Cluster::start().await;
    cluster.create_topic("failover", 1).await;
    let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
    let producer = cluster.client().await.producer(config);
    let write = async || {
        let record = Record::to("failover").value("x");
        producer.send(record).await.expect("taken").await.expect("acknowledged");
    };
    let mut gaps = Vec::new();
    for _ in 0..FAILOVERS {
        for _ in 0..50 {
            write().await;
        }
        let leader = cluster.leader("failover", 0).await;
        write().await;
        let start = time::now();
        cluster.kill(leader);
        write().await;
        gaps.push(start.elapsed());
        cluster.restart(leader).await;
        cluster.in_sync().await;
    }
    let (median, worst) = (quantile(&mut gaps, 50), quantile(&mut gaps, 100));
    println!(
        "  failover   kill -9 of the leader, {FAILOVERS} times: median {median:.0?}, worst {worst:.0?}"
    );
}

fn quantile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

/// Of all nodes together.
fn cpu_seconds(cluster: &Cluster) -> f64 {
    let of = |id: i32| {
        let metrics = cluster.get(id, "/metrics").expect("answered").body;
        let value =
            metrics.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        value.and_then(|value| value.parse::<f64>().ok()).unwrap_or(f64::NAN)
    };
    cluster.ids().into_iter().map(of).sum()
}
