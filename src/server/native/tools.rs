//! What the tools for operators ask: to import batches with their offsets, and to see one replica.

use std::time::Duration;

use bytes::BytesMut;
use xxhash_rust::xxh3::xxh3_64;

use crate::broker::Broker;
use crate::net::Reply;
use crate::protocol::ErrorCode;
use crate::protocol::native::{
    Frame, ImportReply, ImportRequest, PartitionError, ReadReplicaReply, ReadReplicaRequest,
    ReplicaRange,
};

pub(super) async fn import(broker: &Broker, frame: &Frame, request: ImportRequest) -> Reply {
    let ImportRequest { partition, expected_end, timeout_ms } = request;
    let timeout = Duration::from_millis(timeout_ms.into());
    // The broker writes the leader epoch into the batches.
    let batches = BytesMut::from(&frame.payload[..]);
    let result = broker.import(partition, batches, expected_end, timeout).await;
    Reply::new(&ImportReply { result })
}

pub(super) fn read_replica(
    broker: &Broker,
    request: ReadReplicaRequest,
    bytes_max: usize,
) -> Reply {
    let mut bytes = Vec::new();
    let result = read(broker, &request, bytes_max, &mut bytes);
    let payload =
        if request.with_bytes && result.is_ok() { bytes.into() } else { Default::default() };
    Reply { payload, ..Reply::new(&ReadReplicaReply { result }) }
}

/// Over the ends of segments, because replicas do not roll at the same offsets.
fn read(
    broker: &Broker,
    request: &ReadReplicaRequest,
    bytes_max: usize,
    bytes: &mut Vec<u8>,
) -> Result<ReplicaRange, PartitionError> {
    let bytes_max = usize::try_from(request.bytes_max).unwrap_or(bytes_max).min(bytes_max);
    let mut from = request.from;
    loop {
        let left = bytes_max.saturating_sub(bytes.len());
        let found = broker.read_replica(request.partition, from, request.upper, left)?;
        let is_enough = found.slice.is_empty()
            || (!bytes.is_empty() && bytes.len() + found.slice.size > bytes_max);
        if is_enough {
            return Ok(ReplicaRange {
                log_start_offset: found.log_start_offset,
                high_watermark: found.high_watermark,
                next_offset: from.max(found.log_start_offset),
                size: u32::try_from(bytes.len()).expect("frames are smaller than 4 GiB"),
                digest: xxh3_64(bytes),
            });
        }
        found.slice.read_into(bytes).map_err(|error| PartitionError {
            code: ErrorCode::KafkaStorageError,
            message: error.to_string(),
            leader: None,
            record_errors: Vec::new(),
        })?;
        from = found.slice.next_offset;
    }
}
