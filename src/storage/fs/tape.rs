//! What was done below a directory, in order; the directory as a crash at any moment leaves it; failures on demand.
//!
//! The model is the one that POSIX promises and no more: content is safe once the file was synced, a name once its
//! directory was. Of what was not synced, names come in the order in which they were changed, and of the content any
//! part.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Op;
use crate::types::random::Seeded;

/// Records until it is dropped.
pub(in crate::storage) struct Tape {
    shared: Arc<Shared>,
}

struct Shared {
    root: PathBuf,
    reel: Mutex<Reel>,
}

#[derive(Default)]
struct Reel {
    steps: Vec<Step>,
    /// Which file an inode is: the number is used again after a removal.
    by_inode: BTreeMap<u64, usize>,
    files: usize,
    fault: Option<Fault>,
}

/// Makes the one operation of the kind fail that comes after so many others of it.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) struct Fault {
    pub(in crate::storage) kind: Kind,
    pub(in crate::storage) after: usize,
    pub(in crate::storage) errno: Errno,
    /// A failed write leaves its first half.
    pub(in crate::storage) is_partial: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::storage) enum Kind {
    Create,
    Write,
    Truncate,
    Sync,
    Rename,
    Remove,
}

/// How the machine stopped.
#[derive(Debug, Clone, Copy)]
pub(in crate::storage) enum Crash {
    /// The process ended; everything it did is there.
    Killed,
    /// As that, but so many thousandths of the last write are missing.
    Torn(usize),
    /// Only what was synced is there.
    PowerLost,
    /// What was not synced is there in part, by this seed.
    Reordered(u64),
}

enum Step {
    CreateDir(PathBuf),
    Link { path: PathBuf, file: usize },
    Content { file: usize, change: Change },
    Sync { file: usize },
    SyncDir(PathBuf),
    SyncAll,
    Rename { from: PathBuf, to: PathBuf },
    Remove(PathBuf),
}

#[derive(Clone)]
enum Change {
    Write { position: usize, bytes: Vec<u8> },
    Truncate(usize),
}

static TAPES: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

impl Tape {
    /// Records what happens below `root`, which is empty.
    pub(in crate::storage) fn record(root: &Path) -> Self {
        assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
        let shared = Arc::new(Shared { root: root.to_owned(), reel: Mutex::default() });
        TAPES.lock().push(shared.clone());
        Self { shared }
    }

    /// Operations so far: a crash may happen after any number of them.
    pub(in crate::storage) fn len(&self) -> usize {
        self.shared.reel.lock().steps.len()
    }

    pub(in crate::storage) fn fail(&self, fault: Fault) {
        self.shared.reel.lock().fault = Some(fault);
    }

    /// Writes the directory as it is after a crash after `len` operations into `target`, which is empty.
    pub(in crate::storage) fn restore(&self, len: usize, crash: Crash, target: &Path) {
        let reel = self.shared.reel.lock();
        let mut disk = Model::default();
        for (index, step) in reel.steps[..len].iter().enumerate() {
            match (crash, step) {
                (Crash::Torn(missing), Step::Content { file, change }) if index + 1 == len => {
                    disk.apply(&Step::Content { file: *file, change: change.torn(missing) });
                }
                _ => disk.apply(step),
            }
        }
        disk.write(0, crash, &mut Seeded(crash.seed()), target);
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        TAPES.lock().retain(|other| !Arc::ptr_eq(other, &self.shared));
    }
}

impl Crash {
    fn seed(self) -> u64 {
        if let Self::Reordered(seed) = self { seed } else { 0 }
    }
}

/// Does `op` on `path`, and records it if a tape runs there.
pub(super) fn door<T>(
    path: &Path,
    op: Op<'_>,
    act: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let tape = TAPES.lock().iter().find(|tape| path.starts_with(&tape.root)).cloned();
    let Some(tape) = tape else {
        return act();
    };
    let mut reel = tape.reel.lock();
    let relative = |path: &Path| path.strip_prefix(&tape.root).unwrap_or(path).to_owned();
    if let Some(errno) = reel.next_fault(&op) {
        return Err(errno.into());
    }
    let existed = path.exists();
    let done = act()?;
    let path = relative(path);
    let step = match op {
        Op::CreateDir => Step::CreateDir(path),
        Op::OpenOrCreate if existed => return Ok(done),
        Op::Create if existed => {
            let inode = std::fs::metadata(tape.root.join(&path))?.ino();
            Step::Content { file: reel.by_inode[&inode], change: Change::Truncate(0) }
        }
        Op::Create | Op::OpenOrCreate => {
            let file = reel.files;
            reel.files += 1;
            let inode = std::fs::metadata(tape.root.join(&path))?.ino();
            reel.by_inode.insert(inode, file);
            Step::Link { path, file }
        }
        Op::Write { bytes: [], .. } => return Ok(done),
        Op::Write { file, bytes, position } => {
            let position = usize::try_from(position).unwrap();
            Step::Content {
                file: reel.find(file),
                change: Change::Write { position, bytes: bytes.to_vec() },
            }
        }
        Op::Truncate { file, size } => Step::Content {
            file: reel.find(file),
            change: Change::Truncate(usize::try_from(size).unwrap()),
        },
        Op::Sync(file) => Step::Sync { file: reel.find(file) },
        Op::SyncDir => Step::SyncDir(path),
        Op::SyncFileSystem => Step::SyncAll,
        Op::Rename { to } => Step::Rename { from: path, to: relative(to) },
        Op::Remove | Op::RemoveTree => Step::Remove(path),
    };
    reel.steps.push(step);
    Ok(done)
}

impl Op<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::CreateDir | Self::Create | Self::OpenOrCreate => Kind::Create,
            Self::Write { .. } => Kind::Write,
            Self::Truncate { .. } => Kind::Truncate,
            Self::Sync(_) | Self::SyncDir | Self::SyncFileSystem => Kind::Sync,
            Self::Rename { .. } => Kind::Rename,
            Self::Remove | Self::RemoveTree => Kind::Remove,
        }
    }
}

impl Reel {
    fn find(&self, file: &File) -> usize {
        self.by_inode[&file.metadata().unwrap().ino()]
    }

    fn next_fault(&mut self, op: &Op<'_>) -> Option<Errno> {
        let fault = self.fault.as_mut().filter(|fault| fault.kind == op.kind())?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        let Fault { errno, is_partial, .. } = *fault;
        self.fault = None;
        if let Op::Write { file, bytes, position } = op
            && is_partial
        {
            use std::os::unix::fs::FileExt;
            let half = &bytes[..bytes.len() / 2];
            file.write_all_at(half, *position).unwrap();
            let position = usize::try_from(*position).unwrap();
            let change = Change::Write { position, bytes: half.to_vec() };
            self.steps.push(Step::Content { file: self.find(file), change });
        }
        Some(errno)
    }
}

/// A file system: node 0 is the root.
struct Model {
    nodes: Vec<Node>,
    /// Nodes of the tape's files.
    files: Vec<usize>,
}

enum Node {
    Dir {
        durable: BTreeMap<OsString, usize>,
        live: BTreeMap<OsString, usize>,
        /// Since the last sync: the directory after each change.
        pending: Vec<BTreeMap<OsString, usize>>,
    },
    File {
        durable: Vec<u8>,
        pending: Vec<Change>,
    },
}

impl Default for Model {
    fn default() -> Self {
        Self { nodes: vec![Node::new_dir()], files: Vec::new() }
    }
}

impl Node {
    fn new_dir() -> Self {
        Self::Dir { durable: BTreeMap::new(), live: BTreeMap::new(), pending: Vec::new() }
    }

    fn sync(&mut self) {
        match self {
            Self::Dir { durable, live, pending } => {
                pending.clear();
                durable.clone_from(live);
            }
            Self::File { durable, pending } => {
                pending.drain(..).for_each(|change| change.apply(durable, usize::MAX));
            }
        }
    }
}

impl Change {
    /// Without so many thousandths of the bytes at the end.
    fn torn(&self, missing: usize) -> Self {
        match self {
            Self::Truncate(size) => Self::Truncate(*size),
            Self::Write { position, bytes } => {
                let kept = bytes.len() - bytes.len() * missing / 1000;
                Self::Write { position: *position, bytes: bytes[..kept].to_vec() }
            }
        }
    }

    /// Applies it; of a write only so many bytes.
    fn apply(&self, content: &mut Vec<u8>, written: usize) {
        match self {
            Self::Truncate(size) => content.resize(*size, 0),
            Self::Write { position, bytes } => {
                let bytes = &bytes[..bytes.len().min(written)];
                content.resize(content.len().max(position + bytes.len()), 0);
                content[*position..position + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl Model {
    fn live(&mut self, dir: usize) -> Option<&mut BTreeMap<OsString, usize>> {
        match self.nodes.get_mut(dir)? {
            Node::Dir { live, .. } => Some(live),
            Node::File { .. } => None,
        }
    }

    fn find(&mut self, path: &Path) -> Option<usize> {
        path.iter().try_fold(0, |dir, name| self.live(dir)?.get(name).copied())
    }

    fn change_names(&mut self, dir: &Path, change: impl FnOnce(&mut BTreeMap<OsString, usize>)) {
        let Some(dir) = self.find(dir) else {
            return;
        };
        if let Some(Node::Dir { live, pending, .. }) = self.nodes.get_mut(dir) {
            change(live);
            pending.push(live.clone());
        }
    }

    fn link(&mut self, path: &Path, node: Node) {
        let index = self.nodes.len();
        if matches!(node, Node::File { .. }) {
            self.files.push(index);
        }
        self.nodes.push(node);
        self.change_names(parent(path), |names| {
            names.insert(name(path), index);
        });
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::CreateDir(path) => self.link(path, Node::new_dir()),
            Step::Link { path, file } => {
                assert_eq!(*file, self.files.len());
                self.link(path, Node::File { durable: Vec::new(), pending: Vec::new() });
            }
            Step::Content { file, change } => {
                if let Node::File { pending, .. } = &mut self.nodes[self.files[*file]] {
                    pending.push(change.clone());
                }
            }
            Step::Sync { file } => self.nodes[self.files[*file]].sync(),
            Step::SyncDir(path) => {
                if let Some(dir) = self.find(path) {
                    self.nodes[dir].sync();
                }
            }
            Step::SyncAll => self.nodes.iter_mut().for_each(Node::sync),
            Step::Rename { from, to } => {
                let Some(node) = self.find(from) else {
                    return;
                };
                if parent(from) == parent(to) {
                    self.change_names(parent(from), |names| {
                        names.remove(&name(from));
                        names.insert(name(to), node);
                    });
                } else {
                    // The new name first: a crash in between leaves both, as a journal would leave neither lost.
                    self.change_names(parent(to), |names| {
                        names.insert(name(to), node);
                    });
                    self.change_names(parent(from), |names| {
                        names.remove(&name(from));
                    });
                }
            }
            Step::Remove(path) => self.change_names(parent(path), |names| {
                names.remove(&name(path));
            }),
        }
    }

    fn write(&self, node: usize, crash: Crash, random: &mut Seeded, target: &Path) {
        match &self.nodes[node] {
            Node::Dir { durable, live, pending } => {
                let names = match crash {
                    Crash::Killed | Crash::Torn(_) => live,
                    Crash::PowerLost => durable,
                    Crash::Reordered(_) => match random.below(pending.len() + 1) {
                        0 => durable,
                        kept => &pending[kept - 1],
                    },
                };
                std::fs::create_dir_all(target).unwrap();
                for (name, node) in names {
                    self.write(*node, crash, random, &target.join(name));
                }
            }
            Node::File { durable, pending } => {
                let mut content = durable.clone();
                match crash {
                    Crash::PowerLost => {}
                    Crash::Killed | Crash::Torn(_) => {
                        pending.iter().for_each(|change| change.apply(&mut content, usize::MAX));
                    }
                    Crash::Reordered(_) => {
                        let kept = random.below(pending.len() + 1);
                        for change in &pending[..kept] {
                            change.apply_in_part(&mut content, random);
                        }
                    }
                }
                std::fs::write(target, content).unwrap();
            }
        }
    }
}

impl Change {
    /// The size changes, but of the bytes some may be missing.
    fn apply_in_part(&self, content: &mut Vec<u8>, random: &mut Seeded) {
        let Self::Write { position, bytes } = self else {
            return self.apply(content, 0);
        };
        match random.below(4) {
            0 => content.resize(content.len().max(position + bytes.len()), 0),
            1 => {
                let written = random.below(bytes.len() + 1);
                self.apply(content, written);
                content.resize(content.len().max(position + bytes.len()), 0);
            }
            _ => self.apply(content, usize::MAX),
        }
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or_else(|| Path::new(""))
}

fn name(path: &Path) -> OsString {
    path.file_name().map(OsStr::to_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{Durable, remove_if_exists};
    use super::super::{create, create_dir, rename, replace, sync, sync_dir, truncate, write};
    use super::*;

    fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            let name = entry.file_name().into_string().unwrap();
            if entry.path().is_dir() {
                all.extend(
                    files(&entry.path()).into_iter().map(|(n, c)| (format!("{name}/{n}"), c)),
                );
            } else {
                all.push((name, std::fs::read(entry.path()).unwrap()));
            }
        }
        all.sort();
        all
    }

    fn restored(tape: &Tape, len: usize, crash: Crash) -> Vec<(String, Vec<u8>)> {
        let target = tempfile::tempdir().unwrap();
        tape.restore(len, crash, target.path());
        files(target.path())
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_a_kill_keeps_all() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let tape = Tape::record(root);
        create_dir(&root.join("d")).unwrap();
        let path = root.join("d/f");
        let file = create(&path).unwrap();
        write(&file, &path, b"abcd", 0).unwrap();
        let written = tape.len();
        assert_eq!(restored(&tape, written, Crash::PowerLost), []);
        sync(&file, &path).unwrap();
        assert_eq!(restored(&tape, tape.len(), Crash::PowerLost), [], "its name is not synced");
        sync_dir(&root.join("d")).unwrap();
        sync_dir(root).unwrap();
        let synced = tape.len();
        let is = |name: &str, content: &[u8]| vec![(name.to_owned(), content.to_vec())];
        assert_eq!(restored(&tape, synced, Crash::PowerLost), is("d/f", b"abcd"));
        write(&file, &path, b"XY", 4).unwrap();
        truncate(&file, &path, 5).unwrap();
        rename(&path, &root.join("d/g")).unwrap();
        assert_eq!(restored(&tape, tape.len(), Crash::Killed), is("d/g", b"abcdX"));
        assert_eq!(restored(&tape, tape.len(), Crash::PowerLost), is("d/f", b"abcd"));
        assert_eq!(restored(&tape, synced + 1, Crash::Torn(500)), is("d/f", b"abcdX"));
        assert_eq!(restored(&tape, written, Crash::Killed), is("d/f", b"abcd"));
        replace(&root.join("d/g"), b"new", Durable::Now).unwrap();
        assert_eq!(restored(&tape, tape.len(), Crash::PowerLost), is("d/g", b"new"));
        remove_if_exists(&root.join("d/g")).unwrap();
        assert_eq!(restored(&tape, tape.len(), Crash::Killed), []);
        assert_eq!(restored(&tape, tape.len(), Crash::PowerLost), is("d/g", b"new"));
        for len in 0..=tape.len() {
            assert!(restored(&tape, len, Crash::Reordered(len as u64)).len() <= 2);
        }
    }

    #[test]
    fn the_chosen_operation_fails_and_no_other() {
        let temp = tempfile::tempdir().unwrap();
        let tape = Tape::record(temp.path());
        let path = temp.path().join("f");
        let file = create(&path).unwrap();
        tape.fail(Fault { kind: Kind::Write, after: 1, errno: Errno::NOSPC, is_partial: true });
        write(&file, &path, b"ab", 0).unwrap();
        let failed = write(&file, &path, b"cd", 2).unwrap_err();
        assert!(failed.to_string().contains("No space"), "{failed}");
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        write(&file, &path, b"d", 3).unwrap();
        assert_eq!(restored(&tape, tape.len(), Crash::Killed), files(temp.path()));
    }
}
