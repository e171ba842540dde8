//! AlterConfigs, the older of the two: what a request does not name goes back to its default.

use std::collections::BTreeSet;

use super::describe_configs::resource;
use super::dispatch::{Call, Reply};
use super::incremental_alter_configs::alter;
use crate::controller::{ConfigChange, ConfigOperation, Refusal};
use crate::metadata::MetadataImage;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{AlterConfigsRequest, AlterConfigsResponse, ReplacedConfigs};

pub(super) async fn handle(
    call: Call,
    request: AlterConfigsRequest,
) -> Reply<AlterConfigsResponse> {
    let image = call.front.broker.image();
    let changes = request.resources.into_iter().map(|asked| {
        let change = change(&image, &asked);
        (asked.resource_type, asked.resource_name, change)
    });
    let responses = alter(&call, changes, request.validate_only).await;
    AlterConfigsResponse { responses, ..Default::default() }.into()
}

fn change(image: &MetadataImage, asked: &ReplacedConfigs) -> Result<ConfigChange, Refusal> {
    let resource = resource(asked.resource_type, &asked.resource_name)?;
    let mut operations = Vec::with_capacity(asked.configs.len());
    for config in &asked.configs {
        let Some(value) = &config.value else {
            let message = format!("{} needs a value", config.name);
            return Err(Refusal::new(ErrorCode::InvalidRequest, message));
        };
        operations.push((config.name.to_string(), ConfigOperation::Set(value.to_string())));
    }
    let named: BTreeSet<&str> = asked.configs.iter().map(|config| config.name.as_str()).collect();
    let set = image.configs.get(&resource).into_iter().flat_map(|configs| configs.keys());
    let unnamed = set.filter(|key| !named.contains(key.as_str()));
    operations.extend(unnamed.map(|key| (key.clone(), ConfigOperation::Delete)));
    Ok(ConfigChange { resource, operations })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::MetadataRecord;
    use crate::metadata::test_support::*;
    use crate::protocol::kafka::{RESOURCE_TOPIC, ReplacedConfig};
    use crate::types::ConfigResource;

    #[test]
    fn what_is_not_named_goes_back_to_its_default() {
        let mut image = image_with_topic("a", 1);
        let set = |key: &str| MetadataRecord::Config {
            resource: ConfigResource::Topic("a".into()),
            key: key.into(),
            value: Some("7".into()),
        };
        apply(&mut image, vec![set("segment.ms"), set("retention.ms")]);
        let named = |value: Option<&'static str>| ReplacedConfig {
            name: "retention.ms".into(),
            value: value.map(Into::into),
        };
        let asked = |configs| ReplacedConfigs {
            resource_type: RESOURCE_TOPIC,
            resource_name: "a".into(),
            configs,
        };
        let change = |configs| change(&image, &asked(configs));
        let operations = change(vec![named(Some("5"))]).expect("valid").operations;
        assert_eq!(
            operations,
            [
                ("retention.ms".to_owned(), ConfigOperation::Set("5".to_owned())),
                ("segment.ms".to_owned(), ConfigOperation::Delete),
            ]
        );
        assert_eq!(change(Vec::new()).expect("valid").operations.len(), 2);
        assert_eq!(change(vec![named(None)]).unwrap_err().code, ErrorCode::InvalidRequest);
    }
}
