//! What a host has set for signals stays as it is, and its process alive.
//!
//! Whoever writes to a pipe or socket whose reader has gone is told so by an error, and before that
//! by SIGPIPE, which ends the process where nobody has said otherwise. Programs in Rust have said
//! so at their start; a host in C mostly has not, and may not want to.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Lets a broken pipe be an error and nothing else for the calling thread and those that it starts.
/// The signal is sent to the thread that writes, so that no other thread misses one.
pub(crate) fn block_sigpipe() {
    let mut pipe = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset makes the set, which lives on the stack of this call, and the others read
    // it. None of them can fail with these arguments.
    unsafe {
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), std::ptr::null_mut());
    }
}
