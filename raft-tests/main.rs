//! The metadata quorum, with its real store and state machine, on a network in memory.
//!
//! `storage` runs openraft's own suite on the sled store and crashes it; the other files are scenarios; `invariants`
//! holds one check a file, numbered as in `INVARIANTS.md`.

mod storage;
