//! A fork leaves the child with the memory of the engines and none of their threads.
//!
//! In the child every call is refused, so that it neither waits for threads that are not there nor
//! touches what they were about to change.
#![allow(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);
static WATCH: Once = Once::new();

/// From now on a fork is noticed. Called before the first engine is opened.
pub(crate) fn watch() {
    WATCH.call_once(|| {
        // SAFETY: the handler is a function that lives as long as the library, which is linked
        // so that it is never unloaded; it only stores a flag.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Whether this process is the child of one that had engines.
#[inline]
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

extern "C" fn in_child() {
    IS_CHILD.store(true, Ordering::Relaxed);
}
