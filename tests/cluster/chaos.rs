//! Random faults, one after the other, under load, while topics come and go; and `kontiki chaos`, which users have.

use std::time::Duration;

use kontiki::types::{random, time};

use serde_json::Value;

use super::dev::base_port;
use super::harness::{Cluster, kontiki};
use super::workload::Load;

const TOPIC: &str = "chaos";

/// How long it goes on: a few faults.
const SECONDS: u64 = 20;

#[derive(Debug, Clone, Copy)]
enum Fault {
    Kill,
    Pause,
    Stop,
    /// All but the victim: no majority is left.
    PauseOthers,
    KillOthers,
    KillAll,
}

const FAULTS: [Fault; 9] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Pause,
    Fault::Pause,
    Fault::Stop,
    Fault::Stop,
    Fault::PauseOthers,
    Fault::KillOthers,
    Fault::KillAll,
];

/// xorshift64: enough to pick faults, the same on every machine for one seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("below sides")
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chaos() {
    let seed = random::seed().max(1);
    let duration = Duration::from_secs(SECONDS);
    // In the output of a failed run, and with --nocapture.
    eprintln!("chaos: seed {seed} for {duration:?}");
    let mut dice = Dice(seed);

    let mut cluster = Cluster::start().await;
    cluster.create_topic(TOPIC, 3).await;
    let load = Load::start(&cluster, TOPIC).await;
    let start = time::now();
    let mut faults = 0_i32;
    while start.elapsed() < duration {
        let fault = dice.pick(&FAULTS);
        let victim = dice.pick(&[1, 2, 3]);
        eprintln!("chaos: {:?}: {fault:?} of node {victim}", start.elapsed());
        inflict(&mut cluster, &load, fault, victim).await;
        // Sometimes the next fault meets replicas that are still catching up. Two at a time would be too few in sync.
        if dice.below(3) > 0 {
            cluster.in_sync().await;
        }
        // Metadata moves too: one topic comes, the one before goes.
        cluster.create_topic(&format!("churn-{faults}"), 3).await;
        if let Some(before) = i32::checked_sub(faults, 1).filter(|before| *before >= 0) {
            cluster.delete_topic(&format!("churn-{before}")).await;
        }
        faults += 1;
    }
    cluster.ready().await;
    cluster.in_sync().await;
    load.progress().await;
    let topics = cluster.get(1, "/v1/topics").expect("answered").json();
    let topics = topics["topics"].as_array().expect("a list");
    assert_eq!(topics.len(), 2, "the topic of the load and the last of the others: {topics:?}");
    let ledger = load.check(&cluster).await;
    eprintln!("chaos: {faults} faults, {ledger}");
    cluster.finish();
}

/// When it returns, every node runs and is ready.
async fn inflict(cluster: &mut Cluster, load: &Load, fault: Fault, victim: i32) {
    match fault {
        Fault::Kill => {
            cluster.kill(victim);
            load.progress().await;
            cluster.restart(victim).await;
        }
        Fault::Pause => {
            cluster.pause(victim);
            load.progress().await;
            cluster.resume(victim);
            cluster.node_ready(victim).await;
        }
        Fault::Stop => {
            cluster.stop(victim).await;
            load.progress().await;
            cluster.restart(victim).await;
        }
        Fault::PauseOthers => {
            for id in others(cluster, victim) {
                cluster.pause(id);
            }
            cluster.node_not_ready(victim).await;
            for id in others(cluster, victim) {
                cluster.resume(id);
            }
            cluster.ready().await;
            load.progress().await;
        }
        Fault::KillOthers => kill_together(cluster, load, &others(cluster, victim)).await,
        Fault::KillAll => kill_together(cluster, load, &cluster.ids()).await,
    }
}

fn others(cluster: &Cluster, victim: i32) -> Vec<i32> {
    cluster.ids().into_iter().filter(|id| *id != victim).collect()
}

async fn kill_together(cluster: &mut Cluster, load: &Load, ids: &[i32]) {
    for id in ids {
        cluster.kill(*id);
    }
    for id in ids {
        cluster.launch(*id);
    }
    cluster.ready().await;
    load.progress().await;
}

#[test]
fn the_command_breaks_a_cluster_and_finds_that_nothing_was_lost() {
    let out = tempfile::tempdir().expect("a directory");
    let (ports, base) = base_port();
    drop(ports);
    let run = kontiki()
        .args(["chaos", "--duration", "10s", "--output", "json", "--base-port"])
        .arg(base.to_string())
        .arg("--out")
        .arg(out.path())
        .output()
        .expect("the built binary starts");
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    let report: Value = serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{log}"));
    assert_eq!(report["verdict"], "clean", "{report}\n{log}");
    assert!(report["counts"]["acknowledged"].as_u64() > Some(0), "{report}");
    assert!(!report["availability"]["faults"].as_array().expect("a list").is_empty(), "{report}");
    assert_eq!(run.status.code(), Some(0));

    // The file says the same again, and a history in which one acknowledged record is not read says so.
    let history = out.path().join("history.jsonl");
    let text = std::fs::read_to_string(&history).expect("it is there");
    let check = |path| {
        let checked = kontiki().arg("check").arg(path).args(["--output", "json"]).output();
        let checked = checked.expect("it starts");
        let report: Value = serde_json::from_slice(&checked.stdout).expect("json");
        (report["verdict"].clone(), checked.status.code())
    };
    assert_eq!(check(&history), ("clean".into(), Some(0)));
    let acknowledged = text.lines().find(|line| line.contains(r#""outcome":"ok""#));
    let send: Value = serde_json::from_str(acknowledged.expect("one")).expect("an event");
    let record = format!("[{},{}]", send["offset"], send["value"]);
    let without = text.replace(&format!(",{record}"), "").replace(&format!("{record},"), "");
    let without = without.replace(&record, "");
    let damaged = out.path().join("damaged.jsonl");
    std::fs::write(&damaged, without).expect("written");
    assert_eq!(check(&damaged), ("violated".into(), Some(10)));
}
