//! Waiting for locks that others hold, such as the collector of garbage: not for ever, not beyond
//! an interrupt, and not without a word.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::StoreError;

/// Waits for locks that others hold: until a flag is raised, and telling somebody.
#[derive(Clone, Default)]
pub struct LockWait {
    cancel: Arc<AtomicBool>,
    notify: Option<Notify>,
}

/// Hears for what is waited.
type Notify = Arc<dyn Fn(&str) + Send + Sync>;

impl LockWait {
    /// Waits until `cancel` is raised, and says through `notify` for what, such as `the garbage
    /// collector`, when it has waited for a second.
    pub fn new(cancel: Arc<AtomicBool>, notify: impl Fn(&str) + Send + Sync + 'static) -> LockWait {
        let notify: Notify = Arc::new(notify);
        LockWait {
            cancel,
            notify: Some(notify),
        }
    }

    /// Retries for at most [`LOCK_TIMEOUT`] until there is a value. `what` is waited for, `path`
    /// is its lock.
    ///
    /// Errors: [`StoreError::LockTimeout`], [`StoreError::Interrupted`], and those of `attempt`.
    pub(crate) fn wait<T>(
        &self,
        what: &str,
        path: &Path,
        mut attempt: impl FnMut() -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let mut is_notified = false;
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            self.check_cancelled()?;
            if began.elapsed() >= LOCK_TIMEOUT {
                return Err(StoreError::LockTimeout {
                    path: path.to_path_buf(),
                    seconds: LOCK_TIMEOUT.as_secs(),
                });
            }
            if began.elapsed() >= NOTIFY_AFTER && !std::mem::replace(&mut is_notified, true) {
                self.notify(what);
            }
            thread::sleep(LOCK_POLL_INTERVAL);
        }
    }

    /// An error when the flag is up.
    pub(crate) fn check_cancelled(&self) -> Result<(), StoreError> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(StoreError::Interrupted),
            false => Ok(()),
        }
    }

    /// Lets the calling thread wait for a locked database so, for as long as the value lives.
    pub(crate) fn enter_scope(&self) -> LockWaitScope {
        LockWaitScope {
            outer: CURRENT.replace(self.clone()),
            _not_send: PhantomData,
        }
    }

    pub(crate) fn notify(&self, what: &str) {
        if let Some(notify) = &self.notify {
            notify(what);
        }
    }
}

impl fmt::Debug for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockWait")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// A thread that waits for a locked database in somebody's way. Threads serve one after another:
/// what comes next must not end with the interrupt of what was before.
pub(crate) struct LockWaitScope {
    outer: LockWait,
    /// It is dropped in the thread that it was made in.
    _not_send: PhantomData<*const ()>,
}

impl Drop for LockWaitScope {
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.outer));
    }
}

thread_local! {
    /// SQLite asks a function without any state whether to go on waiting, in the thread that waits.
    static CURRENT: RefCell<LockWait> = RefCell::default();
}

/// Waits a little for a database that somebody has locked, for the `times`th time in a row; `false`
/// if that is to end.
pub(crate) fn wait_for_database(times: i32) -> bool {
    let times = u32::try_from(times).unwrap_or(0);
    // All the short pauses together are as long as one more.
    let waited = LOCK_POLL_INTERVAL.saturating_mul(times.saturating_sub(SHORT_PAUSES - 1));
    let lock_wait = CURRENT.with_borrow(LockWait::clone);
    // What is complete is registered after an interrupt too, if nobody is long at it.
    let is_over = times >= SHORT_PAUSES && lock_wait.check_cancelled().is_err();
    if is_over || waited >= LOCK_TIMEOUT {
        return false;
    }
    if waited == NOTIFY_AFTER {
        lock_wait.notify("the database");
    }
    thread::sleep(match times < SHORT_PAUSES {
        true => Duration::from_millis(1 << times),
        false => LOCK_POLL_INTERVAL,
    });
    true
}

/// Whether a wait of this thread for a database was ended by an interrupt.
pub(crate) fn is_interrupted() -> bool {
    CURRENT.with_borrow(|lock_wait| lock_wait.check_cancelled().is_err())
}

/// A collection of garbage in a large store takes minutes.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Short beside anything that is waited for, long beside the system call.
pub(crate) const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A database is mostly locked for one transaction of some milliseconds: the pauses begin with one
/// and double until they are [`LOCK_POLL_INTERVAL`].
const SHORT_PAUSES: u32 = 6;

/// Nobody asks why in a shorter time than this.
pub(crate) const NOTIFY_AFTER: Duration = Duration::from_secs(1);
