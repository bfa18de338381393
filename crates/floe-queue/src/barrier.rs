//! A pair of memory fences, one of which costs next to nothing.
//!
//! Two threads each write a word and then read the other's word. At least one of them must see the
//! other's write. This takes a full fence on both sides. On Linux, membarrier(2) with
//! `PRIVATE_EXPEDITED` makes every running thread of the process pass a full fence. One side can
//! then pay for both (an asymmetric fence), and the other side only stops the compiler from
//! reordering.
#![allow(unsafe_code, reason = "membarrier is a system call without a wrapper")]

use std::sync::atomic::Ordering;

use crate::sync::fence;

/// The kind of fences in use. All threads of a channel use the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    is_asymmetric: bool,
}

impl Barrier {
    /// Chooses the asymmetric pair if the system supports it.
    pub(crate) fn new() -> Barrier {
        Barrier {
            is_asymmetric: register(),
        }
    }

    /// The cheap fence, for the side that runs often.
    #[inline]
    pub(crate) fn light(self) {
        if self.is_asymmetric {
            std::sync::atomic::compiler_fence(Ordering::SeqCst)
        } else {
            fence(Ordering::SeqCst)
        }
    }

    /// The expensive fence, for the other side.
    pub(crate) fn heavy(self) {
        if self.is_asymmetric {
            run();
        }
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
fn call(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes only numbers and accesses no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers the process for membarrier. Returns whether it may use the call.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
fn register() -> bool {
    call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
}

#[cfg(all(target_os = "linux", not(loom), not(miri)))]
fn run() {
    let passed = call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    // A registered process can always make the call (membarrier(2)), also after a fork.
    assert!(passed, "membarrier failed after registration");
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
fn register() -> bool {
    false
}

#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
fn run() {}
