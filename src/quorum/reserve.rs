//! Room in the metadata directory for a start on a full disk: a file that takes space and is given up when there is none.
//!
//! Brokers refuse clients long before a disk is full (`log.dirs.min.free`), but others may write there too. The log store
//! cannot be opened without some space, and nobody could free any by deleting topics without it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use tracing::{info, warn};

const FILE: &str = "reserve";
const SIZE: u64 = 16 << 20;
/// A disk with less free space than this keeps it for better things.
const FREE_MIN: u64 = 4 * SIZE;
const RETRY: Duration = Duration::from_secs(30);

/// Bytes that this process may still use.
pub(super) fn free(directory: &Path) -> io::Result<u64> {
    let space = statvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Gives the reserve up. False when there is none.
pub(super) fn release(directory: &Path) -> io::Result<bool> {
    match fs::remove_file(directory.join(FILE)) {
        Ok(()) => {
            let path = directory.display();
            warn!(%path, "the disk is full: starting with the space that was kept for this");
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the reserve as soon as there is plenty of space, and ends then. At once in almost every start.
pub(super) async fn keep(directory: PathBuf) {
    loop {
        let path = directory.clone();
        match tokio::task::spawn_blocking(move || make(&path)).await {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                info!(%error, "no space can be kept for a start on a full disk");
                return;
            }
            Err(_) => return,
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// False where there is too little space for now.
fn make(directory: &Path) -> io::Result<bool> {
    let path = directory.join(FILE);
    if fs::metadata(&path).is_ok_and(|reserve| reserve.len() == SIZE) {
        return Ok(true);
    }
    if free(directory)? < FREE_MIN {
        return Ok(false);
    }
    let file = File::create(&path)?;
    if let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, SIZE) {
        fs::remove_file(&path)?;
        return Err(error.into());
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_takes_space_until_it_is_given_up() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        assert!(!release(path).expect("nothing to remove"));
        assert!(make(path).expect("there is space"));
        assert!(make(path).expect("it is there"));
        let blocks = std::os::unix::fs::MetadataExt::blocks(
            &fs::metadata(path.join(FILE)).expect("it is there"),
        );
        assert!(blocks * 512 >= SIZE, "not a sparse file: {blocks} blocks");
        assert!(release(path).expect("removed"));
        assert!(!path.join(FILE).exists());
    }
}
