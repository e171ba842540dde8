//! Puts responses on the wire, record sets straight from their files.

use std::io;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::protocol::kafka::Encoded;
use crate::storage::{ReadError, Slice};

/// Responses are gathered up to this size before they are written, as long as more are ready.
const FLUSH_SIZE: usize = 64 << 10;

/// Larger record sets go from the page cache to the socket without passing through our memory.
const SENDFILE_SIZE_MIN: usize = 32 << 10;

/// An encoded response, and the record sets for its gaps.
#[derive(Debug, Default)]
pub(super) struct Response {
    pub(super) encoded: Encoded,
    pub(super) slices: Vec<Slice>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("cannot read what a fetch found: {0}")]
    Read(#[from] ReadError),
    #[error("a response of {0} bytes")]
    TooLarge(usize),
    #[error("a response has {gaps} gaps and {slices} record sets for them")]
    Gaps { gaps: usize, slices: usize },
}

#[derive(Debug)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How long the client may take nothing.
    stall_max: Duration,
}

impl Output {
    pub(super) fn new(stall_max: Duration) -> Self {
        Self { bytes: Vec::new(), stall_max }
    }

    /// Adds a response; writes if that makes enough of them.
    pub(super) async fn push(
        &mut self,
        stream: &mut TcpStream,
        response: Response,
    ) -> Result<(), OutputError> {
        let Response { encoded, slices } = response;
        if encoded.gaps.len() != slices.len() {
            let (gaps, slices) = (encoded.gaps.len(), slices.len());
            return Err(OutputError::Gaps { gaps, slices });
        }
        let size = encoded.bytes.len() + encoded.gaps.iter().map(|gap| gap.size).sum::<usize>();
        let size = i32::try_from(size).map_err(|_| OutputError::TooLarge(size))?;
        self.bytes.extend_from_slice(&size.to_be_bytes());
        let mut from = 0;
        for (gap, slice) in encoded.gaps.iter().zip(&slices) {
            self.bytes.extend_from_slice(&encoded.bytes[from..gap.position]);
            from = gap.position;
            self.push_slice(stream, slice).await?;
        }
        self.bytes.extend_from_slice(&encoded.bytes[from..]);
        if self.bytes.len() >= FLUSH_SIZE {
            self.flush(stream).await?;
        }
        Ok(())
    }

    async fn push_slice(
        &mut self,
        stream: &mut TcpStream,
        slice: &Slice,
    ) -> Result<(), OutputError> {
        #[cfg(target_os = "linux")]
        if slice.size >= SENDFILE_SIZE_MIN
            && let Some(file) = &slice.file
        {
            return Ok(self.send_file(stream, file, slice.position, slice.size).await?);
        }
        slice.read_into(&mut self.bytes)?;
        if self.bytes.len() >= FLUSH_SIZE.max(SENDFILE_SIZE_MIN) {
            self.flush(stream).await?;
        }
        Ok(())
    }

    /// Writes what was gathered.
    pub(super) async fn flush(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        let mut written = 0;
        while written < self.bytes.len() {
            match timeout(self.stall_max, stream.write(&self.bytes[written..])).await?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                size => written += size,
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(FLUSH_SIZE);
        Ok(())
    }

    /// Writes what was gathered and then a part of a file, as one run of packets.
    #[cfg(target_os = "linux")]
    async fn send_file(
        &mut self,
        stream: &mut TcpStream,
        file: &std::fs::File,
        mut position: u64,
        mut size: usize,
    ) -> io::Result<()> {
        use rustix::io::retry_on_intr;
        use rustix::net::SendFlags;
        use tokio::io::Interest;

        let stall_max = self.stall_max;
        let mut written = 0;
        while written < self.bytes.len() {
            let rest = &self.bytes[written..];
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            let send = || Ok(retry_on_intr(|| rustix::net::send(&*stream, rest, flags))?);
            written += timeout(stall_max, stream.async_io(Interest::WRITABLE, send)).await??;
        }
        self.bytes.clear();
        while size > 0 {
            let mut send_some = || rustix::fs::sendfile(&*stream, file, Some(&mut position), size);
            let send = || Ok(retry_on_intr(&mut send_some)?);
            match timeout(stall_max, stream.async_io(Interest::WRITABLE, send)).await?? {
                // The file became shorter than it was: this response cannot be completed any more.
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                sent => size -= sent,
            }
        }
        Ok(())
    }
}
