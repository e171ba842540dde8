//! Frames on a socket.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::codec;
use crate::protocol::native::{FRAME_HEADER_SIZE, Frame, FrameHeader};

/// Takes a connected socket apart into its two directions.
pub fn split(stream: TcpStream, frame_size_max: usize) -> (FrameReader, FrameWriter) {
    let (read, write) = stream.into_split();
    (FrameReader::new(read, frame_size_max), FrameWriter { socket: write })
}

/// Hands a connection to the current runtime, so that its readiness is polled there. Nothing that was read is lost.
pub fn rehome(reader: FrameReader, writer: FrameWriter) -> io::Result<(FrameReader, FrameWriter)> {
    let FrameReader { socket, buffer, frame_size_max } = reader;
    let stream = socket.reunite(writer.socket).map_err(io::Error::other)?;
    let (read, write) = TcpStream::from_std(stream.into_std()?)?.into_split();
    let reader = FrameReader { socket: read, buffer, frame_size_max };
    Ok((reader, FrameWriter { socket: write }))
}

/// Reads whole frames. What is read past the end of one is kept for the next.
#[derive(Debug)]
pub struct FrameReader {
    socket: OwnedReadHalf,
    buffer: BytesMut,
    frame_size_max: usize,
}

/// How much is asked for when no more is known to come.
const READ_SIZE: usize = 16 << 10;

impl FrameReader {
    fn new(socket: OwnedReadHalf, frame_size_max: usize) -> Self {
        Self { socket, buffer: BytesMut::new(), frame_size_max }
    }

    /// Applies to the frames that come.
    pub(super) fn limit_frames(&mut self, frame_size_max: usize) {
        self.frame_size_max = frame_size_max;
    }

    /// The next frame; `None` when the other side closed between two frames.
    ///
    /// Cancel safe: bytes that were read stay in the buffer. A malformed header is `InvalidData`; the connection is of
    /// no more use then. The buffer is reused once the frames before are dropped.
    pub async fn read_frame(&mut self) -> io::Result<Option<Frame>> {
        while self.buffer.len() < FRAME_HEADER_SIZE {
            self.buffer.reserve(READ_SIZE);
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let bytes = self.buffer[..FRAME_HEADER_SIZE].try_into().expect("checked above");
        let header = FrameHeader::decode(bytes, self.frame_size_max).map_err(invalid_data)?;
        let size = FRAME_HEADER_SIZE + header.body_size + header.payload_size;
        while self.buffer.len() < size {
            self.buffer.reserve((size - self.buffer.len()).max(READ_SIZE));
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.buffer.advance(FRAME_HEADER_SIZE);
        let body = self.buffer.split_to(header.body_size).freeze();
        let payload = self.buffer.split_to(header.payload_size).freeze();
        Ok(Some(Frame { kind: header.kind, request_id: header.request_id, body, payload }))
    }
}

fn invalid_data(error: codec::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Writes whole frames. Not cancel safe: owned by one task that does not drop a write half way.
#[derive(Debug)]
pub struct FrameWriter {
    socket: OwnedWriteHalf,
}

impl FrameWriter {
    /// Head and payload leave in one vectored write where the kernel takes them.
    pub async fn write_frame(&mut self, frame: &Frame) -> io::Result<()> {
        let head: Bytes = frame.encode_head().freeze();
        self.socket.write_all_buf(&mut head.chain(frame.payload.clone())).await
    }

    /// A frame in two parts, in one vectored write where the kernel takes it.
    pub async fn write_parts(&mut self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        self.socket.write_all_buf(&mut Buf::chain(head, payload)).await
    }

    /// Bytes that are a frame already, or part of one.
    pub async fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }
}
