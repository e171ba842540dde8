//! Configs as DescribeConfigs shows them: every key, where its value comes from, and what else could have decided it.

use super::defs::{ConfigDef, cluster_defs, topic_defs};
use crate::metadata::MetadataImage;
use crate::types::{ConfigResource, NodeId};

/// Where a value comes from, most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    Topic,
    /// Set for one broker.
    DynamicBroker,
    /// Set for all brokers.
    DynamicDefaultBroker,
    /// From the configuration of the node that answers.
    StaticBroker,
    Default,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    pub name: &'static str,
    pub value: String,
    pub source: ConfigSource,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedConfig {
    pub name: &'static str,
    pub value: String,
    pub source: ConfigSource,
    pub def: &'static ConfigDef,
    /// Every level that has a value, the effective one first. What brokers do not have has no default among them.
    pub synonyms: Vec<ConfigSynonym>,
}

impl MetadataImage {
    /// All configs of a resource, by name, as broker `node_id` sees them. `of_node` is its static configuration, by the
    /// name that a config has on brokers. Whether the resource exists is for the caller to check.
    pub fn describe_configs(
        &self,
        resource: &ConfigResource,
        node_id: NodeId,
        of_node: impl Fn(&str) -> Option<String>,
    ) -> Vec<DescribedConfig> {
        let set = |resource: &ConfigResource, name: &str| {
            self.configs.get(resource).and_then(|configs| configs.get(name)).cloned()
        };
        let describe = |def: &'static ConfigDef| {
            let topic = match resource {
                ConfigResource::Topic(topic) => Some(&**topic),
                ConfigResource::Broker(_) | ConfigResource::Cluster => None,
            };
            let mut synonyms = Vec::new();
            let mut push = |name: &'static str, source, value: Option<String>| {
                synonyms.extend(value.map(|value| ConfigSynonym { name, value, source }));
            };
            if let Some(topic) = topic {
                let own = self.topic_configs(topic).and_then(|configs| configs.get(def.name));
                push(def.name, ConfigSource::Topic, own.cloned());
            }
            let default = self.default_value(def, topic);
            if let Some(name) = def.cluster_name {
                if *resource != ConfigResource::Cluster {
                    let of_broker = set(&ConfigResource::Broker(node_id), name);
                    push(name, ConfigSource::DynamicBroker, of_broker);
                }
                let of_cluster = set(&ConfigResource::Cluster, name);
                push(name, ConfigSource::DynamicDefaultBroker, of_cluster);
                push(name, ConfigSource::StaticBroker, of_node(name));
                push(name, ConfigSource::Default, Some(default.clone()));
            }
            let name = match topic {
                Some(_) => def.name,
                None => def.cluster_name.unwrap_or(def.name),
            };
            let (value, source) = match synonyms.first() {
                Some(effective) => (effective.value.clone(), effective.source),
                None => (default, ConfigSource::Default),
            };
            DescribedConfig { name, value, source, def, synonyms }
        };
        let mut described: Vec<DescribedConfig> = match resource {
            ConfigResource::Topic(_) => topic_defs().iter().map(describe).collect(),
            ConfigResource::Broker(_) | ConfigResource::Cluster => {
                cluster_defs().map(describe).collect()
            }
        };
        described.sort_by_key(|config| config.name);
        described
    }

    /// `min.insync.replicas` depends on how many replicas a topic has (design 4).
    fn default_value(&self, def: &ConfigDef, topic: Option<&str>) -> String {
        match topic.and_then(|topic| self.topic(topic)) {
            Some(topic) if def.name == "min.insync.replicas" => {
                super::MinIsr(None).of(topic.replication_factor()).to_string()
            }
            _ => def.default.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MetadataRecord;
    use crate::metadata::test_support::*;

    #[test]
    fn synonyms_are_ordered_most_specific_first() {
        let mut image = image_with_topic("a", 1);
        let config = |resource, key: &str, value: &str| MetadataRecord::Config {
            resource,
            key: key.into(),
            value: Some(value.into()),
        };
        apply(
            &mut image,
            vec![
                config(ConfigResource::Topic("a".into()), "log.durability", "page-cache"),
                config(ConfigResource::Cluster, "log.durability", "fsync"),
                config(ConfigResource::Broker(NodeId(1)), "log.durability", "page-cache"),
                config(ConfigResource::Broker(NodeId(2)), "log.durability", "fsync"),
            ],
        );
        let of_node = |name: &str| (name == "log.durability").then(|| "page-cache".to_owned());
        let all = image.describe_configs(&ConfigResource::Topic("a".into()), NodeId(1), of_node);
        assert_eq!(all.len(), topic_defs().len());
        let found = all.iter().find(|config| config.name == "log.durability").unwrap();
        let sources: Vec<_> = found.synonyms.iter().map(|s| (s.source, s.value.as_str())).collect();
        assert_eq!(
            sources,
            [
                (ConfigSource::Topic, "page-cache"),
                (ConfigSource::DynamicBroker, "page-cache"),
                (ConfigSource::DynamicDefaultBroker, "fsync"),
                (ConfigSource::StaticBroker, "page-cache"),
                (ConfigSource::Default, "fsync"),
            ]
        );
        let min_isr = all.iter().find(|config| config.name == "min.insync.replicas").unwrap();
        assert_eq!((min_isr.value.as_str(), min_isr.source), ("2", ConfigSource::Default));
        let found = all.iter().find(|config| config.name == "retention.bytes").unwrap();
        assert_eq!(found.synonyms[0].name, "log.retention.bytes");
        let found = all.iter().find(|config| config.name == "remote.storage.enable").unwrap();
        assert_eq!((found.value.as_str(), found.synonyms.len()), ("false", 0));
        let of_cluster = image.describe_configs(&ConfigResource::Cluster, NodeId(1), |_| None);
        assert!(of_cluster.iter().any(|config| config.name == "log.segment.bytes"));
    }
}
