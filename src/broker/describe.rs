//! Configs as this broker describes them.

use super::Broker;
use crate::controller::Refusal;
use crate::metadata::config::{ConfigSource, DescribedConfig, cluster_def};
use crate::protocol::ErrorCode;
use crate::protocol::native::ConfigView;
use crate::storage::DescribedDir;
use crate::types::ConfigResource;

impl Broker {
    /// What lies in which log directory.
    pub fn describe_log_dirs(&self) -> Vec<DescribedDir> {
        self.logs.describe()
    }

    /// Every dynamic config of a resource, with all levels that have a value.
    pub fn dynamic_configs(
        &self,
        resource: &ConfigResource,
    ) -> Result<Vec<DescribedConfig>, Refusal> {
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
        Ok(image.describe_configs(resource, self.node_id(), of_node))
    }

    /// Every config of a resource with its effective value; of this broker, also what it was started with.
    pub fn describe_configs(&self, resource: &ConfigResource) -> Result<Vec<ConfigView>, Refusal> {
        let described = self.dynamic_configs(resource)?.into_iter().map(|config| ConfigView {
            name: config.name.to_owned(),
            value: Some(config.value),
            source: source_name(config.source).to_owned(),
            read_only: !config.def.implemented,
            documentation: config.def.doc.to_owned(),
        });
        let mut views: Vec<ConfigView> = described.collect();
        if matches!(resource, ConfigResource::Broker(_)) {
            let of_start =
                self.static_configs.iter().filter(|(name, _)| cluster_def(name).is_none());
            views.extend(of_start.map(|(name, value)| ConfigView {
                name: name.clone(),
                value: Some(value.clone()),
                source: source_name(ConfigSource::StaticBroker).to_owned(),
                read_only: true,
                documentation: String::new(),
            }));
        }
        Ok(views)
    }
}

fn source_name(source: ConfigSource) -> &'static str {
    match source {
        ConfigSource::Topic => "topic",
        ConfigSource::DynamicBroker => "broker",
        ConfigSource::DynamicDefaultBroker => "cluster",
        ConfigSource::StaticBroker => "static",
        ConfigSource::Default => "default",
    }
}
