//! The collection of a binary cache: deletes the paths that no pin needs, beside pushes that run.
//!
//! 1. *Mark* ([`CacheCollection::mark`]) reads all narinfos, and finds what neither a pin nor a
//!    recent path needs.
//! 2. *Announce*: the plan names what will be deleted. A push reads it after it has written its
//!    lease.
//! 3. *Wait* for a grace period, and until each lease names the plan or expires. A lease also
//!    names the objects that its push needs.
//! 4. *Check again*: pins, leases and narinfos that are new keep their closures.
//! 5. *Delete* narinfos, referrers first, then listings and NARs.
//!
//! docs/formats.md says why no push loses what it counts on.

mod delete;
mod graph;
mod mark;
mod plan;
mod roots;

use std::collections::{BTreeSet, HashSet};
use std::num::NonZeroUsize;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::lease::{PlanState, object_key};
use floe_format::{HashPart, StorePath};
use floe_transfer::{CANCEL_POLL, CacheInventory, Cancel, Error};

pub use mark::Marked;
use plan::{HeldPlan, Leases};

/// The paths that a collection keeps, and how long it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionOptions {
    /// Paths that were written within this time stay, and so do their references.
    pub keep_newer: Duration,
    /// How many generations of each pin stay.
    pub keep_generations: NonZeroUsize,
    /// How long the collection waits before it deletes. Whatever is younger stays.
    pub grace: Duration,
}

impl Default for CollectionOptions {
    /// Keeps one generation of each pin, and waits only for pushes.
    fn default() -> CollectionOptions {
        CollectionOptions {
            keep_newer: Duration::ZERO,
            keep_generations: NonZeroUsize::MIN,
            grace: Duration::ZERO,
        }
    }
}

/// A collection of a cache.
pub struct CacheCollection<'a> {
    /// The cache.
    pub cache: &'a dyn CacheInventory,
    /// The options.
    pub options: &'a CollectionOptions,
    /// Ends the collection.
    pub cancel: &'a Cancel,
    /// Receives the events.
    pub events: &'a dyn Fn(CollectionEvent<'_>),
}

/// An event of a collection.
#[derive(Debug)]
pub enum CollectionEvent<'a> {
    /// A pinned path or a reference of one is not in the cache.
    IncompletePin {
        /// The name of the pin.
        pin: &'a str,
        /// The hash part of the first path that is missing.
        missing: &'a str,
    },
    /// A narinfo cannot be used. It stays, and so does its NAR.
    UnusableNarInfo {
        /// The name of its object.
        name: &'a str,
        /// The reason.
        reason: &'a str,
    },
    /// The collection waits for a grace period.
    Waiting {
        /// The time until it ends.
        time: Duration,
    },
    /// The collection waits for pushes that have not read the plan.
    WaitingForPushes {
        /// Their number.
        pushes: usize,
    },
    /// The collection deletes objects.
    Deleting {
        /// Their number.
        objects: usize,
    },
}

/// The result of a collection, or the one that it would have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// The deleted paths.
    pub paths: Vec<StorePath>,
    /// The number of deleted files of NARs.
    pub files: usize,
    /// Their sizes in bytes.
    pub file_bytes: u64,
    /// The number of deleted generations of pins.
    pub generations: usize,
    /// The number of paths that a push kept since the mark.
    pub kept_for_pushes: usize,
}

impl CacheCollection<'_> {
    /// Deletes what [`CacheCollection::mark`] found, and what is still unused.
    ///
    /// Errors: another collection runs; the cache was away for too long; those of the storage;
    /// [`Error::Cancelled`].
    pub fn run(&self, mut marked: Marked) -> Result<CollectionReport, Error> {
        self.cache.remove_temporaries()?;
        if marked.is_empty() {
            self.remove_expired(None)?;
            return Ok(CollectionReport::default());
        }
        let keys = marked
            .planned_objects()
            .map(|name| object_key(name).to_owned());
        let keys: BTreeSet<String> = keys.collect();
        self.delete_planned(&keys, |needs, plan| {
            self.check_again_and_delete(&mut marked, needs, plan)
        })
    }

    /// Deletes the narinfos and the listings of paths that cannot be used, although others may
    /// refer to them, and returns the paths. Their NARs are left to the next collection.
    ///
    /// `still_unusable` finds those that no push has replaced meanwhile. Those that a push needs
    /// stay.
    ///
    /// Errors: those of [`CacheCollection::run`] and of `still_unusable`.
    pub fn delete_unusable(
        &self,
        paths: &BTreeSet<HashPart>,
        still_unusable: impl FnOnce() -> Result<BTreeSet<HashPart>, Error>,
    ) -> Result<BTreeSet<HashPart>, Error> {
        let key = |part: &HashPart| object_key(part.as_str()).to_owned();
        let keys: BTreeSet<String> = paths.iter().map(key).collect();
        self.delete_planned(&keys, |needs, plan| {
            let mut deleted = still_unusable()?;
            deleted.retain(|part| paths.contains(part) && !needs.contains(&key(part)));
            for suffix in ["narinfo", "ls"] {
                let names = deleted.iter().map(|part| format!("{part}.{suffix}"));
                self.delete(&names.collect::<Vec<_>>(), plan)?;
            }
            for (pin, part) in &self.read_pins()?.kept {
                if deleted.contains(part) {
                    let missing = part.as_str();
                    (self.events)(CollectionEvent::IncompletePin { pin, missing });
                }
            }
            Ok(deleted)
        })
    }

    /// Announces a plan that names some keys, waits until pushes have noticed it, and calls
    /// `delete` with the keys that pushes need.
    fn delete_planned<T>(
        &self,
        keys: &BTreeSet<String>,
        delete: impl FnOnce(&HashSet<String>, &HeldPlan<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let plan = HeldPlan::announce(self, keys)?;
        thread::scope(|scope| {
            let _renewals = plan.start_renewals(scope);
            self.wait(self.options.grace, &plan)?;
            self.wait_for_leases(&plan)?;
            plan.set_state(PlanState::Deleting)?;
            // Lists of the cache may lag.
            self.wait(self.options.grace.min(SETTLE_MAX), &plan)?;
            let needs = self.wait_for_leases(&plan)?;
            let deleted = delete(&needs, &plan)?;
            plan.check_held()?;
            self.remove_expired(Some(&plan))?;
            Ok(deleted)
        })
    }

    /// Waits for a time, or until the plan is lost.
    fn wait(&self, time: Duration, plan: &HeldPlan<'_>) -> Result<(), Error> {
        let began = Instant::now();
        if !time.is_zero() {
            (self.events)(CollectionEvent::Waiting { time });
        }
        while began.elapsed() < time {
            self.check_cancelled()?;
            plan.check_held()?;
            thread::sleep(CANCEL_POLL.min(time));
        }
        Ok(())
    }

    /// Waits until each lease names the plan or has expired. Returns the keys that they
    /// need.
    fn wait_for_leases(&self, plan: &HeldPlan<'_>) -> Result<HashSet<String>, Error> {
        let mut waiting_for = 0;
        loop {
            self.check_cancelled()?;
            plan.check_held()?;
            let leases = Leases::read(self)?;
            let unaware = leases.unaware(plan.id());
            if unaware == 0 {
                return Ok(leases.needs());
            }
            if unaware != waiting_for {
                (self.events)(CollectionEvent::WaitingForPushes { pushes: unaware });
                waiting_for = unaware;
            }
            thread::sleep(LEASE_POLL);
        }
    }

    fn check_cancelled(&self) -> Result<(), Error> {
        if self.cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        Ok(())
    }
}

/// How long the lists of a cache may lag behind its objects.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// How often the leases are read.
const LEASE_POLL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
