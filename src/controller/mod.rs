//! Decisions of the active controller: `(image, soft state, request, now, seed) -> Decision { records, reply }`.
//!
//! Invariant: no tokio, no clock, no randomness, no `HashMap` iteration, no I/O. Nothing here changes an image.

mod request;

pub use request::*;
