//! DescribeCluster: the brokers.

use super::dispatch::{Call, Reply};
use super::refusal::{DONE, refused};
use super::view;
use crate::protocol::ErrorCode;
use crate::protocol::kafka::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse, ENDPOINT_BROKERS,
    ENDPOINT_CONTROLLERS, OPERATIONS_OMITTED, Text,
};

pub(super) async fn handle(
    call: Call,
    request: DescribeClusterRequest,
) -> Reply<DescribeClusterResponse> {
    let (error_code, error_message) = match request.endpoint_type {
        ENDPOINT_BROKERS => DONE,
        ENDPOINT_CONTROLLERS => refused(
            ErrorCode::MismatchedEndpointType,
            "this is the clients port of a broker: use --bootstrap-server",
        ),
        other => {
            refused(ErrorCode::UnsupportedEndpointType, format!("unknown endpoint type {other}"))
        }
    };
    let mut response = DescribeClusterResponse {
        error_code,
        error_message,
        endpoint_type: request.endpoint_type,
        ..Default::default()
    };
    if error_code == 0 {
        let broker = &call.front.broker;
        let (image, status) = (broker.image(), broker.quorum_status());
        response.cluster_id = status.cluster_id.to_string().into();
        response.controller_id = view::controller_id(&image, status.leader_id);
        let shown =
            image.brokers.iter().filter(|(_, b)| !b.fenced || request.include_fenced_brokers);
        let brokers = shown.map(|(id, broker)| {
            let client = &broker.registration.endpoints.client;
            DescribeClusterBroker {
                broker_id: id.0,
                host: client.host.clone().into(),
                port: client.port.into(),
                rack: broker.registration.rack.clone().map(Text::from),
                is_fenced: broker.fenced,
            }
        });
        response.brokers = brokers.collect();
        let asked = request.include_cluster_authorized_operations;
        response.cluster_authorized_operations =
            if asked { view::CLUSTER_OPERATIONS } else { OPERATIONS_OMITTED };
    }
    response.into()
}
