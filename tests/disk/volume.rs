//! A disk of its own for each node: ext4 on a loop device over a file, and what can go wrong with it.
//!
//! The file lies in memory where there is `/dev/shm`, so that a sync costs the path through ext4 and no real disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::ioctl::{Opcode, Setter, ioctl};

const PREFIX: &str = "kontiki-disk-";
/// Of ext4: everything fails from now on, and what is not on the disk yet never gets there (`NOLOGFLUSH`).
const SHUTDOWN: Opcode = 0x8004_587d;
const NO_LOG_FLUSH: u32 = 2;
/// Of every file system: writes wait until the thaw.
const FREEZE: Opcode = 0xc004_5877;
const THAW: Opcode = 0xc004_5878;

/// Mounted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Volume {
    directory: PathBuf,
    options: &'static str,
    device: String,
    /// The file lies in a file system of its own, which is too small for it.
    thin: bool,
}

impl Volume {
    /// # Panics
    /// When this machine cannot do that: these tests are never skipped.
    pub(crate) fn new(mebibytes: u64, options: &'static str) -> Self {
        Self::make(mebibytes, options, None)
    }

    /// Below it there is room for less than it promises: writing back fails at some time, and a sync tells.
    pub(crate) fn overcommitted(mebibytes: u64, room: u64, options: &'static str) -> Self {
        Self::make(mebibytes, options, Some(room))
    }

    fn make(mebibytes: u64, options: &'static str, room: Option<u64>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(rustix::process::geteuid().is_root(), "tests of disks need root: `make test-disk`");
        let base = Path::new("/dev/shm");
        let base = if base.is_dir() { base.to_owned() } else { std::env::temp_dir() };
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        if count == 0 {
            sweep(&base);
        }
        let directory = base.join(format!("{PREFIX}{}-{count}", std::process::id()));
        fs::create_dir(&directory).expect("nobody else has this name");
        let mut volume = Self { directory, options, device: String::new(), thin: room.is_some() };
        fs::create_dir_all(volume.path()).expect("made");
        if let Some(room) = room {
            let size = format!("size={room}m");
            fs::create_dir(volume.directory.join("thin")).expect("made");
            run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", &volume.thin_path()]);
        }
        let image = volume.image();
        let file = File::create(&image).expect("made");
        file.set_len(mebibytes << 20).expect("a sparse file");
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &text(&image)]);
        volume.device = run("losetup", &["--find", "--show", &text(&image)]);
        volume.mount();
        volume
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("mnt")
    }

    fn thin_path(&self) -> String {
        text(&self.directory.join("thin"))
    }

    fn image(&self) -> PathBuf {
        self.directory.join(if self.thin { "thin/image" } else { "image" })
    }

    pub(crate) fn mount(&self) {
        run("mount", &["-t", "ext4", "-o", self.options, &self.device, &text(&self.path())]);
    }

    /// Nobody may have a file open there.
    pub(crate) fn unmount(&self) {
        run("umount", &[&text(&self.path())]);
    }

    /// What was not synced is gone. Everything fails until the volume was unmounted and mounted.
    pub(crate) fn power_off(&self) {
        self.control::<SHUTDOWN>(NO_LOG_FLUSH).expect("ext4 can shut down");
    }

    /// Writes wait until [`Volume::thaw`].
    pub(crate) fn freeze(&self) {
        self.control::<FREEZE>(0).expect("ext4 can freeze");
    }

    pub(crate) fn thaw(&self) {
        self.control::<THAW>(0).expect("it was frozen");
    }

    pub(crate) fn thaw_if_frozen(&self) {
        let _ = self.control::<THAW>(0);
    }

    /// What ext4 does when it meets an error of its own, with `errors=remount-ro`.
    pub(crate) fn make_read_only(&self) {
        let name = self.device.trim_start_matches("/dev/");
        let trigger = format!("/sys/fs/ext4/{name}/trigger_fs_error");
        fs::write(&trigger, "1").unwrap_or_else(|error| panic!("{trigger}: {error}"));
    }

    /// Somebody else takes what is free, but for so many bytes.
    pub(crate) fn fill(&self, left: u64) {
        let free = || {
            let space = rustix::fs::statvfs(self.path()).expect("it is mounted");
            space.f_bavail * space.f_frsize
        };
        let path = self.path().join("filler");
        let mut filler = File::options().create(true).append(true).open(path).expect("opened");
        for piece in [1 << 20, 1 << 12] {
            let bytes = vec![1; piece];
            while free() >= left + piece as u64 && filler.write_all(&bytes).is_ok() {}
        }
        filler.sync_all().expect("it has its room");
    }

    pub(crate) fn empty(&self) {
        fs::remove_file(self.path().join("filler")).expect("it was there");
    }

    /// Of an overcommitted one: takes away the room that is left.
    pub(crate) fn exhaust(&self) {
        let mut filler = File::create(self.directory.join("thin/filler")).expect("made");
        while filler.write_all(&[1; 4096]).is_ok() {}
    }

    pub(crate) fn relieve(&self) {
        fs::remove_file(self.directory.join("thin/filler")).expect("it was there");
    }

    fn control<const CODE: Opcode>(&self, argument: u32) -> rustix::io::Result<()> {
        let directory = File::open(self.path()).expect("it is mounted");
        #[expect(unsafe_code, reason = "these commands take a pointer to 32 bits, which they read")]
        unsafe {
            ioctl(&directory, Setter::<CODE, u32>::new(argument))
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // The cluster was dropped first, but for what a failed test left.
        self.thaw_if_frozen();
        clean(&self.directory, &self.device);
    }
}

fn clean(directory: &Path, device: &str) {
    let quietly = |program: &str, arguments: &[&str]| {
        let _ = Command::new(program).args(arguments).output();
    };
    quietly("umount", &["-l", &text(&directory.join("mnt"))]);
    quietly("losetup", &["-d", device]);
    quietly("umount", &["-l", &text(&directory.join("thin"))]);
    let _ = fs::remove_dir_all(directory);
}

/// Removes what killed runs left.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        let pid = rest.split('-').next().unwrap_or_default();
        if Path::new("/proc").join(pid).exists() {
            continue;
        }
        let image = text(&entry.path().join("image"));
        let device = run("losetup", &["--noheadings", "--output", "NAME", "--associated", &image]);
        clean(&entry.path(), device.trim());
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("our own names").to_owned()
}

/// What the program printed.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| {
        panic!("{program}: {error}; tests of disks need e2fsprogs, util-linux and mount")
    });
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    printed
}
