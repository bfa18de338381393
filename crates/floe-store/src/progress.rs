//! Work on many paths at once: its progress, and its distribution to all cores.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::{slice, thread};

use floe_hash::hash_pool::{HashPool, Worker, WorkerTicket};
use parking_lot::Mutex;

use crate::error::StoreError;
use crate::roots::Unreadable;

/// Receives the progress of work on many paths, from several threads, and can stop it.
pub trait Progress: Sync {
    /// Called by a collection before [`Progress::started`], with the places that could not be read
    /// and may hold further roots.
    fn unreadable(&self, _places: &[Unreadable]) {}

    /// Called once, before the first path, with the number of paths and the sum of their NAR sizes.
    /// A collection also counts dead files that are not valid paths.
    fn started(&self, _paths: u64, _nar_bytes: u64) {}

    /// Called after each path with its NAR size.
    fn path_done(&self, _nar_bytes: u64) {}

    /// Called often, at least before each path. `false` ends the work.
    fn should_continue(&self) -> bool {
        true
    }
}

/// Ignores the progress.
impl Progress for () {}

/// Calls `hash` for each item, on several threads. Most threads begin with the largest items, and
/// the slots of the hash pool begin with the smallest. `jobs` limits the number of items in work at
/// once; without it, the number suits the machine.
///
/// Errors: [`StoreError::Interrupted`].
pub(crate) fn hash_all<T: Sync>(
    mut items: Vec<T>,
    jobs: Option<NonZeroUsize>,
    progress: &dyn Progress,
    len: &dyn Fn(&T) -> u64,
    hash: &(dyn Fn(&T, &Worker) + Sync),
) -> Result<(), StoreError> {
    items.sort_by_cached_key(|item| Reverse(len(item)));
    let pool = HashPool::for_messages(items.iter().map(len), jobs);
    let remaining = Mutex::new(items.iter());
    let run = |ticket: WorkerTicket| {
        let worker = ticket.start();
        while let Some(item) = next_item(&remaining, &worker)
            && progress.should_continue()
        {
            hash(item, &worker);
        }
    };
    thread::scope(|scope| {
        for ticket in pool.tickets() {
            let ticket = Arc::new(Mutex::new(Some(ticket)));
            let of_thread = ticket.clone();
            let run = &run;
            let run_ticket = move || {
                if let Some(ticket) = of_thread.lock().take() {
                    run(ticket);
                }
            };
            if thread::Builder::new()
                .spawn_scoped(scope, run_ticket)
                .is_err()
            {
                // The system allows no further thread, so this one works too.
                if let Some(ticket) = ticket.lock().take() {
                    run(ticket);
                }
                break;
            }
        }
    });
    if progress.should_continue() {
        Ok(())
    } else {
        Err(StoreError::Interrupted)
    }
}

fn next_item<'a, T>(remaining: &Mutex<slice::Iter<'a, T>>, worker: &Worker) -> Option<&'a T> {
    let mut remaining = remaining.lock();
    if worker.takes_smallest() {
        remaining.next_back()
    } else {
        remaining.next()
    }
}
