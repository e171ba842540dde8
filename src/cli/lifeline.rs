//! A process that must not outlive the one that started it.
//!
//! The parent keeps the writing end of a pipe on our standard input and never writes. The pipe ends when the parent
//! does, however it dies, and then this process stops in good order.

use std::io::{self, Read};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

/// How long a stop in good order may take.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Watches standard input until this process ends.
pub(super) fn hold() {
    // A stopped process sees no end of file. This wakes it; to one that runs it means nothing.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::CONT));
    std::thread::Builder::new()
        .name("lifeline".to_owned())
        .spawn(|| {
            wait_for_end(io::stdin().lock());
            let _ = kill_process(getpid(), Signal::TERM);
            std::thread::sleep(STOP_MAX);
            std::process::exit(1);
        })
        .expect("a process that starts can have a thread");
}

fn wait_for_end(mut pipe: impl Read) {
    let mut ignored = [0; 64];
    loop {
        match pipe.read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
