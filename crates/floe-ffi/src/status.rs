//! The results of calls, with their error texts.

use std::cell::RefCell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fork;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The call is done, or the request is accepted.
    Ok = 0,
    /// An argument is invalid; see `floe_last_error`.
    Invalid = -1,
    /// Too many requests are waiting; try again later.
    Busy = -2,
    /// The engine is closed.
    Closed = -3,
    /// The handle is not valid, or no longer valid.
    BadHandle = -4,
    /// The call would wait for its own thread.
    WouldDeadlock = -5,
    /// The system has no memory.
    NoMemory = -6,
    /// A system call failed; see `floe_last_error`.
    System = -7,
    /// This process is the child of a process that had engines.
    Forked = -8,
    /// A bug in libfloe.
    Internal = -9,
    /// The timeout has passed.
    TimedOut = -10,
}

/// An error of a call.
pub(crate) struct Fail {
    status: Status,
    text: Option<String>,
}

impl From<Status> for Fail {
    /// Creates an error that its status explains.
    fn from(status: Status) -> Fail {
        Fail { status, text: None }
    }
}

/// Creates an error with a text of its own.
pub(crate) fn fail(status: Status, text: impl Into<String>) -> Fail {
    let text = Some(text.into());
    Fail { status, text }
}

/// Creates an error about an argument of the host.
pub(crate) fn invalid(text: impl Into<String>) -> Fail {
    fail(Status::Invalid, text)
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of a C function unless this process is a child after a fork. Catches panics and
/// stores the error text.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Fail>) -> i32 {
    if fork::is_child() {
        return store_error(Status::Forked.into());
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok as i32,
        // Both must be cheap, because the host tries again at once.
        Ok(Err(Fail {
            status: status @ (Status::Busy | Status::TimedOut),
            text: None,
        })) => status as i32,
        Ok(Err(fail)) => store_error(fail),
        Err(_) => store_error(Status::Internal.into()),
    }
}

#[cold]
fn store_error(fail: Fail) -> i32 {
    let text = fail.text.unwrap_or_else(|| {
        let text = text(fail.status as i32).to_str();
        text.unwrap_or_default().to_owned()
    });
    // If the thread is about to end, no code can ask for the text any more.
    let _: Result<(), _> = LAST.try_with(|last| *last.borrow_mut() = text);
    fail.status as i32
}

/// Runs `f` with the last error text of this thread.
pub(crate) fn with_last_error<R: Default>(f: impl FnOnce(&str) -> R) -> R {
    LAST.try_with(|last| f(&last.borrow())).unwrap_or_default()
}

/// Returns the description of a status.
pub(crate) fn text(status: i32) -> &'static CStr {
    match status {
        0 => c"done",
        -1 => c"an argument is invalid",
        -2 => c"too many requests are waiting; try again later",
        -3 => c"the engine is closed",
        -4 => c"the handle is not valid, or no longer valid",
        -5 => c"the call would wait for its own thread",
        -6 => c"the system has no memory",
        -7 => c"a system call failed",
        -8 => c"cannot use libfloe in the child of a process that had engines",
        -9 => c"a bug in libfloe",
        -10 => c"the timeout has passed",
        _ => c"unknown status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guard_with_panic_returns_internal() {
        let status = guard(|| panic!("not for C"));
        assert_eq!(status, Status::Internal as i32);
        with_last_error(|text| assert!(!text.is_empty()));
    }
}
