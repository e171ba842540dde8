//! Whether there is room on a disk for more records.
//!
//! Below the floor clients are refused, so that what must go on can: the metadata log, checkpoints, compaction, and
//! followers, which may go down to a quarter of it. The disk is asked again after a fraction of what was spare.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::AppendError;

/// Without a configured floor: this, but no more than a twentieth of the file system.
const FLOOR: u64 = 256 << 20;
const FLOOR_SHARE: u64 = 20;
/// Written at most between two looks.
const CREDIT_MAX: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    Client,
    Follower,
}

#[derive(Debug)]
pub(super) struct Room {
    /// As configured.
    min_free: Option<u64>,
    /// Bytes that may be written without a look.
    credit: AtomicU64,
    is_full: AtomicBool,
}

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub free: u64,
    pub total: u64,
}

impl Space {
    pub(super) fn of(dir: &Path) -> Option<Self> {
        let disk = rustix::fs::statvfs(dir).ok()?;
        Some(Self { free: disk.f_bavail * disk.f_frsize, total: disk.f_blocks * disk.f_frsize })
    }
}

impl Room {
    pub(super) fn new(min_free: Option<u64>) -> Self {
        Self { min_free, credit: AtomicU64::new(0), is_full: AtomicBool::new(false) }
    }

    /// Clients are refused, by the last look.
    pub(super) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Room for `size` bytes in `dir`.
    pub(super) fn take(&self, dir: &Path, size: u64, writer: Writer) -> Result<(), AppendError> {
        let take = |credit: u64| credit.checked_sub(size);
        if self.credit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return Ok(());
        }
        // If the disk does not answer, writing to it tells more.
        let Some(Space { free, total }) = Space::of(dir) else { return Ok(()) };
        let floor = self.min_free.unwrap_or(FLOOR.min(total / FLOOR_SHARE));
        let spare = free.saturating_sub(floor);
        let is_full = spare <= size;
        self.credit.store((spare / 8).min(CREDIT_MAX), Ordering::Relaxed);
        if self.is_full.swap(is_full, Ordering::Relaxed) != is_full {
            let dir = dir.display();
            if is_full {
                tracing::warn!(%dir, free, floor, "less than log.dirs.min.free: clients cannot write");
            } else {
                tracing::info!(%dir, free, floor, "there is room for records again");
            }
        }
        if is_full && (writer == Writer::Client || free.saturating_sub(floor / 4) <= size) {
            return Err(AppendError::NoRoom { dir: dir.to_path_buf(), free, floor });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stop_at_the_floor_and_followers_later() {
        let dir = tempfile::tempdir().unwrap();
        let Space { free, .. } = Space::of(dir.path()).unwrap();
        let take = |room: &Room, writer| room.take(dir.path(), 1_000, writer).is_ok();
        for (floor, client, follower) in
            [(free / 2, true, true), (free * 2, false, true), (free * 8, false, false)]
        {
            let room = Room::new(Some(floor));
            assert_eq!((take(&room, Writer::Client), room.is_full()), (client, !client));
            assert_eq!(take(&room, Writer::Follower), follower);
        }
        let room = Room::new(Some(free / 2));
        assert!(take(&room, Writer::Client));
        assert!(room.credit.load(Ordering::Relaxed) <= CREDIT_MAX);
    }
}
