//! The metadata quorum, with its real store and state machine, on a network in memory.
//!
//! `storage` runs openraft's own suite on the sled store and crashes it; the other files are scenarios on a `Cluster`;
//! `invariants` holds one check a file, numbered as in replication.md 7, and each scenario ends with all of them.

mod cluster;
mod controller;
mod election;
mod formation;
mod invariants;
mod membership;
mod snapshot;
mod storage;
