//! From a request to its response.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Body;
use hyper::header::{CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};
use serde::Serialize;

use super::problem::Problem;
use super::route::{Operation, Routes};
use super::topics::{AlterTopicBody, CreateTopicBody};
use super::{AdminApi, body, brokers, health, openapi, origin, topics};
use crate::controller::{ControllerReply, ControllerRequest, Refusal, TopicSelector};
use crate::protocol::ErrorCode;
use crate::types::ConfigResource;

/// How long a change may wait for a controller and for the other brokers.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Whom the audit trail names, as long as there is no authentication.
const PRINCIPAL: &str = "User:ANONYMOUS";

type Answer = Result<Response<Full<Bytes>>, Problem>;

/// Serves one request. Never fails: what goes wrong is a problem document.
pub(super) async fn handle<B>(
    api: &AdminApi,
    routes: &Routes,
    request: Request<B>,
) -> Response<Full<Bytes>>
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    answer(api, routes, request).await.unwrap_or_else(Problem::into_response)
}

async fn answer<B>(api: &AdminApi, routes: &Routes, request: Request<B>) -> Answer
where
    B: Body + Send,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let node = &*api.node;
    let image = node.image();
    origin::check(request.headers(), &image)?;
    let found = routes.find(request.method(), request.uri().path())?;
    if request.uri().query().is_some() {
        let detail = format!("{} takes no query parameters", request.uri().path());
        return Err(Problem::bad_request(detail));
    }
    let (head, body) = request.into_parts();
    let argument = &*found.argument;
    match found.operation {
        Operation::Health => Ok(health::health()),
        Operation::Ready => health::ready(node.readiness()),
        Operation::Metrics => Ok(health::metrics(&api.registry)),
        Operation::OpenApi => Ok(json(StatusCode::OK, &openapi::document())),
        Operation::Cluster => {
            Ok(json(StatusCode::OK, &brokers::cluster(&image, &node.quorum_status())))
        }
        Operation::Quorum => Ok(json(StatusCode::OK, &brokers::quorum(&node.quorum_status()))),
        Operation::Brokers => Ok(json(StatusCode::OK, &brokers::brokers(&image))),
        Operation::Broker => Ok(json(StatusCode::OK, &brokers::broker(&image, argument)?)),
        Operation::DrainBroker => {
            body::read_nothing(body).await?;
            drain_broker(api, argument).await
        }
        Operation::Topics => Ok(json(StatusCode::OK, &topics::topics(&image))),
        Operation::CreateTopic => {
            create_topic(api, body::read_json(&head.headers, body).await?).await
        }
        Operation::Topic => topic(api, StatusCode::OK, argument),
        Operation::AlterTopic => {
            alter_topic(api, argument, body::read_json(&head.headers, body).await?).await
        }
        Operation::DeleteTopic => {
            body::read_nothing(body).await?;
            delete_topic(api, argument).await
        }
        Operation::Partitions => {
            Ok(json(StatusCode::OK, &topics::partitions(topics::find_topic(&image, argument)?)))
        }
        Operation::Explain => {
            topics::find_topic(&image, argument)?;
            let number = found.partition.parse().ok();
            let explanation = number.and_then(|number| image.explain(argument, number));
            let explanation = explanation.ok_or_else(|| {
                let detail = format!("{argument} has no partition {:?}", found.partition);
                Problem::not_found(ErrorCode::UnknownTopicOrPartition, detail)
            })?;
            Ok(json(StatusCode::OK, &explanation))
        }
    }
}

/// As this node's published image has it now.
fn topic(api: &AdminApi, status: StatusCode, name: &str) -> Answer {
    let image = api.node.image();
    let topic = topics::find_topic(&image, name)?;
    let configs = api.node.describe_configs(&ConfigResource::Topic(topic.name.clone()))?;
    Ok(json(status, &topics::topic(topic, configs)))
}

async fn create_topic(api: &AdminApi, body: CreateTopicBody) -> Answer {
    let (name, validate_only) = (body.name.clone(), body.validate_only);
    let topics = vec![body.into_request()];
    let created =
        match change(api, ControllerRequest::CreateTopics { topics, validate_only }).await? {
            ControllerReply::CreateTopics { results, .. } => only(results)?,
            _ => return Err(unexpected_reply()),
        };
    let view = CreatedView {
        name: created.name,
        topic_id: (!validate_only).then(|| created.topic_id.to_string()),
        partition_count: created.partition_count,
        replication_factor: created.replication_factor,
    };
    if validate_only {
        return Ok(json(StatusCode::OK, &view));
    }
    let mut response = json(StatusCode::CREATED, &view);
    // Topic names have no character that a header or a path would have to escape.
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/topics/{name}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// What was created, or would have been: then without an id.
#[derive(Serialize)]
struct CreatedView {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_id: Option<String>,
    partition_count: i32,
    replication_factor: i16,
}

async fn alter_topic(api: &AdminApi, name: &str, body: AlterTopicBody) -> Answer {
    let validate_only = body.validate_only;
    let changes = vec![body.into_change(name)?];
    match change(api, ControllerRequest::AlterConfigs { changes, validate_only }).await? {
        ControllerReply::AlterConfigs { results, .. } => {
            only(results).map_err(|problem| with_nearest(api, name, problem))?;
        }
        _ => return Err(unexpected_reply()),
    }
    topic(api, StatusCode::OK, name)
}

async fn delete_topic(api: &AdminApi, name: &str) -> Answer {
    let topics = vec![TopicSelector::Name(name.to_owned())];
    match change(api, ControllerRequest::DeleteTopics { topics }).await? {
        ControllerReply::DeleteTopics { results, .. } => {
            only(results).map_err(|problem| with_nearest(api, name, problem))?;
        }
        _ => return Err(unexpected_reply()),
    }
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

async fn drain_broker(api: &AdminApi, id: &str) -> Answer {
    let node_id = brokers::find_broker(&api.node.image(), id)?;
    change(api, ControllerRequest::Drain { node_id }).await?;
    Ok(json(StatusCode::OK, &brokers::broker(&api.node.image(), id)?))
}

/// The controller decides whether a topic exists; this node may lag. A name that neither knows gets a suggestion.
fn with_nearest(api: &AdminApi, name: &str, problem: Problem) -> Problem {
    if !problem.is_not_found() {
        return problem;
    }
    topics::find_topic(&api.node.image(), name).err().unwrap_or(problem)
}

async fn change(api: &AdminApi, request: ControllerRequest) -> Result<ControllerReply, Refusal> {
    api.node.admin(PRINCIPAL, request, CHANGE_TIMEOUT).await
}

/// The result of a request for one thing.
fn only<T>(results: Vec<Result<T, Refusal>>) -> Result<T, Problem> {
    Ok(results.into_iter().next().ok_or_else(unexpected_reply)??)
}

/// The active controller may run another version; that is a failure, not a broken invariant.
fn unexpected_reply() -> Problem {
    let message = "the active controller answered something else than was asked";
    Problem::from(Refusal::new(ErrorCode::UnknownServerError, message))
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let mut body = serde_json::to_vec_pretty(value).expect("views are JSON");
    body.push(b'\n');
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
