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
pub struct Patience {
    cancel: Arc<AtomicBool>,
    tell: Option<Tell>,
}

/// Hears for what is waited.
type Tell = Arc<dyn Fn(&str) + Send + Sync>;

impl Patience {
    /// Waits until `cancel` is raised, and says through `tell` for what, such as `the garbage
    /// collector`, when it has waited for a second.
    pub fn new(cancel: Arc<AtomicBool>, tell: impl Fn(&str) + Send + Sync + 'static) -> Patience {
        let tell: Tell = Arc::new(tell);
        Patience {
            cancel,
            tell: Some(tell),
        }
    }

    /// Tries until there is something, for at most [`LOCK_WAIT`]. `what` is waited for, and `path`
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
        let mut is_told = false;
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            self.check()?;
            if began.elapsed() >= LOCK_WAIT {
                return Err(StoreError::LockTimeout {
                    path: path.to_path_buf(),
                    seconds: LOCK_WAIT.as_secs(),
                });
            }
            if began.elapsed() >= SILENCE && !std::mem::replace(&mut is_told, true) {
                self.say(what);
            }
            thread::sleep(LOCK_POLL);
        }
    }

    /// An error when the flag is up.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.cancel.load(Ordering::Relaxed) {
            true => Err(StoreError::Interrupted),
            false => Ok(()),
        }
    }

    /// Lets the calling thread wait for a locked database so, for as long as the value lives.
    pub(crate) fn govern_this_thread(&self) -> Governed {
        Governed {
            before: OF_THIS_THREAD.replace(self.clone()),
            _of_this_thread: PhantomData,
        }
    }

    pub(crate) fn say(&self, what: &str) {
        if let Some(tell) = &self.tell {
            tell(what);
        }
    }
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}

/// A thread that waits for a locked database in somebody's way. Threads serve one after another:
/// what comes next must not end with the interrupt of what was before.
pub(crate) struct Governed {
    before: Patience,
    /// It is dropped in the thread that it was made in.
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Governed {
    fn drop(&mut self) {
        OF_THIS_THREAD.set(std::mem::take(&mut self.before));
    }
}

thread_local! {
    /// SQLite asks a function without any state whether to go on waiting, in the thread that waits.
    static OF_THIS_THREAD: RefCell<Patience> = RefCell::default();
}

/// Waits a little for a database that somebody has locked, for the `times`th time in a row; `false`
/// if that is to end.
pub(crate) fn wait_for_database(times: i32) -> bool {
    let times = u32::try_from(times).unwrap_or(0);
    // All the short pauses together are as long as one more.
    let waited = LOCK_POLL.saturating_mul(times.saturating_sub(SHORT_PAUSES - 1));
    let patience = OF_THIS_THREAD.with_borrow(Patience::clone);
    // What is complete is registered after an interrupt too, if nobody is long at it.
    let is_over = times >= SHORT_PAUSES && patience.check().is_err();
    if is_over || waited >= LOCK_WAIT {
        return false;
    }
    if waited == SILENCE {
        patience.say("the database");
    }
    thread::sleep(match times < SHORT_PAUSES {
        true => Duration::from_millis(1 << times),
        false => LOCK_POLL,
    });
    true
}

/// Whether a wait of this thread for a database was ended by an interrupt.
pub(crate) fn is_interrupted() -> bool {
    OF_THIS_THREAD.with_borrow(|patience| patience.check().is_err())
}

/// A collection of garbage in a large store takes minutes.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(600);

/// Short beside anything that is waited for, long beside the system call.
pub(crate) const LOCK_POLL: Duration = Duration::from_millis(50);

/// A database is mostly locked for one transaction of some milliseconds: the pauses begin with one
/// and double until they are [`LOCK_POLL`].
const SHORT_PAUSES: u32 = 6;

/// Nobody asks why in a shorter time than this.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);
