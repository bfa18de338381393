//! The cores that have nothing else to do, for work on a large message that several cores can
//! divide.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

/// The cores that have nothing else to do.
#[derive(Debug)]
pub struct IdleCores {
    cores: usize,
    /// Less than 0 if more threads work than there are cores.
    idle: AtomicIsize,
}

/// A core with a thread that works. Dropping it makes the core idle.
#[derive(Debug)]
pub struct BusyCore(Arc<IdleCores>);

impl IdleCores {
    /// No core: the calling thread does everything.
    pub fn none() -> IdleCores {
        IdleCores::new(0)
    }

    /// Makes `cores` idle cores.
    pub fn new(cores: usize) -> IdleCores {
        IdleCores {
            cores,
            idle: AtomicIsize::new(isize::try_from(cores).unwrap_or(isize::MAX)),
        }
    }

    /// Notes that a thread works, also if no core is idle.
    pub fn occupy(self: &Arc<IdleCores>) -> BusyCore {
        self.idle.fetch_sub(1, Ordering::Relaxed);
        BusyCore(self.clone())
    }

    /// Returns a core for another thread, if one is idle.
    pub fn try_occupy(self: &Arc<IdleCores>) -> Option<BusyCore> {
        if self.count() <= 0 {
            return None;
        }
        let core = self.occupy();
        (self.count() >= 0).then_some(core)
    }

    /// Returns the number of all cores, idle and busy.
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Returns the number of idle cores; less than 0 if more threads work than there are cores.
    pub fn count(&self) -> isize {
        self.idle.load(Ordering::Relaxed)
    }
}

impl BusyCore {
    /// The cores to which this one belongs.
    pub fn idle_cores(&self) -> &Arc<IdleCores> {
        &self.0
    }
}

impl Drop for BusyCore {
    fn drop(&mut self) {
        self.0.idle.fetch_add(1, Ordering::Relaxed);
    }
}
