//! What is served: one table from which the router, the 405 answers and the OpenAPI document are made.

use hyper::{Method, StatusCode};
use matchit::Router;

use super::problem::Problem;
use crate::types::nearest;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Health,
    Ready,
    Metrics,
    OpenApi,
    Cluster,
    Quorum,
    Brokers,
    Broker,
    DrainBroker,
    Topics,
    CreateTopic,
    Topic,
    AlterTopic,
    DeleteTopic,
    Partitions,
    Explain,
}

#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) operation: Operation,
    pub(super) summary: &'static str,
}

macro_rules! routes {
    ($($method:ident $path:literal $operation:ident $summary:literal,)*) => {
        pub(super) const ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            operation: Operation::$operation,
            summary: $summary,
        },)*];
    };
}

routes! {
    GET "/healthz" Health "200 while the process lives",
    GET "/readyz" Ready "200 when the node is registered, unfenced and caught up; 503 says why it is not",
    GET "/metrics" Metrics "Metrics in the OpenMetrics text format; docs/metrics.md lists them",
    GET "/v1/openapi.json" OpenApi "This document",
    GET "/v1/cluster" Cluster "The cluster at a glance",
    GET "/v1/quorum" Quorum "The metadata quorum as this node sees it",
    GET "/v1/brokers" Brokers "All brokers",
    GET "/v1/brokers/{id}" Broker "One broker",
    POST "/v1/brokers/{id}/drain" DrainBroker "Moves every leadership off the broker and keeps new ones away until it registers again",
    GET "/v1/topics" Topics "All topics",
    POST "/v1/topics" CreateTopic "Creates a topic; when this returns, every live broker serves it",
    GET "/v1/topics/{name}" Topic "One topic with its partitions and effective configs",
    PATCH "/v1/topics/{name}" AlterTopic "Changes configs; null goes back to the default",
    DELETE "/v1/topics/{name}" DeleteTopic "Deletes a topic; when this returns, no live broker serves it",
    GET "/v1/topics/{name}/partitions" Partitions "The partitions of a topic",
    GET "/v1/topics/{name}/partitions/{partition}/explain" Explain "Who may lead a partition, who not and why, and what it waits for",
}

/// Room for the longest topic name, each character percent-encoded, and more.
const PATH_SIZE_MAX: usize = 1024;

/// Path to the rows of [`ROUTES`] with that path.
pub(super) struct Routes(Router<Vec<&'static Route>>);

/// A row of the table, and the decoded `{id}` or `{name}` and `{partition}` of the path, empty where it has none.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) operation: Operation,
    pub(super) argument: String,
    pub(super) partition: String,
}

impl Routes {
    pub(super) fn new() -> Self {
        let mut router = Router::new();
        for route in ROUTES {
            let same_path = ROUTES.iter().filter(|other| other.path == route.path);
            if same_path.clone().next().is_some_and(|first| std::ptr::eq(first, route)) {
                let inserted = router.insert(route.path, same_path.collect());
                inserted.expect("the paths of the table do not conflict");
            }
        }
        Self(router)
    }

    pub(super) fn find(&self, method: &Method, path: &str) -> Result<Found, Problem> {
        if path.len() > PATH_SIZE_MAX {
            let detail = format!("the path is over the limit of {PATH_SIZE_MAX} bytes");
            return Err(Problem::new(StatusCode::URI_TOO_LONG, detail).and_close());
        }
        let matched = self.0.at(path).map_err(|_| unknown_path(path))?;
        // A HEAD is a GET whose body hyper leaves out.
        let wanted = if method == Method::HEAD { &Method::GET } else { method };
        let Some(route) = matched.value.iter().find(|route| route.method == *wanted) else {
            let allowed: Vec<&str> = matched.value.iter().map(|r| r.method.as_str()).collect();
            return Err(Problem::method_not_allowed(method.as_str(), path, allowed.join(", ")));
        };
        let mut arguments = matched.params.iter().map(|(_, value)| percent_decode(value));
        let mut next = || {
            arguments
                .next()
                .unwrap_or_else(|| Some(String::new()))
                .ok_or_else(|| Problem::bad_request(format!("{path} is not percent-encoded UTF-8")))
        };
        Ok(Found { operation: route.operation, argument: next()?, partition: next()? })
    }
}

fn unknown_path(path: &str) -> Problem {
    let detail = match nearest(path, ROUTES.iter().map(|route| route.path)) {
        Some(known) => format!("there is no {path}; did you mean {known}?"),
        None => format!("there is no {path}; /v1/openapi.json lists what there is"),
    };
    Problem::new(StatusCode::NOT_FOUND, detail)
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let [high, low, tail @ ..] = rest else { return None };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_found_under_its_own_method() {
        let routes = Routes::new();
        for route in ROUTES {
            let path = route.path.replace("{id}", "7").replace("{name}", "a.b-c");
            let found = routes.find(&route.method, &path).expect("served");
            assert_eq!(found.operation, route.operation);
        }
        assert_eq!(
            routes.find(&Method::HEAD, "/readyz").expect("served").operation,
            Operation::Ready
        );
    }

    #[test]
    fn arguments_are_decoded_and_broken_encodings_refused() {
        let routes = Routes::new();
        let argument = |path| routes.find(&Method::GET, path).map(|found| found.argument);
        assert_eq!(argument("/v1/topics/a%2Eb%20c"), Ok("a.b c".to_owned()));
        for broken in ["/v1/topics/a%2", "/v1/topics/a%zz", "/v1/topics/%ff"] {
            assert!(argument(broken).is_err(), "{broken}");
        }
    }
}
