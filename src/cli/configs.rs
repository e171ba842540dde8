//! Configs of topics and brokers: seeing and changing them.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::connect::Connect;
use super::error::Failure;
use super::output::{count, table};
use crate::client::Admin;
use crate::controller::ConfigOperation;
use crate::protocol::native::ConfigView;
use crate::types::ConfigResource;

#[derive(Debug, Args)]
pub(super) struct ConfigChanges {
    /// A config to set; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    set: Vec<(String, String)>,
    /// A config to set back to its default; may be repeated
    #[arg(long, value_name = "KEY")]
    unset: Vec<String>,
    /// Check, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

/// Makes the changes; shows the configs when there are none to make.
pub(super) async fn run(
    connect: &Connect,
    admin: &Admin,
    resource: ConfigResource,
    name: &str,
    changes: ConfigChanges,
) -> Result<(), Failure> {
    let set = changes.set.into_iter().map(|(key, value)| (key, ConfigOperation::Set(value)));
    let unset = changes.unset.into_iter().map(|key| (key, ConfigOperation::Delete));
    let operations: Vec<_> = set.chain(unset).collect();
    if operations.is_empty() {
        return show(connect, &admin.describe_configs(resource).await?);
    }
    let changed = operations.len();
    admin.alter_configs(resource, operations, changes.dry_run).await?;
    let json = json!({ "name": name, "changed": if changes.dry_run { 0 } else { changed } });
    connect.output.print(&json, || {
        let verb = if changes.dry_run { "would change" } else { "changed" };
        format!("{verb} {} of {name}", count(changed, "config"))
    })?;
    Ok(())
}

fn show(connect: &Connect, configs: &[ConfigView]) -> Result<(), Failure> {
    let by_name: BTreeMap<&str, &ConfigView> =
        configs.iter().map(|config| (config.name.as_str(), config)).collect();
    let json: Vec<Value> = by_name
        .values()
        .map(|config| {
            json!({
                "name": config.name,
                "value": config.value,
                "source": config.source,
                "read_only": config.read_only,
                "documentation": config.documentation,
            })
        })
        .collect();
    connect.output.print(&Value::from(json), || {
        let rows = by_name.values().map(|config| {
            let value = config.value.clone().unwrap_or_else(|| "-".to_owned());
            [config.name.clone(), value, config.source.clone()]
        });
        table(["name", "value", "source"], rows)
    })?;
    Ok(())
}
