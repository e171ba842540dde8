//! The two wire protocols: Kafka's for everyone, Kontiki's own between nodes and for Rust programs.
//!
//! Both are sans-io: bytes in, values out. Error codes are Kafka's in both, so that a refusal means the same wherever
//! it is read.

mod error_code;
pub mod kafka;
pub mod native;

pub use error_code::ErrorCode;
