//! `kontiki topic trim`.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Args;
use serde_json::{Value, json};

use super::connect::Connect;
use super::error::Failure;
use super::moment;
use super::output::table;
use crate::client::{Admin, StartAt};
use crate::protocol::native::OffsetQuery;
use crate::types::Offset;

#[derive(Debug, Args)]
pub(super) struct TrimArgs {
    name: String,
    /// Only this partition; may be repeated [default: all]
    #[arg(long = "partition", short, value_name = "PARTITION")]
    partitions: Vec<i32>,
    /// Delete the records before this offset, or all there are
    #[arg(long, value_name = "OFFSET|end", required_unless_present = "before")]
    to: Option<Target>,
    /// Delete the records before the first one of this time or later: 2026-03-14T15:09:26Z, @MILLISECONDS, or an age
    /// (90s, 10m, 2h, 7d)
    #[arg(long, value_name = "TIME", conflicts_with = "to")]
    before: Option<moment::From>,
    /// Say what would be deleted, and delete nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Offset(Offset),
    End,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("end", _) => Ok(Self::End),
            (_, Ok(offset)) if offset >= 0 => Ok(Self::Offset(offset)),
            _ => Err(format!("{text:?} is neither an offset nor \"end\"")),
        }
    }
}

pub(super) async fn run(connect: &Connect, admin: &Admin, args: TrimArgs) -> Result<(), Failure> {
    let name = &args.name;
    let query = match args.before.map(|before| before.0) {
        None => None,
        Some(StartAt::Time(time_ms)) => Some(OffsetQuery::Timestamp(time_ms)),
        Some(_) => return Err(Failure::usage("--before takes a time; offsets go to --to")),
    };
    let partitions = match args.partitions.as_slice() {
        [] => {
            let topic = admin.describe_topic(name).await?;
            topic.partitions.iter().map(|partition| partition.partition).collect()
        }
        chosen => chosen.to_vec(),
    };
    let starts = admin.list_offsets(name, &partitions, OffsetQuery::Earliest).await?;
    let ends = admin.list_offsets(name, &partitions, OffsetQuery::Latest).await?;
    let found = match query {
        Some(query) => admin.list_offsets(name, &partitions, query).await?,
        None => BTreeMap::new(),
    };
    let end = |partition: i32| ends.get(&partition).map_or(-1, |end| end.offset);
    let targets: BTreeMap<i32, Offset> = partitions
        .iter()
        .map(|&partition| {
            let target = match (args.to, found.get(&partition)) {
                (Some(Target::Offset(offset)), _) => offset,
                (None, Some(found)) if found.offset >= 0 => found.offset,
                // All of it, or all of it is older.
                _ => end(partition),
            };
            (partition, target)
        })
        .collect();
    let now =
        if args.dry_run { targets.clone() } else { admin.delete_records(name, &targets).await? };
    let rows: Vec<[i64; 4]> = now
        .iter()
        .map(|(&partition, &now)| {
            let start = starts.get(&partition).map_or(0, |start| start.offset);
            [i64::from(partition), start, now.max(start), end(partition)]
        })
        .collect();
    let json: Vec<Value> = rows
        .iter()
        .map(|[partition, from, to, end]| {
            json!({ "partition": partition, "from": from, "start": to, "end": end })
        })
        .collect();
    let json = json!({ "name": name, "trimmed": !args.dry_run, "partitions": json });
    connect.output.print(&json, || {
        let heading = ["partition", "started at", "starts at", "ends at"];
        let heading = match args.dry_run {
            true => [heading[0], "starts at", "would start at", heading[3]],
            false => heading,
        };
        table(heading, rows.iter().map(|row| row.map(|number| number.to_string())))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!("end".parse(), Ok(Target::End));
        assert_eq!("17".parse(), Ok(Target::Offset(17)));
        for bad in ["", "-1", "latest", "1.5"] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
