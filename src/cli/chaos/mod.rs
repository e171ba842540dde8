//! `kontiki chaos`: breaks a cluster under load, heals it, reads everything back, and judges what its clients saw.
//!
//! ```text
//! cluster ready -> topic -> load runs ......................................... -> final read -> verdict
//!                              fault, heal, rest, fault, heal, ... until the end
//! ```
//! The cluster is one of our own (`kontiki dev`) or a foreign one, with commands that break it. The history is a file
//! that `kontiki check` judges again.

mod faults;
mod load;
mod network;
mod recorder;
mod victim;

use std::fs::{self, File};
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};

use self::faults::{Dice, Drawn, FaultKind};
use self::load::{Load, Plan};
use self::network::Network;
use self::recorder::Recorder;
use self::victim::{Dev, Victim, blocking};
use super::check;
use super::configs::parse_pair;
use super::dev::Verb;
use super::error::Failure;
use super::output::{Output, Progress};
use super::report_html;
use crate::checker::{self, Begin, Event, Fault};
use crate::client::{Admin, Client, ClientConfig, NewTopic};
use crate::types::{random, time};

/// Break a cluster under load, and check that no promise was broken
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kontiki chaos --duration 2m\n  kontiki chaos --faults kill,pause --seed 7 --out chaos-7\n  kontiki chaos --bootstrap db1:9092 --node 1 --node 2 --node 3 --command 'kill=ssh db{} pkill -9 kontiki' --command 'start=ssh db{} systemctl start kontiki'\n\nEnds with 0 when the verdict is clean, 10 when it is not."
)]
pub(super) struct ChaosArgs {
    /// How long faults go on: 90s, 30m, 2h
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    duration: Duration,
    /// Which; `all` are all that the cluster has commands for
    #[arg(long, value_name = "FAULT,...", value_delimiter = ',', default_value = "all", value_parser = parse_fault)]
    faults: Vec<Option<FaultKind>>,
    /// Draws the same faults again
    #[arg(long)]
    seed: Option<u64>,
    /// Where history.jsonl and report.html go, and the data of our own cluster [default: chaos-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Nodes of our own cluster
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// Ports of our own cluster, as `kontiki dev` has them
    #[arg(long, value_name = "PORT", default_value_t = 9591, value_parser = clap::value_parser!(u16).range(1..=65_000))]
    base_port: u16,
    /// A config of every node of our own cluster; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
    /// A foreign cluster instead of our own
    #[arg(long, value_name = "HOST:PORT,...", requires = "node")]
    bootstrap: Option<String>,
    /// A node of the foreign cluster; may be repeated
    #[arg(long, value_name = "ID", requires = "bootstrap")]
    node: Vec<i32>,
    /// How to kill, stop, start, pause or resume a node of it; {} becomes its id
    #[arg(long, value_name = "VERB=COMMAND", value_parser = parse_pair, requires = "bootstrap")]
    command: Vec<(String, String)>,
    /// Partitions of the topic
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    partitions: u32,
    /// Producers; each writes into one partition
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=500))]
    producers: u32,
    /// Consumers; each reads all partitions
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100))]
    consumers: u32,
    /// Records a second, of all producers together
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Bytes of a record
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    size: u32,
    /// For people, or for programs
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(super) async fn run(args: ChaosArgs) -> Result<(), Failure> {
    let seed = args.seed.unwrap_or_else(|| random::seed() >> 32);
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("chaos-{seed}")));
    let cannot = |error| Failure::refused(format!("cannot write to {}: {error}", out.display()));
    fs::create_dir_all(&out).map_err(cannot)?;
    let history = out.join("history.jsonl");
    if history.exists() {
        return Err(Failure::refused(format!(
            "{} is there already; --out chooses another directory",
            history.display()
        )));
    }
    let recorder = Recorder::create(&history).map_err(cannot)?;
    let done = match &args.bootstrap {
        Some(bootstrap) => {
            let victim = foreign(&args)?;
            torment(&args, seed, &victim, bootstrap, &recorder).await
        }
        None => {
            eprintln!("starting {} nodes in {}", args.nodes, out.display());
            let (data, nodes, base_port) = (out.join("data"), args.nodes, args.base_port);
            let set = args.set.clone();
            let network = Network::start(&peers(nodes, base_port))?;
            let dev = blocking(move || Dev::start(&data, nodes, base_port, &set, network)).await?;
            let done = torment(&args, seed, &dev.victim, &dev.bootstrap, &recorder).await;
            blocking(move || {
                dev.stop();
                Ok(())
            })
            .await?;
            done
        }
    };
    recorder.finish().map_err(cannot)?;
    done?;
    judge(&history, &out.join("report.html"), args.output)
}

/// The peer listeners of our own cluster.
fn peers(nodes: u16, base_port: u16) -> Vec<(i32, SocketAddr)> {
    let port = |id: u16| base_port.saturating_add(100).saturating_add(id);
    (1..=nodes).map(|id| (i32::from(id), (Ipv4Addr::LOCALHOST, port(id)).into())).collect()
}

fn judge(history: &Path, page: &Path, output: Output) -> Result<(), Failure> {
    let cannot = |path: &Path| {
        let name = path.display().to_string();
        move |error: String| Failure::refused(format!("{name}: {error}"))
    };
    let file = File::open(history).map_err(|error| cannot(history)(error.to_string()))?;
    let report =
        checker::check(BufReader::new(file)).map_err(|error| cannot(history)(error.to_string()))?;
    fs::write(page, report_html::page(&report)).map_err(|error| cannot(page)(error.to_string()))?;
    eprintln!("history {}\nreport  {}", history.display(), page.display());
    check::show(&report, output)
}

fn foreign(args: &ChaosArgs) -> Result<Victim, Failure> {
    let mut commands = Vec::new();
    for (name, command) in &args.command {
        let verb = Verb::from_name(name).ok_or_else(|| {
            Failure::usage(format!("{name:?} is none of kill, stop, start, pause, resume"))
        })?;
        commands.push((verb, command.clone()));
    }
    Ok(Victim::Foreign { commands, ids: args.node.clone() })
}

/// Load, faults, and the final read. All that happens goes into the history.
async fn torment(
    args: &ChaosArgs,
    seed: u64,
    victim: &Victim,
    bootstrap: &str,
    recorder: &Recorder,
) -> Result<(), Failure> {
    let kinds = possible(&args.faults, victim)?;
    let config = ClientConfig::new(&[bootstrap])?;
    let client = Client::connect_with(config.clone()).await?;
    let topic = format!("chaos-{seed}");
    let partitions = i32::try_from(args.partitions).unwrap_or(i32::MAX);
    client.admin().create_topic(NewTopic::new(&topic).partitions(partitions)).await?;
    recorder.record(&Event::Begin(Begin {
        version: checker::VERSION,
        target: if args.bootstrap.is_some() {
            bootstrap.to_owned()
        } else {
            "kontiki dev".to_owned()
        },
        workload: "queue".to_owned(),
        seed,
        started_ms: time::wall_ms(),
    }));
    let plan = Plan {
        bootstrap: config,
        topic,
        partitions: args.partitions,
        producers: args.producers,
        consumers: args.consumers,
        rate: args.rate,
        size: args.size as usize,
    };
    eprintln!("seed {seed}: {} for {:?}", names(&kinds), args.duration);
    let load = Load::start(plan, recorder.clone()).await?;
    let admin = client.admin();
    let broken = break_until_end(args, seed, victim, &kinds, &load, &admin, recorder).await;
    eprintln!("healed; reading everything back");
    let read = load.finish().await;
    broken?;
    if let Err(why) = read {
        eprintln!("not everything was read: {why}");
    }
    Ok(())
}

/// Ctrl-C ends the faults, and lets the run come to its verdict.
async fn break_until_end(
    args: &ChaosArgs,
    seed: u64,
    victim: &Victim,
    kinds: &[FaultKind],
    load: &Load,
    admin: &Admin,
    recorder: &Recorder,
) -> Result<(), Failure> {
    let end = tokio::time::Instant::now() + args.duration;
    let interrupted = async {
        // Where signals cannot be caught, the default ends this process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::pin!(interrupted);
    let mut dice = Dice::new(seed);
    let progress = Progress::start(None, "records acknowledged");
    let mut shown = 0;
    while tokio::time::Instant::now() < end {
        let Some(drawn) = dice.draw(kinds, victim.ids()) else { break };
        if drawn.kind.needs_all_copies() {
            wait_for_all_copies(admin, args.nodes).await?;
        }
        inflict(&drawn, victim, recorder).await?;
        if drawn.kind.needs_all_copies() {
            wait_for_all_copies(admin, args.nodes).await?;
        }
        let acknowledged = load.acknowledged();
        progress.advance(acknowledged - shown);
        shown = acknowledged;
        tokio::select! {
            () = tokio::time::sleep(drawn.rest) => {}
            () = &mut interrupted => {
                eprintln!("interrupted: no more faults");
                break;
            }
        }
    }
    Ok(())
}

/// Every replica is in sync, and every node votes.
async fn wait_for_all_copies(admin: &Admin, nodes: u16) -> Result<(), Failure> {
    const WITHIN: Duration = Duration::from_secs(120);
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = time::now() + WITHIN;
    while time::now() < deadline {
        if let (Ok(view), Ok(quorum)) =
            (admin.describe_cluster().await, admin.quorum_status().await)
        {
            let mut partitions = view.topics.values().flat_map(|topic| &topic.partitions);
            let is_whole =
                partitions.all(|partition| partition.isr.len() == partition.replicas.len());
            let is_quorum = quorum.voters.len() == usize::from(nodes) && quorum.learners.is_empty();
            if is_whole && is_quorum {
                return Ok(());
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Failure::refused(format!(
        "replicas or voters did not come back within {WITHIN:?}; `kontiki cluster status` says which"
    )))
}

async fn inflict(drawn: &Drawn, victim: &Victim, recorder: &Recorder) -> Result<(), Failure> {
    let begin_us = recorder.now_us();
    let (name, target) = (drawn.kind.name(), drawn.target_name());
    eprintln!("{:>7.1} s  {name} {target}", Duration::from_micros(begin_us).as_secs_f64());
    drawn.inflict(victim).await?;
    let end_us = recorder.now_us();
    recorder.record(&Event::Fault(Fault { name, target, begin_us, end_us }));
    Ok(())
}

/// Those that were asked for; what the cluster cannot be made to suffer is refused, unless all were asked for.
fn possible(asked: &[Option<FaultKind>], victim: &Victim) -> Result<Vec<FaultKind>, Failure> {
    let all = FaultKind::value_variants().iter().copied();
    let mut kinds: Vec<FaultKind> = if asked.contains(&None) {
        all.filter(|kind| kind.is_possible(victim)).collect()
    } else {
        asked.iter().copied().flatten().collect()
    };
    kinds.dedup();
    if let Some(kind) = kinds.iter().find(|kind| !kind.is_possible(victim)) {
        return Err(Failure::usage(format!("--command is missing for the fault {}", kind.name())));
    }
    if kinds.is_empty() {
        return Err(Failure::usage(
            "no fault is possible: --command says how to break the cluster",
        ));
    }
    Ok(kinds)
}

fn names(kinds: &[FaultKind]) -> String {
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}

/// `None` is all.
fn parse_fault(text: &str) -> Result<Option<FaultKind>, String> {
    if text == "all" {
        return Ok(None);
    }
    FaultKind::from_str(text, false).map(Some).map_err(|_| {
        format!("{text:?} is neither `all` nor one of {}", names(FaultKind::value_variants()))
    })
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let unit = text.char_indices().last().map_or(0, |(index, _)| index);
    let (number, unit) = text.split_at(unit);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    match number.parse::<u32>() {
        Ok(number) if seconds > 0 && number > 0 => Ok(Duration::from_secs(1) * number * seconds),
        _ => Err(format!("{text:?} is no time like 90s, 30m or 2h")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_a_unit() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "s", "10", "0m", "1d", "-1s", "1\u{e9}"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_what_can_be_done_is_drawn() {
        let foreign = |verbs: &[Verb]| Victim::Foreign {
            commands: verbs.iter().map(|verb| (*verb, String::new())).collect(),
            ids: vec![1],
        };
        let kinds = possible(&[None], &foreign(&[Verb::Kill, Verb::Start])).unwrap();
        assert_eq!(kinds, [FaultKind::Kill, FaultKind::KillAll, FaultKind::KillMajority]);
        assert!(possible(&[Some(FaultKind::Pause)], &foreign(&[Verb::Kill])).is_err());
        assert!(possible(&[None], &foreign(&[])).is_err());
    }
}
