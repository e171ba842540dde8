//! IncrementalAlterConfigs.

use super::describe_configs::resource;
use super::dispatch::{Call, Reply};
use super::refusal::{DONE, Outcome, each, outcome_of, unexpected_reply};
use crate::controller::{
    ConfigChange, ConfigOperation, ControllerReply, ControllerRequest, Refusal,
};
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    AlterConfigsResource, AlterConfigsResult, AlterableConfig, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

/// The request has no timeout of its own.
const TIMEOUT_MS: i32 = 30_000;

pub(super) async fn handle(
    call: Call,
    request: IncrementalAlterConfigsRequest,
) -> Reply<IncrementalAlterConfigsResponse> {
    let changes = request.resources.iter().map(change).collect();
    let outcomes = alter(&call, changes, request.validate_only).await;
    let responses = request.resources.into_iter().zip(outcomes).map(|(asked, outcome)| {
        let (error_code, error_message) = outcome;
        let (resource_type, resource_name) = (asked.resource_type, asked.resource_name);
        AlterConfigsResult { error_code, error_message, resource_type, resource_name }
    });
    IncrementalAlterConfigsResponse { responses: responses.collect(), ..Default::default() }.into()
}

/// Makes the changes that could be read; the outcome of each, in their order.
pub(super) async fn alter(
    call: &Call,
    asked: Vec<Result<ConfigChange, Refusal>>,
    validate_only: bool,
) -> Vec<Outcome> {
    let changes: Vec<_> = asked.iter().filter_map(|change| change.as_ref().ok().cloned()).collect();
    let count = changes.len();
    let mut results = Vec::new();
    if count > 0 {
        let alter = ControllerRequest::AlterConfigs { changes, validate_only };
        let reply = match call.front.admin(alter, TIMEOUT_MS).await {
            Ok(ControllerReply::AlterConfigs { results, .. }) => Ok(results),
            Ok(_) => Err(unexpected_reply()),
            Err(refusal) => Err(refusal),
        };
        results = each(reply, count);
    }
    let mut results = results.into_iter();
    let outcomes = asked.into_iter().map(|asked| {
        // As many results as changes that could be read.
        match asked.and_then(|_| results.next().unwrap_or_else(|| Err(unexpected_reply()))) {
            Ok(()) => DONE,
            Err(refusal) => outcome_of(&refusal),
        }
    });
    outcomes.collect()
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
