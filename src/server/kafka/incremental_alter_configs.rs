//! IncrementalAlterConfigs.

use super::describe_configs::resource;
use super::dispatch::{Call, Reply};
use super::refusal::{each, filled_in, outcome, results_of};
use crate::controller::{ConfigChange, ConfigOperation, ControllerRequest, Refusal};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    AlterConfigsResource, AlterConfigsResult, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse, Text,
};

/// The request has no timeout of its own.
const TIMEOUT_MS: i32 = 30_000;

pub(super) async fn handle(
    call: Call,
    request: IncrementalAlterConfigsRequest,
) -> Reply<IncrementalAlterConfigsResponse> {
    let changes = request.resources.into_iter().map(|asked| {
        let change = change(&asked);
        (asked.resource_type, asked.resource_name, change)
    });
    let responses = alter(&call, changes, request.validate_only).await;
    IncrementalAlterConfigsResponse { responses, ..Default::default() }.into()
}

/// Makes the changes that could be read, of resources by type and name; the result of each, in their order.
pub(super) async fn alter(
    call: &Call,
    asked: impl Iterator<Item = (i8, Text, Result<ConfigChange, Refusal>)>,
    validate_only: bool,
) -> Vec<AlterConfigsResult> {
    let (mut resources, mut checked) = (Vec::new(), Vec::new());
    for (resource_type, resource_name, change) in asked {
        resources.push((resource_type, resource_name));
        checked.push(change);
    }
    let changes: Vec<_> =
        checked.iter().filter_map(|change| change.as_ref().ok().cloned()).collect();
    let count = changes.len();
    let mut results = Vec::new();
    if count > 0 {
        let alter = ControllerRequest::AlterConfigs { changes, validate_only };
        results = each(results_of!(call.front.admin(alter, TIMEOUT_MS).await, AlterConfigs), count);
    }
    let results = resources.into_iter().zip(filled_in(checked, results));
    let results = results.map(|((resource_type, resource_name), result)| {
        let (error_code, error_message) = outcome(result);
        AlterConfigsResult { error_code, error_message, resource_type, resource_name }
    });
    results.collect()
}

fn change(asked: &AlterConfigsResource) -> Result<ConfigChange, Refusal> {
    let operations = asked.configs.iter().map(|config| {
        let operation = operation(config)?;
        Ok((config.name.to_string(), operation))
    });
    Ok(ConfigChange {
        resource: resource(asked.resource_type, &asked.resource_name)?,
        operations: operations.collect::<Result<_, Refusal>>()?,
    })
}

fn operation(config: &AlterableConfig) -> Result<ConfigOperation, Refusal> {
    let refuse = |message: String| Refusal::new(ErrorCode::InvalidRequest, message);
    let value = || match &config.value {
        Some(value) => Ok(value.to_string()),
        None => Err(refuse(format!("{} needs a value", config.name))),
    };
    Ok(match config.config_operation {
        0 => ConfigOperation::Set(value()?),
        1 => ConfigOperation::Delete,
        2 => ConfigOperation::Append(value()?),
        3 => ConfigOperation::Subtract(value()?),
        other => return Err(refuse(format!("{}: unknown operation {other}", config.name))),
    })
}
