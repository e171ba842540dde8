//! DescribeConfigs: every config of topics and brokers, with type, source and synonyms.

use std::collections::HashSet;

use super::dispatch::{Call, Reply};
use super::refusal::outcome_of;
use crate::controller::Refusal;
use crate::metadata::config::{self, ConfigKind, ConfigSource};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    ConfigSynonym, DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
    DescribeConfigsResult, DescribedConfig, RESOURCE_BROKER, RESOURCE_TOPIC, Text,
};
use crate::protocol::native::ConfigView;
use crate::types::{ConfigResource, NodeId};

/// Where a value comes from, as Kafka numbers it.
mod source_number {
    pub(super) const TOPIC: i8 = 1;
    pub(super) const DYNAMIC_BROKER: i8 = 2;
    pub(super) const DYNAMIC_DEFAULT_BROKER: i8 = 3;
    pub(super) const STATIC_BROKER: i8 = 4;
    pub(super) const DEFAULT: i8 = 5;
}

pub(super) async fn handle(
    call: Call,
    request: DescribeConfigsRequest,
) -> Reply<DescribeConfigsResponse> {
    let broker = &call.front.broker;
    // A resource that is named twice is described once, so that a small request has no huge answer.
    let mut seen = HashSet::new();
    let resources = request.resources.iter();
    let resources = resources.filter(|r| seen.insert((r.resource_type, r.resource_name.as_str())));
    let synonyms_of = |resource: &ConfigResource| match request.include_synonyms {
        true => broker.dynamic_configs(resource),
        false => Ok(Vec::new()),
    };
    let results = resources.map(|asked| {
        let described = resource(asked.resource_type, &asked.resource_name)
            .and_then(|it| Ok((broker.describe_configs(&it)?, synonyms_of(&it)?)));
        let mut result = DescribeConfigsResult {
            resource_type: asked.resource_type,
            resource_name: asked.resource_name.clone(),
            ..Default::default()
        };
        match described {
            Ok((views, dynamic)) => {
                result.configs = configs(views, &dynamic, asked, &request);
            }
            Err(refusal) => (result.error_code, result.error_message) = outcome_of(&refusal),
        }
        result
    });
    DescribeConfigsResponse { results: results.collect(), ..Default::default() }.into()
}

/// What a request means by a type and a name.
pub(super) fn resource(kind: i8, name: &str) -> Result<ConfigResource, Refusal> {
    let refuse = |message| Err(Refusal::new(ErrorCode::InvalidRequest, message));
    match kind {
        RESOURCE_TOPIC => Ok(ConfigResource::Topic(name.into())),
        RESOURCE_BROKER if name.is_empty() => Ok(ConfigResource::Cluster),
        RESOURCE_BROKER => match name.parse() {
            Ok(id) => Ok(ConfigResource::Broker(NodeId(id))),
            Err(_) => refuse(format!("{name:?} is no id of a broker")),
        },
        _ => refuse(format!("resources of type {kind} have no configs here: 2 is topic, 4 broker")),
    }
}

fn configs(
    views: Vec<ConfigView>,
    dynamic: &[config::DescribedConfig],
    asked: &DescribeConfigsResource,
    request: &DescribeConfigsRequest,
) -> Vec<DescribedConfig> {
    let wanted = views.into_iter().filter(|view| match &asked.configuration_keys {
        None => true,
        Some(keys) => keys.iter().any(|key| **key == *view.name),
    });
    let described = wanted.map(|view| {
        let of_view = dynamic.iter().find(|config| config.name == view.name);
        DescribedConfig {
            config_source: source(&view.source),
            config_type: kind(&view.name),
            synonyms: of_view.map(synonyms).unwrap_or_default(),
            read_only: view.read_only,
            documentation: request.include_documentation.then(|| view.documentation.into()),
            name: view.name.into(),
            value: view.value.map(Text::from),
            is_sensitive: false,
        }
    });
    described.collect()
}

/// Every level that decides a config, most specific first.
fn synonyms(config: &config::DescribedConfig) -> Vec<ConfigSynonym> {
    let synonyms = config.synonyms.iter().map(|synonym| ConfigSynonym {
        name: synonym.name.into(),
        value: Some(synonym.value.clone().into()),
        source: match synonym.source {
            ConfigSource::Topic => source_number::TOPIC,
            ConfigSource::DynamicBroker => source_number::DYNAMIC_BROKER,
            ConfigSource::DynamicDefaultBroker => source_number::DYNAMIC_DEFAULT_BROKER,
            ConfigSource::StaticBroker => source_number::STATIC_BROKER,
            ConfigSource::Default => source_number::DEFAULT,
        },
    });
    synonyms.collect()
}

/// The number of a source in [`ConfigView`]'s words.
pub(super) fn source(word: &str) -> i8 {
    match word {
        "topic" => source_number::TOPIC,
        "broker" => source_number::DYNAMIC_BROKER,
        "cluster" => source_number::DYNAMIC_DEFAULT_BROKER,
        "static" => source_number::STATIC_BROKER,
        _ => source_number::DEFAULT,
    }
}

/// The type of a config's values, as Kafka numbers types. What is no default of topics is shown as a string.
fn kind(name: &str) -> i8 {
    let def = config::topic_def(name).or_else(|| config::cluster_def(name));
    match def.map(|def| def.kind) {
        Some(ConfigKind::Boolean) => 1,
        Some(ConfigKind::Choice(_)) | None => 2,
        Some(ConfigKind::Int { .. }) => 3,
        Some(ConfigKind::Long { .. }) => 5,
        Some(ConfigKind::Ratio) => 6,
        Some(ConfigKind::List(_)) => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_what_kafka_calls_them() {
        assert_eq!(resource(2, "t"), Ok(ConfigResource::Topic("t".into())));
        assert_eq!(resource(4, ""), Ok(ConfigResource::Cluster));
        assert_eq!(resource(4, "3"), Ok(ConfigResource::Broker(NodeId(3))));
        for (kind, name) in [(4, "x"), (8, "1"), (16, "")] {
            assert_eq!(
                resource(kind, name).expect_err("no configs").code,
                ErrorCode::InvalidRequest
            );
        }
    }

    #[test]
    fn types_are_kafkas() {
        for (name, number) in [
            ("cleanup.policy", 7),
            ("segment.bytes", 3),
            ("retention.ms", 5),
            ("min.cleanable.dirty.ratio", 6),
            ("preallocate", 1),
            ("compression.type", 2),
            ("listeners", 2),
        ] {
            assert_eq!(kind(name), number, "{name}");
        }
    }
}
