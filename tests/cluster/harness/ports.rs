//! Ports that nobody else takes, also not between two starts of a node.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the range from which systems take the local ports of outgoing connections.
const FIRST: u16 = 20_000;
const BLOCK: u16 = 16;
const BLOCKS: u16 = 700;

/// A block of ports. Its first port is bound for as long as this lives, and tells other test processes to keep off.
#[derive(Debug)]
pub(crate) struct Ports {
    base: u16,
    _guard: TcpListener,
}

impl Ports {
    pub(crate) fn reserve() -> Self {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = u16::try_from(std::process::id() % u32::from(BLOCKS)).expect("below BLOCKS");
        for _ in 0..BLOCKS {
            let block = (start + NEXT.fetch_add(1, Ordering::Relaxed)) % BLOCKS;
            let base = FIRST + block * BLOCK;
            let Ok(guard) = TcpListener::bind(("127.0.0.1", base)) else { continue };
            if (1..BLOCK).all(|i| TcpListener::bind(("127.0.0.1", base + i)).is_ok()) {
                return Self { base, _guard: guard };
            }
        }
        panic!("no free block of ports");
    }

    /// The `i`th port of the block, from 0.
    pub(crate) fn port(&self, i: u16) -> u16 {
        assert!(i + 1 < BLOCK);
        self.base + 1 + i
    }
}
