//! The lock of the garbage collector, `gc.lock` in the state directory.
//!
//! A collector holds the lock exclusively while it runs. A process that holds the lock shared keeps
//! any collection from starting.

use std::fs::File;
use std::io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};

use super::lock_wait::LockWait;
use super::{open_lock_file, try_lock};
use crate::disk::{Directory, StoreLayout};
use crate::error::{IoContext, StoreError};

/// The open lock file. The lock is released when the value is dropped.
#[derive(Debug)]
pub(crate) struct GcLock {
    file: File,
    path: PathBuf,
}

impl GcLock {
    /// Opens the lock file and creates it if it does not exist.
    pub(crate) fn open(layout: &StoreLayout) -> Result<GcLock, StoreError> {
        let path = path(layout);
        let file = open_lock_file(&path)?;
        Ok(GcLock { file, path })
    }

    /// Opens the lock file if it exists and this user may write it.
    pub(crate) fn open_existing(layout: &StoreLayout) -> Result<Option<GcLock>, StoreError> {
        let path = path(layout);
        let open = || {
            let (directory, name) = Directory::open_parent(&path)?;
            let opened = directory.entry(name).open_file();
            opened.io_context("open the lock file", &path)
        };
        match open() {
            Ok(file) => Ok(Some(GcLock { file, path })),
            Err(StoreError::Io { source, .. })
                if matches!(
                    source.kind(),
                    NotFound | PermissionDenied | ReadOnlyFilesystem
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Tries to acquire the lock shared; `false` if a collector is running.
    pub(crate) fn try_acquire_shared(&self) -> Result<bool, StoreError> {
        let operation = FlockOperation::NonBlockingLockShared;
        try_lock(&self.file, &self.path, operation)
    }

    /// Tries to acquire the lock as the only holder; `false` if a collector is running, or another
    /// process keeps collectors away.
    pub(crate) fn try_acquire_exclusive(&self) -> Result<bool, StoreError> {
        let operation = FlockOperation::NonBlockingLockExclusive;
        try_lock(&self.file, &self.path, operation)
    }

    /// Whether no collector is running at this moment.
    pub(crate) fn is_free(&self) -> Result<bool, StoreError> {
        if !self.try_acquire_shared()? {
            return Ok(false);
        }
        flock(&self.file, FlockOperation::Unlock).io_context("unlock", &self.path)?;
        Ok(true)
    }

    /// Waits until no collector runs. Returns `false` if one still runs after the time of a lock
    /// wait: by then it has deleted the garbage that it had found before, as floe assumes.
    pub(crate) fn wait_for_collector(&self, lock_wait: &LockWait) -> Result<bool, StoreError> {
        match self.wait(lock_wait, || Ok(self.is_free()?.then_some(()))) {
            Ok(()) => Ok(true),
            Err(StoreError::LockTimeout { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Repeats `attempt` until it returns a value, and waits for a running collector in between.
    ///
    /// Errors: those of [`LockWait::wait`].
    pub(crate) fn wait<T>(
        &self,
        lock_wait: &LockWait,
        attempt: impl FnMut() -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        lock_wait.wait(COLLECTOR, &self.path, attempt)
    }
}

fn path(layout: &StoreLayout) -> PathBuf {
    layout.state_dir.join("gc.lock")
}

/// The name of the collector in messages about waiting for it.
pub(crate) const COLLECTOR: &str = "the garbage collector";
