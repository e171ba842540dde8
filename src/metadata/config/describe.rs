//! Configs as DescribeConfigs shows them: every key, where its value comes from, and what else could have decided it.

use super::defs::{ConfigDef, cluster_defs, topic_defs};
use crate::metadata::MetadataImage;
use crate::types::ConfigResource;

/// Where a value comes from, most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    Topic,
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
    /// Every level that has a value, the effective one first.
    pub synonyms: Vec<ConfigSynonym>,
}

impl MetadataImage {
    /// All configs of a resource, by name. `of_node` is the static configuration of the node that answers, by the name
    /// that a config has on brokers. Whether the resource exists is for the caller to check.
    pub fn describe_configs(
        &self,
        resource: &ConfigResource,
        of_node: impl Fn(&str) -> Option<String>,
    ) -> Vec<DescribedConfig> {
        let describe = |def: &'static ConfigDef, topic: Option<&str>| {
            let own = topic.and_then(|topic| self.topic_configs(topic)?.get(def.name).cloned());
            let of_cluster = def.cluster_name.and_then(|name| {
                Some((name, self.configs.get(&ConfigResource::Cluster)?.get(name)?.clone()))
            });
            let of_node = def.cluster_name.and_then(|name| Some((name, of_node(name)?)));
            let default = (def.name, self.default_value(def, topic));
            let levels = [
                (ConfigSource::Topic, own.map(|value| (def.name, value))),
                (ConfigSource::DynamicDefaultBroker, of_cluster),
                (ConfigSource::StaticBroker, of_node),
                (ConfigSource::Default, Some(default)),
            ];
            let synonyms: Vec<ConfigSynonym> = levels
                .into_iter()
                .filter_map(|(source, set)| {
                    set.map(|(name, value)| ConfigSynonym { name, value, source })
                })
                .collect();
            let name = match topic {
                Some(_) => def.name,
                None => def.cluster_name.unwrap_or(def.name),
            };
            let effective = synonyms.first().expect("the default is always there");
            DescribedConfig {
                name,
                value: effective.value.clone(),
                source: effective.source,
                def,
                synonyms,
            }
        };
        let mut described: Vec<DescribedConfig> = match resource {
            ConfigResource::Topic(topic) => {
                topic_defs().iter().map(|def| describe(def, Some(topic))).collect()
            }
            ConfigResource::Broker(_) | ConfigResource::Cluster => {
                cluster_defs().map(|def| describe(def, None)).collect()
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
            ],
        );
        let of_node = |name: &str| (name == "log.durability").then(|| "page-cache".to_owned());
        let all = image.describe_configs(&ConfigResource::Topic("a".into()), of_node);
        assert_eq!(all.len(), topic_defs().len());
        let found = all.iter().find(|config| config.name == "log.durability").unwrap();
        let sources: Vec<_> = found.synonyms.iter().map(|s| (s.source, s.value.as_str())).collect();
        assert_eq!(
            sources,
            [
                (ConfigSource::Topic, "page-cache"),
                (ConfigSource::DynamicDefaultBroker, "fsync"),
                (ConfigSource::StaticBroker, "page-cache"),
                (ConfigSource::Default, "fsync"),
            ]
        );
        let min_isr = all.iter().find(|config| config.name == "min.insync.replicas").unwrap();
        assert_eq!((min_isr.value.as_str(), min_isr.source), ("2", ConfigSource::Default));
        let of_cluster = image.describe_configs(&ConfigResource::Cluster, |_| None);
        assert!(of_cluster.iter().any(|config| config.name == "log.segment.bytes"));
    }
}
