//! Whether this broker can have lost anything since it was last registered (replication.md 1.5).
//!
//! A clean shutdown says so in storage's mark. After any other end a small file in each log directory tells which
//! registration lived there, under which boot of the machine, and whether anything of it counted before it was on disk.
//! Whatever counted was at least with the kernel, so it outlives the process if the machine has gone on; and what
//! counted only once it was on disk outlives the machine too.
//!
//! Invariant: the file is removed by nothing but a directory's loss, and written late rather than early: an old one
//! names an old registration, which the controller takes for a loss.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::codec::Envelope;
use crate::metadata::config::Durability;
use crate::types::BrokerEpoch;

const FILE: &str = "kontiki-life";
const LIFE: Envelope =
    Envelope { what: "record of a broker's life", magic: *b"KTlf", version: 1, size_max: 1024 };

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Life {
    broker_epoch: BrokerEpoch,
    /// `None` where the system does not tell.
    boot_id: Option<String>,
    /// Whether records of some partition counted before they were on disk.
    used_page_cache: bool,
}

/// The records of this broker's lives, in its log directories.
#[derive(Debug)]
pub(super) struct Lives {
    dirs: Vec<PathBuf>,
    boot_id: Option<String>,
    present: Mutex<Life>,
}

impl Lives {
    /// `durability` is that of topics that do not say themselves.
    pub(super) fn new(dirs: Vec<PathBuf>, durability: Durability) -> Self {
        Self::under_boot(dirs, durability, boot_id())
    }

    fn under_boot(dirs: Vec<PathBuf>, durability: Durability, boot_id: Option<String>) -> Self {
        let present = Life {
            broker_epoch: BrokerEpoch::NONE,
            boot_id: boot_id.clone(),
            used_page_cache: durability == Durability::PageCache,
        };
        Self { dirs, boot_id, present: Mutex::new(present) }
    }

    /// The last registration, if nothing of it can be lost; `clean` is what storage's marks say.
    pub(super) fn previous_broker_epoch(&self, clean: BrokerEpoch) -> BrokerEpoch {
        if clean != BrokerEpoch::NONE {
            return clean;
        }
        let lives: Option<Vec<Life>> = self.dirs.iter().map(|dir| read(dir)).collect();
        let Some([first, rest @ ..]) = lives.as_deref() else { return BrokerEpoch::NONE };
        let same_boot = first.boot_id.is_some() && first.boot_id == self.boot_id;
        if rest.iter().all(|life| life == first) && (same_boot || !first.used_page_cache) {
            first.broker_epoch
        } else {
            BrokerEpoch::NONE
        }
    }

    /// A registration was accepted. Waits for the disk.
    pub(super) fn begin(&self, broker_epoch: BrokerEpoch) {
        self.change(|life| life.broker_epoch = broker_epoch);
    }

    /// A partition counts records before they are on disk. The first time it waits for the disk.
    pub(super) fn uses_page_cache(&self) {
        self.change(|life| life.used_page_cache = true);
    }

    fn change(&self, change: impl FnOnce(&mut Life)) {
        let mut present = self.present.lock();
        let before = present.clone();
        change(&mut present);
        if *present == before || present.broker_epoch == BrokerEpoch::NONE {
            return;
        }
        for dir in &self.dirs {
            if let Err(error) = write(dir, &present) {
                // The next crash is taken for a loss, which is safe; writing records will tell what is wrong.
                warn!(dir = %dir.display(), %error, "cannot note this registration");
            }
        }
    }
}

fn read(dir: &Path) -> Option<Life> {
    LIFE.open(&fs::read(dir.join(FILE)).ok()?).ok()
}

fn write(dir: &Path, life: &Life) -> io::Result<()> {
    let (path, temporary) = (dir.join(FILE), dir.join(FILE).with_extension("tmp"));
    let mut file = File::create(&temporary)?;
    file.write_all(&LIFE.seal(life))?;
    file.sync_data()?;
    fs::rename(&temporary, &path)?;
    File::open(dir)?.sync_all()
}

/// Names one uptime of the machine.
fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dirs(Vec<tempfile::TempDir>);

    impl Dirs {
        fn new(count: usize) -> Self {
            Self((0..count).map(|_| tempfile::tempdir().expect("a directory")).collect())
        }

        fn lives(&self, durability: Durability, boot: &str) -> Lives {
            let dirs = self.0.iter().map(|dir| dir.path().to_owned()).collect();
            Lives::under_boot(dirs, durability, Some(boot.to_owned()))
        }
    }

    fn after_a_crash(lives: &Lives) -> BrokerEpoch {
        lives.previous_broker_epoch(BrokerEpoch::NONE)
    }

    #[test]
    fn a_process_crash_loses_nothing_in_either_mode() {
        for durability in [Durability::Fsync, Durability::PageCache] {
            let dirs = Dirs::new(2);
            let lives = dirs.lives(durability, "boot 1");
            assert_eq!(after_a_crash(&lives), BrokerEpoch::NONE);
            lives.begin(BrokerEpoch(7));
            assert_eq!(after_a_crash(&dirs.lives(durability, "boot 1")), BrokerEpoch(7));
        }
    }

    #[test]
    fn a_power_loss_loses_what_was_in_the_page_cache_only() {
        let dirs = Dirs::new(1);
        dirs.lives(Durability::PageCache, "boot 1").begin(BrokerEpoch(7));
        assert_eq!(after_a_crash(&dirs.lives(Durability::Fsync, "boot 2")), BrokerEpoch::NONE);

        let lives = dirs.lives(Durability::Fsync, "boot 2");
        lives.begin(BrokerEpoch(9));
        assert_eq!(after_a_crash(&dirs.lives(Durability::Fsync, "boot 3")), BrokerEpoch(9));
        lives.uses_page_cache();
        assert_eq!(after_a_crash(&dirs.lives(Durability::Fsync, "boot 3")), BrokerEpoch::NONE);
        assert_eq!(after_a_crash(&dirs.lives(Durability::Fsync, "boot 2")), BrokerEpoch(9));
    }

    #[test]
    fn a_directory_that_was_emptied_or_damaged_is_a_loss() {
        let dirs = Dirs::new(2);
        dirs.lives(Durability::Fsync, "boot 1").begin(BrokerEpoch(7));
        let lives = dirs.lives(Durability::Fsync, "boot 1");
        assert_eq!(lives.previous_broker_epoch(BrokerEpoch(8)), BrokerEpoch(8));
        let file = dirs.0[1].path().join(FILE);
        let mut bytes = fs::read(&file).expect("written");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(&file, bytes).expect("writable");
        assert_eq!(after_a_crash(&lives), BrokerEpoch::NONE);
        fs::remove_file(&file).expect("there");
        assert_eq!(after_a_crash(&lives), BrokerEpoch::NONE);
    }
}
