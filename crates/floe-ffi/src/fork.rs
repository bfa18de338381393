//! Detection of a fork, which leaves the child with the memory of the engines but none of their
//! threads.
//!
//! In the child, every call returns an error. It therefore neither waits for missing threads nor
//! changes data that they were about to change.
#![expect(unsafe_code, reason = "pthread_atfork is a C function")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// Registers the fork handler. Called before the first engine is opened.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler only stores a flag. It lives as long as the library, which is linked
        // so that it is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Returns whether this process is the child of a process that had engines.
#[inline]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}
