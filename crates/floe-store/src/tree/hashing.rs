//! Hashes many trees on all cores.

use std::cmp::Reverse;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::{slice, thread};

use floe_format::Hash;
use floe_hash::hash_pool::{HashPool, Stream, Worker, WorkerTicket};
use parking_lot::Mutex;

use crate::error::StoreError;
use crate::tree::dump_path;

/// Returns hash and size of the NAR of a tree.
pub(crate) fn hash_tree(path: &Path, mut hasher: Stream) -> Result<(Hash, u64), StoreError> {
    let mut size = 0;
    dump_path(path, &mut |chunk| {
        hasher.update(chunk);
        size += chunk.len() as u64;
        Ok::<_, StoreError>(())
    })?;
    Ok((Hash::sha256(hasher.finish()), size))
}

/// Calls `hash` for each item, on several threads. Most threads begin with the largest items, and
/// the slots of the hash pool begin with the smallest. `jobs` limits the number of items in work at
/// once; without it, the number suits the machine. Returns `false` if `should_continue` did.
pub(crate) fn hash_all<T: Sync>(
    mut items: Vec<T>,
    jobs: Option<NonZeroUsize>,
    should_continue: &(dyn Fn() -> bool + Sync),
    len: &dyn Fn(&T) -> u64,
    hash: &(dyn Fn(&T, &Worker) + Sync),
) -> bool {
    items.sort_by_cached_key(|item| Reverse(len(item)));
    let pool = HashPool::for_messages(items.iter().map(len), jobs);
    let remaining = Mutex::new(items.iter());
    let run = |ticket: WorkerTicket| {
        let worker = ticket.start();
        while let Some(item) = next_item(&remaining, &worker)
            && should_continue()
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
    should_continue()
}

fn next_item<'a, T>(remaining: &Mutex<slice::Iter<'a, T>>, worker: &Worker) -> Option<&'a T> {
    match worker.takes_smallest() {
        true => remaining.lock().next_back(),
        false => remaining.lock().next(),
    }
}
