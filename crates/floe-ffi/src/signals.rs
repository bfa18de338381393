//! Signals: libfloe keeps the settings of its host, and keeps its process alive.
//!
//! If the reader of a pipe or socket is gone, a write fails and also raises SIGPIPE, which ends the
//! process by default. Rust programs ignore SIGPIPE from the start. Most C programs do not, and may
//! not want to.

#![expect(unsafe_code, reason = "the functions for signal sets are C functions")]

use std::mem::MaybeUninit;

/// Blocks SIGPIPE for the calling thread and the threads that it starts. A broken pipe is then only
/// an error. The signal is sent to the writing thread, so no other thread misses one.
pub(crate) fn block_sigpipe() {
    let mut pipe = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initializes the set, which lives on the stack, and the other calls read
    // it. None of them can fail with these arguments.
    unsafe {
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), std::ptr::null_mut());
    }
}
