//! The cluster as its users meet it: three real processes, real sockets, real kills.
//!
//! `harness` starts nodes from the built binary and signals them; `workload` writes numbered records through our client
//! and checks what can be read back. A scenario disturbs the one while the other runs, and waits for conditions with
//! generous deadlines, never for time to pass. Logs of a failed scenario are kept, and their place is printed.

mod harness;
mod workload;

mod bad_input;
mod bad_start;
mod chaos;
mod dev;
mod failover;
mod restart;
mod tools;
mod topics;
