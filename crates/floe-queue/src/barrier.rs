//! A pair of fences, one of which costs next to nothing.
//!
//! Two threads each write a word and then read the other's. That at least one of them sees what
//! the other wrote takes a full fence on both sides. Linux has a call that makes every running
//! thread of the process pass a full fence (membarrier(2), `PRIVATE_EXPEDITED`): then the other
//! side needs none, only that the compiler keeps the order.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use crate::sync::fence;

/// Which pair is used. It is the same for all threads of an ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    is_asymmetric: bool,
}

impl Barrier {
    /// The lopsided pair, where the system has it.
    pub(crate) fn new() -> Barrier {
        Barrier {
            is_asymmetric: register(),
        }
    }

    /// For the side that is in a hurry.
    #[inline]
    pub(crate) fn light(self) {
        match self.is_asymmetric {
            true => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            false => fence(Ordering::SeqCst),
        }
    }

    /// For the other side.
    pub(crate) fn heavy(self) {
        if self.is_asymmetric {
            run();
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
fn call(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes numbers only, and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Whether this process may use the call from now on.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
fn register() -> bool {
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
fn run() {
    let passed = call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    // A process that has registered can always call it (membarrier(2)), also after a fork.
    assert!(passed, "membarrier was registered and is refused");
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
fn register() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
fn run() {}
