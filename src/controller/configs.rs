//! Changes of dynamic configs, incremental: each resource as a whole or not at all.

use std::collections::BTreeMap;

use imbl::OrdMap;

use super::brokers::unregistered;
use super::sweep::Sweep;
use super::{ConfigChange, ConfigOperation, ControllerReply, Decision, RECORDS_MAX, Refusal};
use crate::metadata::config::{
    ConfigDef, ConfigKind, cluster_def, list_items, topic_def, validate_cluster, validate_topic,
};
use crate::metadata::{MetadataImage, MetadataRecord, TopicImage};
use crate::protocol::ErrorCode;
use crate::types::ConfigResource;

const MIN_ISR: &str = "min.insync.replicas";

pub(super) fn alter(
    image: &MetadataImage,
    changes: &[ConfigChange],
    validate_only: bool,
) -> Result<Decision, Refusal> {
    let mut after = image.clone();
    let mut records = Vec::new();
    let mut results = Vec::with_capacity(changes.len());
    for change in changes {
        results.push(alter_resource(&after, change).and_then(|made| {
            // Later changes of the request see earlier ones.
            after
                .replay_records(image.index, &made)
                .map_err(|error| Refusal::new(ErrorCode::UnknownServerError, error.to_string()))?;
            records.extend(made);
            Ok(())
        }));
    }
    if records.len() > RECORDS_MAX {
        return Err(Refusal::new(
            ErrorCode::PolicyViolation,
            format!("the request would make more than {RECORDS_MAX} records; split it"),
        ));
    }
    records.extend(follow_min_isr(image, &after));
    let records = if validate_only { Vec::new() } else { records };
    Ok(Decision {
        records,
        reply: Ok(ControllerReply::AlterConfigs { results, index: image.index }),
    })
}

fn alter_resource(
    image: &MetadataImage,
    change: &ConfigChange,
) -> Result<Vec<MetadataRecord>, Refusal> {
    let resource = &change.resource;
    check_resource(image, resource)?;
    let nothing = OrdMap::new();
    let current = image.configs.get(resource).unwrap_or(&nothing);
    let mut wanted: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for (key, operation) in &change.operations {
        let value = altered(resource, key, operation, current.get(key).map(String::as_str))?;
        if wanted.insert(key, value).is_some() {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                format!("config {key} appears twice in one change"),
            ));
        }
    }
    let made = wanted.into_iter().filter(|(key, value)| current.get(*key) != value.as_ref());
    Ok(made
        .map(|(key, value)| MetadataRecord::Config {
            resource: resource.clone(),
            key: key.to_owned(),
            value,
        })
        .collect())
}

fn check_resource(image: &MetadataImage, resource: &ConfigResource) -> Result<(), Refusal> {
    match resource {
        ConfigResource::Topic(name) if image.topic(name).is_none() => Err(Refusal::new(
            ErrorCode::UnknownTopicOrPartition,
            format!("there is no topic {name}"),
        )),
        ConfigResource::Broker(node_id) if image.broker(*node_id).is_none() => {
            Err(unregistered(*node_id))
        }
        ConfigResource::Topic(_) | ConfigResource::Broker(_) | ConfigResource::Cluster => Ok(()),
    }
}

/// The new value of a key, `None` for "not set".
fn altered(
    resource: &ConfigResource,
    key: &str,
    operation: &ConfigOperation,
    current: Option<&str>,
) -> Result<Option<String>, Refusal> {
    if key == MIN_ISR && matches!(resource, ConfigResource::Broker(_)) {
        let message = format!("{key} decides about elections, so all brokers have the same");
        return Err(Refusal::new(ErrorCode::InvalidConfig, message));
    }
    let (def, validate): (_, fn(&str, &str) -> _) = match resource {
        ConfigResource::Topic(_) => (topic_def(key), validate_topic),
        ConfigResource::Broker(_) | ConfigResource::Cluster => (cluster_def(key), validate_cluster),
    };
    let valid = |value: &str| {
        validate(key, value)
            .map(Some)
            .map_err(|error| Refusal::new(ErrorCode::InvalidConfig, error.to_string()))
    };
    match operation {
        ConfigOperation::Set(value) => valid(value),
        ConfigOperation::Delete => match def {
            Some(_) => Ok(None),
            // The sentence about an unknown key.
            None => valid(""),
        },
        ConfigOperation::Append(items) => {
            let before = list(key, def, current)?;
            valid(&[before, items].map(str::trim).join(","))
        }
        ConfigOperation::Subtract(items) => {
            let before = list(key, def, current)?;
            let kept =
                list_items(before).filter(|item| list_items(items).all(|gone| gone != *item));
            valid(&kept.collect::<Vec<_>>().join(","))
        }
    }
}

fn list<'a>(
    key: &str,
    def: Option<&'static ConfigDef>,
    current: Option<&'a str>,
) -> Result<&'a str, Refusal> {
    match def {
        Some(ConfigDef { kind: ConfigKind::List(_), default, .. }) => {
            Ok(current.unwrap_or(default))
        }
        _ => Err(Refusal::new(
            ErrorCode::InvalidConfig,
            format!("{key} is no list, so nothing can be appended to it or subtracted from it"),
        )),
    }
}

/// The minimum ISR decides who is an eligible leader, so both change in one batch.
fn follow_min_isr(image: &MetadataImage, after: &MetadataImage) -> Vec<MetadataRecord> {
    if image.configs.ptr_eq(&after.configs) {
        return Vec::new();
    }
    let concerned = |topic: &&std::sync::Arc<TopicImage>| {
        image.min_isr(&topic.name) != after.min_isr(&topic.name)
    };
    let acceptable = |node| after.is_active(node);
    let sweep = Sweep::new(after, &acceptable);
    sweep.topics(after.topics.values().filter(concerned), |partition| Some(partition.clone()))
}

#[cfg(test)]
#[path = "configs_test.rs"]
mod tests;
