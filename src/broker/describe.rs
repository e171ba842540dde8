//! Configs as this broker describes them.

use super::Broker;
use crate::controller::Refusal;
use crate::metadata::config::ConfigSource;
use crate::protocol::ErrorCode;
use crate::protocol::native::ConfigView;
use crate::types::ConfigResource;

impl Broker {
    /// Every config of a resource with its effective value.
    pub fn describe_configs(&self, resource: &ConfigResource) -> Result<Vec<ConfigView>, Refusal> {
        let image = self.image();
        match resource {
            ConfigResource::Topic(name) if image.topic(name).is_none() => {
                let message = format!("there is no topic {name}");
                return Err(Refusal::new(ErrorCode::UnknownTopicOrPartition, message));
            }
            ConfigResource::Broker(node_id) if *node_id != self.node_id() => {
                let message =
                    format!("ask broker {node_id} itself; this is broker {}", self.node_id());
                return Err(Refusal::new(ErrorCode::InvalidRequest, message));
            }
            _ => {}
        }
        let of_node = |name: &str| self.static_configs.get(name).cloned();
        let described = image.describe_configs(resource, of_node);
        Ok(described
            .into_iter()
            .map(|config| ConfigView {
                name: config.name.to_owned(),
                value: Some(config.value),
                source: source_name(config.source).to_owned(),
                read_only: !config.def.implemented,
                documentation: config.def.doc.to_owned(),
            })
            .collect())
    }
}

fn source_name(source: ConfigSource) -> &'static str {
    match source {
        ConfigSource::Topic => "topic",
        ConfigSource::DynamicDefaultBroker => "cluster",
        ConfigSource::StaticBroker => "static",
        ConfigSource::Default => "default",
    }
}
