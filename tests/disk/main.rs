//! Disks that fail under a cluster of three real processes: power loss, errors, a file system that became read-only, a
//! full one, one that hangs. Needs root and loop devices; `make test-disk`.
//!
//! Each node has an ext4 of its own. The faults are those of the kernel, not of a shim; where this machine cannot do one
//! of them, the test fails.

#![allow(dead_code, unused_imports, reason = "the harness has more than these scenarios need")]

#[path = "../cluster/harness/mod.rs"]
mod harness;
#[path = "../cluster/workload/mod.rs"]
mod workload;

mod disks;
mod volume;

mod failing;
mod frozen;
mod full;
mod power;
