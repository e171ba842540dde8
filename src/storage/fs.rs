//! The one door through which storage changes a disk: create, write, truncate, sync, rename, remove.
//!
//! In production each function is the system call and an error that says what was tried. In tests `tape` stands between:
//! it records what is done below a directory, rebuilds that directory as a crash at any moment would leave it, and makes
//! chosen operations fail. Reading needs no door.
//!
//! Invariant: nothing else in storage changes a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Error, Result};

#[cfg(test)]
pub(super) mod tape;

/// What is about to be done.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "only tests look at them"))]
enum Op<'a> {
    CreateDir,
    /// A new file, or none of an old one's content any more.
    Create,
    /// A new file, or the old one as it is.
    OpenOrCreate,
    Write {
        file: &'a File,
        bytes: &'a [u8],
        position: u64,
    },
    Truncate {
        file: &'a File,
        size: u64,
    },
    Sync(&'a File),
    SyncDir,
    SyncFileSystem,
    Rename {
        to: &'a Path,
    },
    Remove,
    RemoveTree,
}

/// Does `op` on `path`.
#[cfg(not(test))]
fn door<T>(_path: &Path, _op: Op<'_>, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    act()
}

#[cfg(test)]
use tape::door;

pub(super) fn create_dir(path: &Path) -> Result<()> {
    door(path, Op::CreateDir, || std::fs::create_dir(path)).map_err(Error::io("create", path))
}

pub(super) fn create_dir_all(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(Error::io("create", path))
}

/// A new, empty file, for reading and writing. An old one loses its content.
pub(super) fn create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    door(path, Op::Create, || options.open(path)).map_err(Error::io("create", path))
}

/// A file for reading and writing, made if there is none.
pub(super) fn open_or_create(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    door(path, Op::OpenOrCreate, || options.open(path)).map_err(Error::io("open", path))
}

/// An existing file, for reading and writing.
pub(super) fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path).map_err(Error::io("open", path))
}

/// Writes all of `bytes` at `position` of the file at `path`.
pub(super) fn write(file: &File, path: &Path, bytes: &[u8], position: u64) -> Result<()> {
    door(path, Op::Write { file, bytes, position }, || file.write_all_at(bytes, position))
        .map_err(Error::io("write", path))
}

/// Sets the size of the file at `path`.
pub(super) fn truncate(file: &File, path: &Path, size: u64) -> Result<()> {
    door(path, Op::Truncate { file, size }, || file.set_len(size))
        .map_err(Error::io("truncate", path))
}

/// Makes the content of the file at `path` durable; its name is [`sync_dir`]'s.
pub(super) fn sync(file: &File, path: &Path) -> Result<()> {
    door(path, Op::Sync(file), || file.sync_data()).map_err(Error::io("sync", path))
}

/// As [`sync`]; the file may be gone, when the log was cut off or deleted meanwhile.
pub(super) fn sync_if_exists(path: &Path) -> Result<()> {
    match File::open(path) {
        Ok(file) => sync(&file, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("open", path)(error)),
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<()> {
    door(path, Op::SyncDir, || File::open(path).and_then(|dir| dir.sync_all()))
        .map_err(Error::io("sync directory", path))
}

/// Makes everything durable on the file system of the directory. False where the operating system cannot tell whether
/// it worked.
#[cfg(target_os = "linux")]
pub(super) fn sync_file_system(dir: &Path) -> Result<bool> {
    let act = || rustix::fs::syncfs(File::open(dir)?).map_err(io::Error::from);
    door(dir, Op::SyncFileSystem, act).map_err(Error::io("sync the file system of", dir))?;
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn sync_file_system(_dir: &Path) -> Result<bool> {
    Ok(false)
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    door(from, Op::Rename { to }, || std::fs::rename(from, to)).map_err(Error::io("rename", from))
}

/// Succeeds when it is not there already.
pub(super) fn remove_if_exists(path: &Path) -> Result<()> {
    match door(path, Op::Remove, || std::fs::remove_file(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory and all in it. Succeeds when it is not there already.
pub(super) fn remove_tree_if_exists(path: &Path) -> Result<()> {
    match door(path, Op::RemoveTree, || std::fs::remove_dir_all(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Whether a small file must survive a power loss before the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durable {
    Now,
    /// Somebody else syncs it, or it can be rebuilt.
    Later,
}

/// Writes a small file whole to a temporary name and renames it, so that a reader sees the old or the new one.
pub(super) fn replace(path: &Path, content: &[u8], durable: Durable) -> Result<()> {
    let temporary = path.with_added_extension("tmp");
    let file = create(&temporary)?;
    write(&file, &temporary, content, 0)?;
    if durable == Durable::Now {
        sync(&file, &temporary)?;
    }
    rename(&temporary, path)?;
    match path.parent().filter(|_| durable == Durable::Now) {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// `None` when there is no such file.
pub(super) fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leader-epoch-checkpoint");
        assert_eq!(read_if_exists(&path).unwrap(), None);
        replace(&path, b"one", Durable::Now).unwrap();
        replace(&path, b"two", Durable::Later).unwrap();
        assert_eq!(read_if_exists(&path).unwrap().as_deref(), Some(&b"two"[..]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        remove_if_exists(&path).unwrap();
        remove_if_exists(&path).unwrap();
    }
}
