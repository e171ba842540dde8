//! The tools for operators, on the files of real processes: import, compare, fsck.

use std::fs;
use std::path::Path;

use kontiki::client::{Client, NewTopic};
use serde_json::{Value, json};

use super::harness::{Cluster, eventually, kontiki};

/// Runs a command to its end: exit code, and what it printed as JSON (null if nothing).
fn run(arguments: &[&str]) -> (i32, Value) {
    let output = kontiki().args(arguments).args(["--output", "json"]).output().expect("it runs");
    let code = output.status.code().expect("it was not killed");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_str(&printed).unwrap_or_else(|_| json!({ "error": complaint }));
    (code, json)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("the file is there");
    bytes[at] ^= 1;
    fs::write(path, bytes).expect("it can be written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_kafka_is_imported_compared_and_checked() {
    let mut cluster = Cluster::start().await;
    let bootstrap = cluster.bootstrap().join(",");
    let kafka = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kafka-4.4");
    let admin = Client::connect(&cluster.bootstrap()).await.expect("connects").admin();
    for topic in ["codecs", "compacted", "txn"] {
        let new = NewTopic::new(topic).partitions(1).replication_factor(3);
        admin.create_topic(new.config("retention.ms", "-1")).await.expect("creates");
    }
    for (topic, end) in [("codecs", 15), ("compacted", 30)] {
        let dir = kafka.join(format!("{topic}-0"));
        let dir = dir.to_str().expect("UTF-8");
        let (code, imported) = run(&["log", "import", dir, "--bootstrap", &bootstrap]);
        assert_eq!((code, &imported["end_offset"]), (0, &json!(end)), "{imported}");
        let (code, again) = run(&["log", "import", dir, "--bootstrap", &bootstrap]);
        assert_eq!(code, 1, "it is not empty any more: {again}");
        let (code, compared) = run(&["partition", "compare", topic, "--bootstrap", &bootstrap]);
        assert_eq!((code, &compared[0]["equal"]), (0, &json!(true)), "{compared}");
        assert_eq!(compared[0]["end_offset"], json!(end));
        let consume =
            ["consume", topic, "--until-end", "--output", "json", "--bootstrap", &bootstrap];
        let consumed = kontiki().args(consume).output().expect("it runs");
        let dump = ["log", "dump", dir, "--records", "--output", "json"];
        let dumped = kontiki().args(dump).output().expect("it runs");
        let records = |output: &[u8]| -> Vec<Value> {
            let lines = std::str::from_utf8(output).expect("UTF-8").lines();
            let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            lines
                .filter(|line| !line["timestamp_ms"].is_null() && line.get("value").is_some())
                .map(|line| {
                    json!([line["offset"], line["timestamp_ms"], line["key"], line["value"]])
                })
                .collect()
        };
        let expected = records(&dumped.stdout);
        assert!(expected.len() >= 12, "{expected:?}");
        assert_eq!(records(&consumed.stdout), expected, "{topic}");
    }
    let txn = kafka.join("txn-0");
    let txn = txn.to_str().expect("UTF-8");
    let (code, refused) = run(&["log", "import", txn, "--bootstrap", &bootstrap]);
    assert_eq!(code, 1, "it holds an aborted transaction: {refused}");
    let forced = ["log", "import", txn, "--with-uncommitted", "--bootstrap", &bootstrap];
    assert_eq!(run(&forced).0, 0);

    // One replica has another byte than the others.
    let node = cluster.directory().join("node-2");
    let segment = node.join("logs/codecs-0/00000000000000000000.log");
    flip(&segment, 100);
    let (code, compared) = run(&["partition", "compare", "codecs", "--bootstrap", &bootstrap]);
    assert_eq!((code, &compared[0]["equal"]), (10, &json!(false)), "{compared}");
    assert_eq!(compared[0]["problems"][0]["offset"], json!(0), "{compared}");
    flip(&segment, 100);

    let data = node.to_str().expect("UTF-8");
    let (code, refused) = run(&["fsck", data]);
    assert_eq!(code, 1, "a node runs on it: {refused}");
    cluster.stop(2).await;
    let (code, clean) = run(&["fsck", data]);
    assert_eq!((code, &clean["issues"]), (0, &json!([])), "{clean}");
    assert_eq!((&clean["node_id"], &clean["partitions"]), (&json!(2), &json!(3)), "{clean}");

    let epochs = node.join("logs/codecs-0/leader-epoch-checkpoint");
    fs::write(&epochs, "garbage").expect("writes");
    fs::write(node.join("logs/compacted-0/00000000000000000000.log.deleted"), "").expect("writes");
    let what = |report: &Value| -> Vec<Value> {
        let issues = report["issues"].as_array().expect("a list");
        issues.iter().map(|issue| json!([issue["what"], issue["repaired"]])).collect()
    };
    let expected =
        |repaired: bool| vec![json!(["epochs", repaired]), json!(["leftover", repaired])];
    let (code, found) = run(&["fsck", data]);
    assert_eq!((code, what(&found)), (10, expected(false)), "{found}");
    let (code, planned) = run(&["fsck", data, "--repair", "--dry-run"]);
    assert_eq!((code, what(&planned)), (10, expected(false)), "{planned}");
    let (code, repaired) = run(&["fsck", data, "--repair"]);
    assert_eq!((code, what(&repaired)), (0, expected(true)), "{repaired}");
    assert_eq!(run(&["fsck", data]).0, 0);

    cluster.restart(2).await;
    eventually("the replicas are equal again", || async {
        let (code, compared) = run(&["partition", "compare", "codecs", "--bootstrap", &bootstrap]);
        if code == 0 { Ok(()) } else { Err(compared.to_string()) }
    })
    .await;
    cluster.finish();
}
