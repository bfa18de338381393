//! What a call returns, and why.

use std::cell::RefCell;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::CallError;

/// What a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done, or accepted.
    Ok = 0,
    /// An argument is wrong; `floe_last_error` says how.
    Invalid = -1,
    /// So much waits already: try again later.
    Busy = -2,
    /// The engine is closed.
    Closed = -3,
    /// There is nothing with this handle, or not any more.
    BadHandle = -4,
    /// The call would wait for the thread that makes it.
    WouldDeadlock = -5,
    /// The system has no memory.
    NoMemory = -6,
    /// The system refused something; `floe_last_error` says what.
    System = -7,
    /// This process is the child of one that had engines.
    Forked = -8,
    /// A fault in libfloe.
    Internal = -9,
    /// The time is over.
    TimedOut = -10,
}

/// A refusal, on its way out.
pub(super) struct Fail {
    status: Status,
    text: Option<String>,
}

impl Fail {
    /// One that its status explains.
    pub(super) fn status(status: Status) -> Fail {
        Fail { status, text: None }
    }
}

/// A refusal in words.
pub(super) fn fail(status: Status, text: String) -> Fail {
    Fail {
        status,
        text: Some(text),
    }
}

impl From<CallError> for Fail {
    fn from(refusal: CallError) -> Fail {
        Fail::status(match refusal {
            CallError::Busy => Status::Busy,
            CallError::Closed => Status::Closed,
            CallError::WouldDeadlock => Status::WouldDeadlock,
            CallError::BadHandle => Status::BadHandle,
        })
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs the body of a function that C calls: no panic gets out, and a refusal is remembered.
#[inline]
pub(super) fn guard(body: impl FnOnce() -> Result<Status, Fail>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status as i32,
        // To be told "busy" must cost nothing: who is told tries again at once.
        Ok(Err(Fail {
            status: Status::Busy,
            text: None,
        })) => Status::Busy as i32,
        Ok(Err(fail)) => remember(fail),
        Err(_) => remember(Fail::status(Status::Internal)),
    }
}

#[cold]
fn remember(fail: Fail) -> i32 {
    let text = fail.text.unwrap_or_else(|| {
        let text = text(fail.status as i32).to_str();
        text.unwrap_or_default().to_owned()
    });
    // A thread that is about to end has nobody left who would ask.
    let _: Result<(), _> = LAST.try_with(|last| *last.borrow_mut() = text);
    fail.status as i32
}

/// Lends the last refusal's words.
pub(super) fn with_last_error<R: Default>(f: impl FnOnce(&str) -> R) -> R {
    LAST.try_with(|last| f(&last.borrow())).unwrap_or_default()
}

/// A status in words.
pub(super) fn text(status: i32) -> &'static CStr {
    match status {
        0 => c"done",
        -1 => c"an argument is wrong",
        -2 => c"the engine has too much to do already; try again later",
        -3 => c"the engine is closed",
        -4 => c"the handle is not, or not any more, that of anything",
        -5 => c"the call would wait for the very thread that makes it",
        -6 => c"the system has no memory",
        -7 => c"the system refused something",
        -8 => c"libfloe cannot be used in the child of a process that had engines",
        -9 => c"a fault in libfloe",
        -10 => c"the time is over",
        _ => c"no status of libfloe",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_status_for_c() {
        let status = guard(|| panic!("not for C"));
        assert_eq!(status, Status::Internal as i32);
        with_last_error(|text| assert!(!text.is_empty()));
    }
}
