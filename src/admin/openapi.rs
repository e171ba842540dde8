//! `/v1/openapi.json`, made from the table of routes so that it lists what is served and nothing else.

use serde_json::{Map, Value, json};

use super::route::{Operation, ROUTES, Route};

pub(super) fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method.as_str().to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Kontiki admin",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Any node answers; changes are forwarded to the active controller.",
        },
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn operation(route: &Route) -> Value {
    let (status, description) = match route.operation {
        Operation::CreateTopic => ("201", "Created; 200 where it was only validated"),
        Operation::DeleteTopic => ("204", "Deleted"),
        _ => ("200", "As asked"),
    };
    let mut responses = json!({ "default": problem_response() });
    responses[status] = json!({ "description": description });
    let mut operation = json!({
        "operationId": format!("{:?}", route.operation),
        "summary": route.summary,
        "responses": responses,
    });
    let parameters: Vec<Value> = parameters(route.path)
        .map(|name| {
            let schema = json!({ "type": if name == "name" { "string" } else { "integer" } });
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    let body = match route.operation {
        Operation::CreateTopic => Some("CreateTopic"),
        Operation::AlterTopic => Some("AlterTopic"),
        _ => None,
    };
    if let Some(schema) = body {
        operation["requestBody"] =
            json!({ "required": true, "content": content("application/json", schema) });
    }
    operation
}

fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

fn problem_response() -> Value {
    json!({
        "description": "A problem document (RFC 9457)",
        "content": content("application/problem+json", "Problem"),
    })
}

fn content(media_type: &str, schema: &str) -> Value {
    json!({ media_type: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } })
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer" });
    let replicas = json!({ "type": "array", "items": number });
    json!({
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "detail"],
            "properties": {
                "type": text, "title": text, "status": number, "detail": text,
                "code": { "type": "string", "description": "Kafka's name for the refusal" },
            },
        },
        "CreateTopic": {
            "type": "object",
            "required": ["name"],
            "additionalProperties": false,
            "properties": {
                "name": text,
                "partition_count": number,
                "replication_factor": number,
                "assignments": { "type": "object", "additionalProperties": replicas },
                "configs": { "type": "object", "additionalProperties": text },
                "validate_only": { "type": "boolean" },
            },
        },
        "AlterTopic": {
            "type": "object",
            "required": ["configs"],
            "additionalProperties": false,
            "properties": {
                "configs": { "type": "object", "additionalProperties": { "type": ["string", "null"] } },
                "validate_only": { "type": "boolean" },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_and_every_reference_resolves() {
        let document = document();
        for route in ROUTES {
            let method = route.method.as_str().to_lowercase();
            let operation = &document["paths"][route.path][method];
            assert_eq!(operation["summary"], route.summary);
            assert_eq!(operation["parameters"].is_array(), route.path.contains('{'));
        }
        let text = document.to_string();
        for (at, prefix) in text.match_indices("#/components/schemas/") {
            let name: String =
                text[at + prefix.len()..].chars().take_while(|c| *c != '"').collect();
            assert!(document["components"]["schemas"][&name].is_object(), "{name}");
        }
    }
}
