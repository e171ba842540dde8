//! Metrics of the clients port. Their names are stable and documented in `docs/metrics.md`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::protocol::kafka::Api;

/// Cheap to clone: all clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(super) connections: Gauge,
    pub(super) connections_refused: Counter,
    pub(super) requests_unreadable: Counter,
    pub(super) request_bytes: Counter,
    requests: Family<[(&'static str, &'static str); 1], Counter>,
    /// The members of `requests`, so that counting takes no look-up.
    by_api: Vec<(Api, Counter)>,
}

impl Default for Metrics {
    fn default() -> Self {
        let requests: Family<_, Counter> = Family::default();
        let member = |api: &Api| (*api, requests.get_or_create_owned(&[("api", api.name())]));
        let by_api = Api::ALL.iter().map(member).collect();
        Self {
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            requests_unreadable: Counter::default(),
            request_bytes: Counter::default(),
            requests,
            by_api,
        }
    }
}

impl Metrics {
    /// Adds all of them to the registry of the process.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("kontiki_clients");
        registry.register("connections", "Open connections of clients", self.connections.clone());
        registry.register(
            "connections_refused",
            "Connections over max.connections",
            self.connections_refused.clone(),
        );
        registry.register(
            "kafka_requests_unreadable",
            "Requests that ended their connection",
            self.requests_unreadable.clone(),
        );
        registry.register("kafka_requests", "Requests of Kafka clients", self.requests.clone());
        registry.register_with_unit(
            "kafka_request",
            "Size of requests of Kafka clients",
            Unit::Bytes,
            self.request_bytes.clone(),
        );
    }

    pub(super) fn count_request(&self, api: Api, size: usize) {
        if let Some((_, counter)) = self.by_api.iter().find(|(counted, _)| *counted == api) {
            counter.inc();
        }
        self.request_bytes.inc_by(size as u64);
    }
}
