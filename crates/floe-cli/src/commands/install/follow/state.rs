//! The state of a follower that outlives it: the path for which its command has ended.

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use floe_hash::sha256;
use floe_store::{WrittenFile, open_lock_file};
use rustix::fs::Mode;
use serde_json::{Value, json};

use crate::exit::UsageError;

/// The state of one profile, which no other process may follow meanwhile.
#[derive(Debug)]
pub(super) struct FollowState {
    file: PathBuf,
    /// The path for which the command has ended.
    done: Option<String>,
    /// The path for which it has begun, and the generation before that.
    running: Option<(String, Option<u64>)>,
    /// The lock of the profile.
    _lock: File,
}

impl FollowState {
    /// Opens the state of a profile, and locks it.
    ///
    /// Errors: another process follows into the profile; the state cannot be read.
    pub(super) fn open(state_dir: Option<&Path>, profile: &Path) -> anyhow::Result<FollowState> {
        let Some(state_dir) = state_dir else {
            bail!(UsageError(
                "cannot follow a pin: the environment names no home directory for the state; set \
                 XDG_STATE_HOME"
                    .into()
            ));
        };
        let profile = std::path::absolute(profile)?;
        // Another spelling of the directory is the same profile.
        let parent = profile
            .parent()
            .and_then(|parent| parent.canonicalize().ok());
        let name = profile.file_name();
        let profile = parent
            .zip(name)
            .map_or(profile.clone(), |(parent, name)| parent.join(name));
        let hash = sha256(profile.as_os_str().as_bytes());
        let name = &floe_format::base16::encode(&hash)[..32];
        let directory = state_dir.join("follow").join(name);
        let cannot = || format!("cannot use the state in {}", directory.display());
        fs::create_dir_all(&directory).with_context(cannot)?;
        let lock = open_lock_file(&directory.join("lock")).with_context(cannot)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!(
                "cannot follow a pin into {}: another floe does so already",
                profile.display()
            ),
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let file = directory.join("state.json");
        // A file that a crash has damaged means that the command runs again.
        let text = fs::read(&file).unwrap_or_default();
        let state: Value = serde_json::from_slice(&text).unwrap_or_default();
        let done = state["done"].as_str().map(str::to_owned);
        let running = state["running"].as_str();
        let running = running.map(|path| (path.to_owned(), state["before"].as_u64()));
        Ok(FollowState {
            file,
            done,
            running,
            _lock: lock,
        })
    }

    /// Whether the command has ended for a path.
    pub(super) fn is_done(&self, path: &str) -> bool {
        self.done.as_deref() == Some(path)
    }

    /// Returns the generation to which a path leads back, if its command has begun before.
    pub(super) fn before(&self, path: &str) -> Option<u64> {
        let running = self.running.as_ref().filter(|(running, _)| running == path);
        running.and_then(|(_, before)| *before)
    }

    /// Records that a path is installed and its command begins. If this process is killed, the next
    /// one begins with the command. `before` is the generation that is left.
    pub(super) fn begin(&mut self, path: &str, before: Option<u64>) -> anyhow::Result<()> {
        self.done = None;
        self.running = Some((path.to_owned(), before));
        self.write(&json!({ "running": path, "before": before }))
    }

    /// Records that the command has ended for a path.
    pub(super) fn end(&mut self, path: &str) -> anyhow::Result<()> {
        self.done = Some(path.to_owned());
        self.running = None;
        self.write(&json!({ "done": path }))
    }

    /// Records that the command has failed, and the profile is back at the generation before.
    pub(super) fn give_up(&mut self) -> anyhow::Result<()> {
        self.running = None;
        self.write(&json!({}))
    }

    fn write(&self, state: &Value) -> anyhow::Result<()> {
        let temporary = self.file.with_extension("new");
        let text = state.to_string();
        let created = WrittenFile::create(&temporary, Mode::from_raw_mode(0o600));
        let created = match created {
            // A process that was killed has left it, and the lock is ours.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                fs::remove_file(&temporary)?;
                WrittenFile::create(&temporary, Mode::from_raw_mode(0o600))
            }
            created => created,
        };
        let written = created.and_then(|created| {
            created.complete(|file| {
                file.write_all(text.as_bytes())?;
                file.as_file().sync_all()
            })
        });
        let renamed = written.and_then(|()| fs::rename(&temporary, &self.file));
        renamed.map_err(|error| anyhow!("cannot write {}: {error}", self.file.display()))
    }
}
