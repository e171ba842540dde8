//! Cuts requests out of a connection's byte stream.
//!
//! A frame is read in place and handed on as a part of the read buffer, so that a record set is not copied between the
//! socket and the log. The buffer is used again once nothing refers to its frames any more. Memory grows with the bytes
//! that came, not with the length that was announced.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Bytes before a frame: its length.
const PREFIX: usize = 4;

/// Room for small requests, and how much of the next one may be read with the end of this one.
const READ_SIZE: usize = 16 << 10;

/// A larger frame gets so much room at first, then as much again as it has filled.
const GROW_SIZE: usize = 2 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a request of {size} bytes is over socket.request.max.bytes={limit}")]
    TooLarge { size: i32, limit: usize },
    #[error("{0} is no length of a request")]
    Negative(i32),
}

#[derive(Debug)]
pub(super) struct Frames {
    buffer: BytesMut,
    size_max: usize,
}

impl Frames {
    /// `first` was read already.
    pub(super) fn new(size_max: usize, first: &[u8]) -> Self {
        Self { buffer: BytesMut::from(first), size_max }
    }

    /// The next request, without its length, if all of it is here.
    pub(super) fn next(&mut self) -> Result<Option<BytesMut>, FrameError> {
        match self.wanted()? {
            Some(size) if self.buffer.len() >= PREFIX + size => {
                self.buffer.advance(PREFIX);
                Ok(Some(self.buffer.split_to(size)))
            }
            _ => Ok(None),
        }
    }

    /// Whether a part of a request is here.
    pub(super) fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// How many bytes of requests that nobody took yet are here.
    pub(super) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Waits for bytes and takes them; 0 means that there will be none. Dropping the future loses nothing.
    pub(super) async fn fill(&mut self, stream: &mut TcpStream) -> io::Result<usize> {
        // An idle connection keeps no room.
        stream.readable().await?;
        let room = self.make_room();
        stream.read_buf(&mut (&mut self.buffer).limit(room)).await
    }

    /// Gives the memory back. For connections that have gone quiet.
    pub(super) fn release(&mut self) {
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
    }

    /// The length of the frame that has begun.
    fn wanted(&self) -> Result<Option<usize>, FrameError> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(None) };
        let size = i32::from_be_bytes(*prefix);
        match usize::try_from(size) {
            Ok(size) if size <= self.size_max => Ok(Some(size)),
            Ok(_) => Err(FrameError::TooLarge { size, limit: self.size_max }),
            Err(_) => Err(FrameError::Negative(size)),
        }
    }

    fn make_room(&mut self) -> usize {
        let here = self.buffer.len();
        let wanted = self.wanted().ok().flatten().map_or(0, |size| PREFIX + size);
        let missing = wanted.saturating_sub(here);
        let room = if missing <= READ_SIZE { READ_SIZE } else { missing.min(here.max(GROW_SIZE)) };
        self.buffer.reserve(room);
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_whole_and_in_order() {
        let mut frames = Frames::new(100, &[0, 0]);
        assert_eq!(frames.next(), Ok(None));
        frames.buffer.extend_from_slice(&[0, 3, b'a', b'b', b'c', 0, 0, 0, 0, 0, 0, 0, 2, b'd']);
        assert_eq!(frames.next(), Ok(Some(BytesMut::from("abc"))));
        assert_eq!(frames.next(), Ok(Some(BytesMut::new())));
        assert_eq!(frames.next(), Ok(None));
        assert!(frames.is_partial());
        frames.buffer.extend_from_slice(b"e");
        assert_eq!(frames.next(), Ok(Some(BytesMut::from("de"))));
        assert!(!frames.is_partial());
    }

    #[test]
    fn lengths_are_refused_before_there_is_room_for_them() {
        let mut frames = Frames::new(100, &[0, 0, 0, 101]);
        assert_eq!(frames.next(), Err(FrameError::TooLarge { size: 101, limit: 100 }));
        let mut frames = Frames::new(100, &[0x80, 0, 0, 0]);
        assert_eq!(frames.next(), Err(FrameError::Negative(i32::MIN)));
        // What was announced is not what is reserved.
        let mut frames = Frames::new(1 << 30, &[0x3f, 0, 0, 0]);
        assert_eq!(frames.make_room(), GROW_SIZE);
        assert!(frames.buffer.capacity() < 2 * GROW_SIZE, "{}", frames.buffer.capacity());
    }

    #[test]
    fn the_buffer_is_used_again() {
        let mut frames = Frames::new(1 << 20, &[]);
        frames.buffer.reserve(1 << 20);
        let room = frames.buffer.spare_capacity_mut().as_ptr_range();
        for size in [900_000, 1000, 300_000, 1000, 1000, 900_000] {
            // As `fill` does: the prefix first, then room for the rest.
            frames.make_room();
            frames.buffer.put_u32(size);
            frames.make_room();
            frames.buffer.put_bytes(7, size as usize);
            assert!(room.contains(&frames.buffer.as_ptr().cast()), "{size}");
            drop(frames.next().expect("valid").expect("whole"));
        }
    }
}
