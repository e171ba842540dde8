//! Starts that must fail: each with a sentence that says what is wrong, and without harm to those that run.

use std::path::Path;

use super::harness::{Cluster, Exit, Node, eventually, kontiki};
use super::workload::under_load;

/// Starts one more process beside a cluster, which must end by itself with these words.
async fn must_fail(cluster: &Cluster, settings: &[(&str, String)], words: &[&str]) -> Exit {
    let mut own = vec![
        ("data.dir", cluster.directory().join("intruder").display().to_string()),
        ("listeners", format!("127.0.0.1:{}", cluster.spare_port(0))),
        ("peer.listener", format!("127.0.0.1:{}", cluster.spare_port(1))),
        ("admin.listener", format!("127.0.0.1:{}", cluster.spare_port(2))),
    ];
    for (key, value) in settings {
        own.retain(|(known, _)| known != key);
        own.push((key, value.clone()));
    }
    let own = own.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let log = tempfile::NamedTempFile::new_in(cluster.directory()).expect("a log");
    let mut node = Node::new(own, log.path());
    node.start();
    let exit = node.exit().await;
    assert!(!exit.status.success(), "it must not succeed: {}", exit.log);
    assert!(!exit.log.contains("panicked"), "{}", exit.log);
    for word in words {
        assert!(exit.log.contains(word), "{word:?} is not in: {}", exit.log);
    }
    exit
}

fn setting(cluster: &mut Cluster, id: i32, key: &str) -> String {
    cluster.node(id).setting(key).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn intruders_are_refused_and_the_cluster_goes_on() {
    let (mut cluster, load) = under_load(3).await;
    let voters = setting(&mut cluster, 1, "controller.quorum.voters");
    let data = setting(&mut cluster, 1, "data.dir");

    // A second process on a directory.
    let same = [
        ("node.id", "1".to_owned()),
        ("data.dir", data.clone()),
        ("controller.quorum.voters", voters.clone()),
    ];
    must_fail(&cluster, &same, &[&data]).await;

    // A directory of another node.
    let other = [
        ("node.id", "2".to_owned()),
        ("data.dir", data.clone()),
        ("controller.quorum.voters", voters.clone()),
    ];
    must_fail(&cluster, &other, &[&data]).await;

    // A port in use, for each of the three.
    for key in ["listeners", "peer.listener", "admin.listener"] {
        let taken = setting(&mut cluster, 1, key);
        let fresh = cluster.directory().join("fresh").display().to_string();
        let settings = [
            ("node.id", "4".to_owned()),
            ("data.dir", fresh),
            ("controller.quorum.voters", voters.clone()),
            (key, taken.clone()),
        ];
        must_fail(&cluster, &settings, &[&taken, "in use"]).await;
    }

    load.progress().await;
    for id in cluster.ids() {
        assert!(cluster.node(id).is_running(), "node {id} has ended");
    }
    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_with_an_id_that_lives_is_refused() {
    let (mut cluster, load) = under_load(3).await;
    let voters = setting(&mut cluster, 1, "controller.quorum.voters");
    let settings = [("node.id", "1".to_owned()), ("controller.quorum.voters", voters)];
    must_fail(&cluster, &settings, &["id 1", "own id"]).await;
    load.progress().await;
    cluster.ready().await;
    load.check(&cluster).await;
    cluster.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_lost_its_log_is_refused() {
    let (mut cluster, load) = under_load(3).await;
    let victim = 2;
    cluster.kill(victim);
    let data = setting(&mut cluster, victim, "data.dir");
    let log = Path::new(&data).join("meta/log");
    std::fs::remove_dir_all(log).expect("ours to remove");
    cluster.launch(victim);
    let exit = cluster.node(victim).exit().await;
    assert!(!exit.status.success(), "it must not join as if nothing had happened: {}", exit.log);
    assert!(exit.log.contains("has lost its log"), "{}", exit.log);
    load.progress().await;
    load.check(&cluster).await;
    cluster.expect_errors("");
    cluster.finish();
}

/// A new disk under an old id: a new voter in the place of the old one, and replicas that are made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_lost_everything_comes_back_with_nothing_and_catches_up() {
    let (mut cluster, load) = under_load(3).await;
    let wiped = 2;
    cluster.kill(wiped);
    let data = setting(&mut cluster, wiped, "data.dir");
    std::fs::remove_dir_all(&data).expect("ours to remove");
    cluster.restart(wiped).await;
    cluster.in_sync().await;
    eventually("it votes again, and its old disk does not", || async {
        let quorum = cluster.get(1, "/v1/quorum")?.json();
        let count = |key: &str| quorum[key].as_array().map_or(0, Vec::len);
        let is_done = (count("voters"), count("learners")) == (3, 0);
        if is_done { Ok(()) } else { Err(quorum.to_string()) }
    })
    .await;
    // What it has is enough: another may go.
    cluster.kill(1);
    load.progress().await;
    cluster.restart(1).await;
    load.check(&cluster).await;
    cluster.finish();
}

/// Problems that one process has by itself.
#[test]
fn settings_that_cannot_work_are_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").expect("ours to write");
    let under_a_file = file.join("data").display().to_string();
    let data = directory.path().join("data").display().to_string();
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (&[("node.id", "1"), ("data.dri", &data)], &["data.dri", "data.dir"]),
        (&[("node.id", "one"), ("data.dir", &data)], &["node.id", "one"]),
        (&[("data.dir", &data)], &["node.id"]),
        (&[("node.id", "1"), ("data.dir", &under_a_file)], &[&under_a_file]),
        (
            &[("node.id", "1"), ("data.dir", &data), ("listeners", "0.0.0.0:0")],
            &["allow.unauthenticated"],
        ),
        (
            &[("node.id", "1"), ("data.dir", &data), ("log.durability", "maybe")],
            &["log.durability"],
        ),
    ];
    for (settings, words) in cases {
        refuses(settings, words);
    }
    // Every problem at once, not one at a time.
    refuses(&[("node.id", "one"), ("colour", "red")], &["node.id", "colour"]);
}

/// A directory that nobody may write to, root included, exists on Linux.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_directory_is_named() {
    assert!(Path::new("/sys/kernel").is_dir());
    refuses(&[("node.id", "1"), ("data.dir", "/sys/kernel")], &["/sys/kernel"]);
}

fn refuses(settings: &[(&str, &str)], words: &[&str]) {
    let mut command = kontiki();
    command.arg("server");
    for (key, value) in settings {
        command.arg("--set").arg(format!("{key}={value}"));
    }
    let output = command.output().expect("the built binary starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{settings:?} must not work: {said}");
    assert!(!said.contains("panicked"), "{settings:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{settings:?}: {word:?} is not in: {said}");
    }
}
