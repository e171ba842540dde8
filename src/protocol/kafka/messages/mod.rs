//! The messages, as tables. Fields have Kafka's names, order, versions, tags and defaults.

mod api_versions;
mod cluster;
mod configs;
mod coordinator;
mod create_partitions;
mod delete_records;
mod epoch;
mod fetch;
mod list_offsets;
mod log_dirs;
mod metadata;
mod produce;
mod producer_id;
mod topics;

pub use api_versions::*;
pub use cluster::*;
pub use configs::*;
pub use coordinator::*;
pub use create_partitions::*;
pub use delete_records::*;
pub use epoch::*;
pub use fetch::*;
pub use list_offsets::*;
pub use log_dirs::*;
pub use metadata::*;
pub use produce::*;
pub use producer_id::*;
pub use topics::*;

/// What a field of authorised operations holds when nobody asked for them.
pub const OPERATIONS_OMITTED: i32 = i32::MIN;
