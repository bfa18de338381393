//! Waiting for locks that other processes hold, such as the lock of the garbage collector. Each
//! wait has a time limit, ends on an interrupt, and notifies the user after a second.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::StoreError;

/// The way to wait for locks of other processes: a cancel flag and a callback that notifies the
/// user.
#[derive(Clone)]
pub struct LockWait {
    cancel: Arc<AtomicBool>,
    notify: Option<Notify>,
    timeout: Duration,
}

impl Default for LockWait {
    /// Waits without a notification.
    fn default() -> LockWait {
        LockWait {
            cancel: Arc::default(),
            notify: None,
            timeout: LOCK_TIMEOUT,
        }
    }
}

/// Receives the name of the holder for which a thread waits.
type Notify = Arc<dyn Fn(&str) + Send + Sync>;

impl LockWait {
    /// Creates a wait that ends when `cancel` becomes true. After a wait of one second it calls
    /// `notify` with the name of the holder, such as `the garbage collector`.
    pub fn new(cancel: Arc<AtomicBool>, notify: impl Fn(&str) + Send + Sync + 'static) -> LockWait {
        LockWait {
            cancel,
            notify: Some(Arc::new(notify)),
            timeout: LOCK_TIMEOUT,
        }
    }

    /// Returns a wait with another time limit for locks of files. Waits for a database and for a
    /// collector keep theirs.
    pub fn for_at_most(&self, timeout: Duration) -> LockWait {
        LockWait {
            timeout,
            ..self.clone()
        }
    }

    /// Creates a wait that has ended already. A query still waits for a moment.
    pub(crate) fn expired() -> LockWait {
        LockWait::new(Arc::new(AtomicBool::new(true)), |_| {})
    }

    /// Repeats `attempt` until it returns a value, for at most the time limit. `what` names the
    /// holder of the lock, `path` is the lock file.
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
            if began.elapsed() >= self.timeout {
                return Err(StoreError::LockTimeout {
                    path: path.to_path_buf(),
                    seconds: self.timeout.as_secs(),
                });
            }
            if began.elapsed() >= NOTIFY_AFTER && !std::mem::replace(&mut is_notified, true) {
                self.notify_of_wait(what, self.timeout);
            }
            thread::sleep(LOCK_POLL_INTERVAL);
        }
    }

    /// Returns [`StoreError::Interrupted`] if the cancel flag is set.
    pub(crate) fn check_cancelled(&self) -> Result<(), StoreError> {
        if self.cancel.load(Ordering::Relaxed) {
            Err(StoreError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Makes queries of the calling thread wait in this way while the returned value lives.
    pub(crate) fn enter_scope(&self) -> LockWaitScope {
        LockWaitScope {
            outer: CURRENT.replace(self.clone()),
            _not_send: PhantomData,
        }
    }

    /// Notifies the user of a wait for at most a time.
    pub(crate) fn notify_of_wait(&self, what: &str, timeout: Duration) {
        let Some(notify) = &self.notify else { return };
        let seconds = timeout.as_secs();
        let (count, unit) = if seconds >= 120 && seconds.is_multiple_of(60) {
            (seconds / 60, "minutes")
        } else {
            (seconds, "seconds")
        };
        notify(&format!("{what}, at most {count} {unit}"));
    }
}

impl fmt::Debug for LockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockWait")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// A scope in which the current thread waits for a locked database in a certain way. A thread
/// serves one caller after another, so the end of the scope restores the previous way. Otherwise
/// the interrupt of one caller would end the wait of the next.
pub(crate) struct LockWaitScope {
    outer: LockWait,
    /// The scope ends on the thread that began it, because the state is thread-local.
    _not_send: PhantomData<*const ()>,
}

impl Drop for LockWaitScope {
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.outer));
    }
}

thread_local! {
    /// SQLite's busy handler is a plain function without state and runs on the waiting thread, so
    /// the state is thread-local.
    static CURRENT: RefCell<LockWait> = RefCell::default();
}

/// Waits for a short time while the database is locked; `times` counts the calls of one wait.
/// Returns `false` if the wait is over.
pub(crate) fn wait_for_database(times: i32) -> bool {
    let times = u32::try_from(times).unwrap_or(0);
    // The short pauses together last as long as one poll interval.
    let waited = LOCK_POLL_INTERVAL.saturating_mul(times.saturating_sub(SHORT_PAUSES - 1));
    let lock_wait = CURRENT.with_borrow(LockWait::clone);
    // The short pauses ignore an interrupt, so that complete paths are still registered if the
    // database is locked only for one transaction.
    let is_over = times >= SHORT_PAUSES && lock_wait.check_cancelled().is_err();
    if is_over || waited >= LOCK_TIMEOUT {
        return false;
    }
    if waited == NOTIFY_AFTER {
        lock_wait.notify_of_wait("the database", LOCK_TIMEOUT);
    }
    thread::sleep(if times < SHORT_PAUSES {
        Duration::from_millis(1 << times)
    } else {
        LOCK_POLL_INTERVAL
    });
    true
}

/// Whether an interrupt ended the wait of this thread for a database.
pub(crate) fn is_interrupted() -> bool {
    CURRENT.with_borrow(|lock_wait| lock_wait.check_cancelled().is_err())
}

/// A garbage collection in a large store takes minutes.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(600);

/// Short beside the usual waits, long beside a system call.
pub(crate) const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The number of short pauses. A database is mostly locked for one transaction of some
/// milliseconds, so the pauses begin with one millisecond and double until they reach
/// [`LOCK_POLL_INTERVAL`].
const SHORT_PAUSES: u32 = 6;

/// A user does not notice shorter waits.
pub(crate) const NOTIFY_AFTER: Duration = Duration::from_secs(1);
