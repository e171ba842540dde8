//! What a value may be. Values are stored in one canonical spelling, so that equal means equal.

use super::defs::{ConfigDef, ConfigKind, cluster_def, cluster_defs, topic_def, topic_defs};
use crate::types::nearest;

/// Why a config was refused: a sentence for the one who set it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConfig(pub String);

/// The canonical spelling of a value for a topic.
pub fn validate_topic(key: &str, value: &str) -> Result<String, InvalidConfig> {
    if let Some(def) = topic_def(key) {
        return validate(def, key, value);
    }
    let meant = cluster_def(key)
        .map(|def| def.name)
        .or_else(|| nearest(key, topic_defs().iter().map(|def| def.name)));
    Err(unknown("topic", key, meant))
}

/// The canonical spelling of a value for all brokers: the default of topics that do not set their own.
pub fn validate_cluster(key: &str, value: &str) -> Result<String, InvalidConfig> {
    if let Some(def) = cluster_def(key) {
        return validate(def, key, value);
    }
    let meant = topic_def(key)
        .and_then(|def| def.cluster_name)
        .or_else(|| nearest(key, cluster_defs().filter_map(|def| def.cluster_name)));
    Err(unknown("cluster", key, meant))
}

/// The items of a list value.
pub(crate) fn list_items(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

fn unknown(what: &str, key: &str, meant: Option<&str>) -> InvalidConfig {
    InvalidConfig(match meant {
        Some(meant) => format!("unknown {what} config {key:?}; did you mean {meant:?}?"),
        None => format!("unknown {what} config {key:?}"),
    })
}

fn validate(def: &ConfigDef, key: &str, value: &str) -> Result<String, InvalidConfig> {
    let Some(canonical) = canonical(def.kind, value.trim()) else {
        return Err(InvalidConfig(format!(
            "{value:?} is not valid for {key}: it takes {}",
            def.kind
        )));
    };
    if !def.implemented && canonical != def.default {
        return Err(InvalidConfig(format!(
            "{key} is not implemented yet, so it can only be its default, {:?}",
            def.default
        )));
    }
    Ok(canonical)
}

fn canonical(kind: ConfigKind, value: &str) -> Option<String> {
    match kind {
        ConfigKind::Boolean => {
            let value = value.to_ascii_lowercase();
            (value == "true" || value == "false").then_some(value)
        }
        ConfigKind::Int { min, max } => {
            let number: i32 = value.parse().ok()?;
            (min..=max).contains(&number).then(|| number.to_string())
        }
        ConfigKind::Long { min } => {
            let number: i64 = value.parse().ok()?;
            (number >= min).then(|| number.to_string())
        }
        ConfigKind::Ratio => ratio(value),
        ConfigKind::Choice(choices) => choices.contains(&value).then(|| value.to_owned()),
        ConfigKind::List(choices) => {
            let mut items: Vec<&str> = Vec::new();
            for item in list_items(value) {
                if !choices.is_empty() && !choices.contains(&item) {
                    return None;
                }
                if !items.contains(&item) {
                    items.push(item);
                }
            }
            Some(items.join(","))
        }
    }
}

/// A decimal number from 0 to 1, without floating point.
fn ratio(value: &str) -> Option<String> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let whole: u32 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    match (whole, fraction.trim_end_matches('0')) {
        (0, "") => Some("0".to_owned()),
        (0, fraction) => Some(format!("0.{fraction}")),
        (1, "") => Some("1".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str, value: &str) -> String {
        validate_topic(key, value).unwrap_err().0
    }

    #[test]
    fn defaults_are_canonical_and_valid_under_both_names() {
        for def in topic_defs() {
            assert_eq!(validate_topic(def.name, def.default), Ok(def.default.to_owned()));
            if let Some(name) = def.cluster_name {
                assert_eq!(validate_cluster(name, def.default), Ok(def.default.to_owned()));
            }
        }
    }

    #[test]
    fn values_are_stored_in_one_spelling() {
        for (key, value, stored) in [
            ("segment.bytes", " 1048576 ", "1048576"),
            ("unclean.leader.election.enable", "FALSE", "false"),
            ("min.cleanable.dirty.ratio", ".50", "0.5"),
            ("cleanup.policy", " delete,delete", "delete"),
        ] {
            assert_eq!(validate_topic(key, value), Ok(stored.to_owned()));
        }
    }

    #[test]
    fn values_out_of_bounds_say_what_is_allowed() {
        for (key, value) in [
            ("segment.bytes", "1048575"),
            ("segment.bytes", "abc"),
            ("segment.bytes", "2147483648"),
            ("segment.ms", "0"),
            ("min.insync.replicas", "0"),
            ("message.timestamp.type", "createtime"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("min.cleanable.dirty.ratio", "NaN"),
            ("cleanup.policy", "delete,destroy"),
            ("log.durability", "maybe"),
        ] {
            assert!(refused(key, value).contains("it takes"), "{key}={value}");
        }
        assert!(refused("segment.bytes", "7").contains("1048576 to 2147483647"));
    }

    #[test]
    fn what_is_not_implemented_takes_only_its_default() {
        assert!(refused("remote.storage.enable", "true").contains("not implemented"));
        assert!(refused("remote.copy.lag.ms", "1000").contains("its default, \"0\""));
        assert_eq!(validate_topic("remote.copy.lag.ms", "0"), Ok("0".to_owned()));
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        assert!(refused("retention.m", "1").contains("\"retention.ms\""));
        assert!(refused("log.retention.ms", "1").contains("\"retention.ms\""));
        assert!(!refused("qqqqqq", "1").contains("did you mean"));
        let of_cluster = validate_cluster("segment.bytes", "1").unwrap_err().0;
        assert!(of_cluster.contains("\"log.segment.bytes\""), "{of_cluster}");
    }
}
