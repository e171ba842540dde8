//! `kontiki log verify`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::super::error::Failure;
use super::super::output::{Output, Progress, count};
use super::partitions;
use crate::storage::inspect::{Finding, Verified, verify};

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Partition directories, or log directories that hold some
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
}

pub(super) fn run(output: Output, args: &VerifyArgs) -> Result<(), Failure> {
    let mut dirs = Vec::new();
    for dir in &args.dirs {
        dirs.extend(partitions(dir)?);
    }
    let progress = Progress::start(Some(dirs.len() as u64), "partitions");
    let mut verified = Vec::new();
    for dir in dirs {
        let seen = verify(&dir)?;
        verified.push((dir, seen));
        progress.advance(1);
    }
    drop(progress);
    let json: Value = verified.iter().map(|(dir, seen)| to_json(dir, seen)).collect();
    output.print(&json, || {
        verified.iter().map(|(dir, seen)| summary(dir, seen)).collect::<Vec<_>>().join("\n")
    })?;
    match verified.iter().all(|(_, seen)| seen.findings.is_empty()) {
        true => Ok(()),
        false => Err(Failure::unhealthy()),
    }
}

fn to_json(dir: &Path, seen: &Verified) -> Value {
    json!({
        "dir": dir,
        "start_offset": seen.start_offset,
        "end_offset": seen.end_offset,
        "segments": seen.files.segments.len(),
        "batches": seen.batches,
        "records": seen.records,
        "size": seen.size,
        "findings": seen.findings.iter().map(finding_json).collect::<Value>(),
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "fault": finding.fault.name(),
        "file": finding.path,
        "position": finding.position,
        "reason": finding.reason,
    })
}

fn summary(dir: &Path, seen: &Verified) -> String {
    let verdict = match seen.findings.len() {
        0 => "ok".to_owned(),
        findings => count(findings, "finding"),
    };
    let mut text = format!(
        "{}: {verdict}, {} records in {} batches, offsets {} to {}, {} bytes in {}",
        dir.display(),
        seen.records,
        seen.batches,
        seen.start_offset,
        seen.end_offset,
        seen.size,
        count(seen.files.segments.len(), "segment"),
    );
    for finding in &seen.findings {
        let file = finding.path.strip_prefix(dir).unwrap_or(&finding.path);
        let at = finding.position.map_or(String::new(), |position| format!(" at byte {position}"));
        text +=
            &format!("\n  {}: {}{at}: {}", finding.fault.name(), file.display(), finding.reason);
    }
    text
}
