//! Kontiki: a replicated commit log that needs nothing beside itself.
//!
//! The modules are listed in reading order, lowest layer first. A module imports only from modules above it in this
//! list; `tests/tidy.rs` checks that. `ARCHITECTURE.md` has the map.

pub mod types;

pub mod codec;
pub mod protocol;
pub mod record;

pub mod metadata;

pub mod controller;
pub mod replication;

pub mod net;
pub mod storage;

pub mod quorum;

pub mod broker;

pub mod admin;
pub mod server;

pub mod checker;
pub mod client;
pub mod config;
pub mod telemetry;

pub mod node;

pub mod cli;
