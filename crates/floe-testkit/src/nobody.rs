//! Commands and threads of the user `nobody`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::fs::{CWD, Gid, RenameFlags, Uid, renameat_with};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::{find_tool, skip};

/// The user and group id of `nobody`, which owns no files.
pub const NOBODY_UID: u32 = 65534;

/// Returns a `setpriv` command that runs the program of its further arguments as the user `nobody`.
/// Returns `None` if this process cannot switch to another user.
pub fn setpriv_to_nobody() -> Option<Command> {
    if !rustix::process::geteuid().is_root() {
        skip("setpriv", "only root may switch to another user");
        return None;
    }
    let mut command = Command::new(find_tool("setpriv", "util-linux")?);
    let user = NOBODY_UID.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    Some(command)
}

/// Switches the calling thread to the user and group `nobody`. The process must be root.
pub fn become_nobody() {
    let (uid, gid) = (Uid::from_raw(NOBODY_UID), Gid::from_raw(NOBODY_UID));
    set_thread_groups(&[]).unwrap();
    set_thread_res_gid(gid, gid, gid).unwrap();
    set_thread_res_uid(uid, uid, uid).unwrap();
}

/// A thread of the user `nobody` that exchanges two files again and again.
#[derive(Debug)]
pub struct Exchanges {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Exchanges {
    /// Starts the thread. `nobody` must own the directories of both files.
    pub fn start(one: PathBuf, other: PathBuf) -> Exchanges {
        let is_over = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicU64::new(0));
        let (over, counter) = (is_over.clone(), count.clone());
        let exchange = move || {
            become_nobody();
            while !over.load(Ordering::Relaxed) {
                // Another process may have removed one of the files for a moment.
                if renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).is_ok() {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
                thread::yield_now();
            }
        };
        Exchanges {
            thread: Some(thread::spawn(exchange)),
            is_over,
            count,
        }
    }

    /// The number of exchanges so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _: thread::Result<()> = thread.join();
        }
    }
}
