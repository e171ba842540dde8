//! Stand-ins for tests of this module: a scripted control plane, a controller in memory, and brokers on loopback.

mod memory_controller;
mod nodes;
mod scripted_control;

pub(super) use nodes::{Nodes, batch, until};
pub(super) use scripted_control::{Answer, ScriptedControl};
