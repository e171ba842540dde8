//! `kontiki fsck`: the whole data directory of a stopped node.
//!
//! Locks the directory, checks everything in it, says what is wrong and what can be done, and does it when told to. What
//! cannot be mended without another replica is left as it is.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::error::Failure;
use super::output::{Output, Progress, count, table};
use crate::quorum::check;
use crate::storage::inspect::{Fault, FileKind, Finding, is_partition, read, verify};
use crate::storage::repair::{self, Repair, leftovers, repair_of};
use crate::telemetry;
use crate::types::random;

/// Check the data directory of a stopped node, and mend what can be mended
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  kontiki fsck kontiki-data/node-1\n  kontiki fsck /var/kontiki --log-dir /disk1/logs --log-dir /disk2/logs --repair --dry-run\n\nEnds with 0 when clean or all is mended, 10 when something is wrong, 1 when a node runs on the directory.\n--repair makes indexes and checkpoints anew, cuts off a torn end beyond what was flushed, and removes what interrupted\nwork left. It never removes a record that can be read."
)]
pub(super) struct FsckArgs {
    /// `data.dir` of the node
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// `log.dirs` of the node, one each [default: logs in DIR]
    #[arg(long = "log-dir", value_name = "DIR")]
    log_dirs: Vec<PathBuf>,
    /// Do what the plan says
    #[arg(long)]
    repair: bool,
    /// With --repair: only say what would be done
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// For people, or for programs
    #[arg(long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

pub(super) fn run(args: &FsckArgs) -> Result<(), Failure> {
    // Damage over which the store of the metadata log ends the process is logged before it does.
    telemetry::init_logging();
    if !args.dir.is_dir() {
        return Err(Failure::refused(format!("{} is no directory", args.dir.display())));
    }
    let log_dirs = match args.log_dirs.is_empty() {
        true => vec![args.dir.join("logs")],
        false => args.log_dirs.clone(),
    };
    let meta = args.dir.join("meta");
    let refused = |error: String| Failure::refused(format!("{error}; nothing was changed"));
    // Held until the end.
    let mut locks: Vec<Option<File>> = Vec::new();
    locks.push(check::lock(&meta).map_err(|error| refused(error.to_string()))?);
    for dir in &log_dirs {
        locks.push(repair::lock(dir).map_err(|error| refused(error.to_string()))?);
    }

    let mut report = Report::default();
    report.metadata(&meta);
    for dir in &log_dirs {
        report.log_dir(dir)?;
    }
    if args.repair && !args.dry_run {
        report.issues.iter_mut().for_each(Issue::repair);
    }
    args.output.print(&report.to_json(), || report.to_text())?;
    // What waits to be deleted is there after any clean stop.
    let is_fine = report
        .issues
        .iter()
        .all(|issue| issue.what == LEFTOVER || matches!(issue.outcome, Outcome::Repaired));
    if is_fine { Ok(()) } else { Err(Failure::unhealthy()) }
}

#[derive(Default)]
struct Report {
    metadata: Option<check::Checked>,
    partitions: BTreeSet<String>,
    records: u64,
    size: u64,
    issues: Vec<Issue>,
}

/// One thing that is wrong.
struct Issue {
    what: &'static str,
    path: PathBuf,
    position: Option<u64>,
    reason: String,
    plan: Plan,
    outcome: Outcome,
}

enum Plan {
    /// In the directory of a partition, or in a log directory.
    Repair(PathBuf, Repair),
    /// Only people can.
    Advice(&'static str),
}

enum Outcome {
    Open,
    Repaired,
    Failed(String),
}

const LEFTOVER: &str = "leftover";
const FROM_REPLICA: &str =
    "keep a copy, then remove the directory of the partition: the node fetches it from its leader";
const RESTORE: &str = "restore the metadata directory as it was, or empty it wholly and start the node again under a \
    node id that the cluster has not used";

impl Issue {
    fn new(what: &'static str, path: &Path, reason: impl Into<String>, plan: Plan) -> Self {
        let (path, reason) = (path.to_path_buf(), reason.into());
        Self { what, path, position: None, reason, plan, outcome: Outcome::Open }
    }

    fn of(dir: &Path, finding: &Finding) -> Self {
        let plan = match repair_of(finding) {
            Some(repair) => Plan::Repair(dir.to_path_buf(), repair),
            None if finding.fault == Fault::Index => {
                Plan::Advice("remove it: the next start makes it anew")
            }
            None => Plan::Advice(FROM_REPLICA),
        };
        let what = finding.fault.name();
        let issue = Self::new(what, &finding.path, finding.reason.clone(), plan);
        Self { position: finding.position, ..issue }
    }

    fn repair(&mut self) {
        if let Plan::Repair(dir, repair) = &self.plan {
            self.outcome = match repair::repair(dir, repair) {
                Ok(()) => Outcome::Repaired,
                Err(error) => Outcome::Failed(error.to_string()),
            };
        }
    }

    fn plan(&self) -> String {
        match &self.plan {
            Plan::Advice(advice) => (*advice).to_owned(),
            Plan::Repair(_, Repair::Reindex(_)) => "make the indexes anew".to_owned(),
            Plan::Repair(_, Repair::CutTail(_)) => "cut it off".to_owned(),
            Plan::Repair(_, Repair::RewriteEpochs) => "make it anew from the batches".to_owned(),
            Plan::Repair(_, Repair::Remove(_)) => "remove it".to_owned(),
            Plan::Repair(_, Repair::RemoveLeftovers) => "remove them".to_owned(),
        }
    }
}

impl Report {
    fn metadata(&mut self, meta: &Path) {
        if !meta.exists() {
            let reason = "there is no metadata directory";
            self.issues.push(Issue::new("metadata", meta, reason, Plan::Advice(RESTORE)));
            return;
        }
        let scratch = std::env::temp_dir().join(format!("kontiki-fsck-{}", random::uuid()));
        let checked = check::check(meta, &scratch);
        let _ = fs::remove_dir_all(&scratch);
        match checked {
            Ok(checked) => self.metadata = Some(checked),
            Err(error) => {
                let reason = error.to_string();
                self.issues.push(Issue::new("metadata", meta, reason, Plan::Advice(RESTORE)));
            }
        }
    }

    fn log_dir(&mut self, dir: &Path) -> Result<(), Failure> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            // A node that never started has none.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let problem = format!("cannot list {}: {error}", dir.display());
                return Err(Failure::refused(problem));
            }
        };
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort_unstable();
        let progress = Progress::start(Some(paths.len() as u64), "entries");
        for path in paths {
            if path.is_dir() && is_partition(&path) {
                self.partition(&path)?;
            } else if path.is_file() {
                self.file(dir, &path);
            }
            progress.advance(1);
        }
        Ok(())
    }

    fn partition(&mut self, path: &Path) -> Result<(), Failure> {
        let seen = verify(path)?;
        self.records += seen.records;
        self.size += seen.size;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !self.partitions.insert(name) {
            let reason = "the partition is in another log directory, too";
            let advice = "find out which one is current, and move the other one away";
            self.issues.push(Issue::new("identity", path, reason, Plan::Advice(advice)));
        }
        self.issues.extend(seen.findings.iter().map(|finding| Issue::of(path, finding)));
        // What makes files anew must be able to read what they tell of.
        let lost: Vec<&Finding> =
            seen.findings.iter().filter(|finding| finding.fault == Fault::Records).collect();
        for issue in self.issues.iter_mut().filter(|issue| issue.path.starts_with(path)) {
            let needs_lost = match issue.plan {
                Plan::Repair(_, Repair::RewriteEpochs) => !lost.is_empty(),
                Plan::Repair(_, Repair::Reindex(_)) => {
                    lost.iter().any(|lost| lost.path.file_stem() == issue.path.file_stem())
                }
                _ => false,
            };
            if needs_lost {
                issue.plan = Plan::Advice(FROM_REPLICA);
            }
        }
        let left = leftovers(&seen.files).len();
        if left > 0 {
            let plan = Plan::Repair(path.to_path_buf(), Repair::RemoveLeftovers);
            let reason = format!("{} not needed any more", count(left, "file"));
            self.issues.push(Issue::new(LEFTOVER, path, reason, plan));
        }
        Ok(())
    }

    /// A checkpoint of a log directory. A node goes without one that is damaged: it reads more at start.
    fn file(&mut self, dir: &Path, path: &Path) {
        let remove = || Plan::Repair(dir.to_path_buf(), Repair::Remove(path.to_path_buf()));
        if path.extension().is_some_and(|extension| extension == "tmp") {
            self.issues.push(Issue::new(LEFTOVER, path, "left by interrupted work", remove()));
        } else if FileKind::of(path) == Some(FileKind::Offsets)
            && let Err(error) = read(path)
        {
            self.issues.push(Issue::new("checkpoint", path, error.to_string(), remove()));
        }
    }

    fn to_json(&self) -> Value {
        let issues = self.issues.iter().map(|issue| {
            let (repaired, error) = match &issue.outcome {
                Outcome::Open => (false, None),
                Outcome::Repaired => (true, None),
                Outcome::Failed(error) => (false, Some(error)),
            };
            json!({
                "what": issue.what,
                "path": issue.path,
                "position": issue.position,
                "reason": issue.reason,
                "plan": issue.plan(),
                "repairable": matches!(issue.plan, Plan::Repair(..)),
                "repaired": repaired,
                "error": error,
            })
        });
        json!({
            "node_id": self.metadata.as_ref().map(|metadata| metadata.node_id),
            "cluster_id": self.metadata.as_ref().and_then(|m| m.cluster_id).map(|id| id.to_string()),
            "last_metadata_index": self.metadata.as_ref().and_then(|m| m.last_index),
            "partitions": self.partitions.len(),
            "records": self.records,
            "size": self.size,
            "issues": issues.collect::<Value>(),
        })
    }

    fn to_text(&self) -> String {
        let whose = match &self.metadata {
            Some(metadata) => format!("node {}", metadata.node_id),
            None => "unknown node".to_owned(),
        };
        let partitions = count(self.partitions.len(), "partition");
        let (records, size) = (self.records, self.size);
        let mut text = format!("{whose}: {partitions}, {records} records, {size} bytes: ");
        if self.issues.is_empty() {
            return text + "clean";
        }
        text += &count(self.issues.len(), "finding");
        text.push('\n');
        let rows = self.issues.iter().map(|issue| {
            let at =
                issue.position.map_or(String::new(), |position| format!(" at byte {position}"));
            let done = match &issue.outcome {
                Outcome::Open => issue.plan(),
                Outcome::Repaired => "done: ".to_owned() + &issue.plan(),
                Outcome::Failed(error) => format!("FAILED: {error}"),
            };
            [
                issue.what.to_owned(),
                format!("{}{at}", issue.path.display()),
                issue.reason.clone(),
                done,
            ]
        });
        text + &table(["what", "where", "why", "plan"], rows)
    }
}
