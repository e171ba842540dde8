//! Processes, ports, HTTP and waiting: what scenarios and the benchmark stand on.

mod cluster;
mod http;
mod node;
mod ports;
mod wait;

pub(crate) use cluster::Cluster;
pub(crate) use http::request;
pub(crate) use node::{Exit, Node, kontiki};
pub(crate) use ports::Ports;
pub(crate) use wait::{DEADLINE, eventually};
