//! The lease of a writer: the object by which it keeps a collection from deleting what it counts
//! on. docs/formats.md has the protocol.
//!
//! A writer writes its lease before its first query, and reads the plan of a collection after it.
//! It names each object of the plan that it needs in its lease, and then reads the plan again: if
//! the collection still waits, it will see the lease before it deletes. Otherwise the writer waits
//! for the end of the collection. A thread renews the lease, and reads a plan that appears later.

mod plan;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

use floe_format::lease::{LEASES_FOLDER, Lease, object_key};
use floe_transfer::{
    CANCEL_POLL, Cancel, Error, Event, EventSink as _, Events, random_number, time_since_boot,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::CacheError;
use crate::storage::WriteStorage;
use plan::{KnownPlan, PlanNow, read_names, read_plan};

/// The lease of a writer. The end of the value ends the lease.
#[derive(Debug)]
pub(super) struct LeaseHolder(Arc<Shared>);

/// The state that the writer shares with the thread that renews the lease.
struct Shared {
    storage: Arc<dyn WriteStorage>,
    /// For how long the lease counts for others after each renewal.
    lifetime: Duration,
    events: Events,
    cancel: Cancel,
    state: Mutex<State>,
    /// Whether the writer has ended, so that no renewal follows.
    has_ended: AtomicBool,
    ended: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    use_of: Use,
    lease: Option<HeldLease>,
    /// The keys of all objects that the writer counts on.
    needed: HashSet<String>,
    /// Whether the lease has expired, so that objects may be gone.
    has_expired: bool,
}

/// How a writer uses leases.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Use {
    /// The cache cannot be collected, or the writer does not write.
    #[default]
    Never,
    /// The cache is new. It gets the lease with its first object.
    Later,
    Now,
    /// The server refuses leases.
    Refused,
}

/// A lease that is in the cache.
struct HeldLease {
    name: String,
    object: Lease,
    /// When the last renewal began, since the start of the machine.
    renewed_at: Duration,
    /// Whether the lease had expired before a renewal, so that nothing was kept for a while.
    was_expired: bool,
    plan: Option<KnownPlan>,
}

impl HeldLease {
    /// Returns the time since the last renewal began.
    fn age(&self) -> Duration {
        time_since_boot().saturating_sub(self.renewed_at)
    }
}

/// The objects that a lease names at once when it names a plan for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstNeeds {
    /// All that the writer needs. The collection waits for a lease that is older than its plan, and
    /// keeps what this lease names.
    All,
    /// None. A lease that is younger than the plan names objects one after the other, and sees
    /// whether the collection still waits.
    None,
}

impl LeaseHolder {
    /// Makes the lease of a writer that needs none.
    pub(super) fn none(storage: Arc<dyn WriteStorage>) -> LeaseHolder {
        LeaseHolder::of(
            storage,
            Duration::ZERO,
            (Events::default(), Cancel::default()),
            Use::Never,
        )
    }

    /// Makes the lease of a writer, which appears in the cache with the first need. A new cache
    /// has it from [`LeaseHolder::begin`] on.
    pub(super) fn new(
        storage: Arc<dyn WriteStorage>,
        lifetime: Duration,
        context: (Events, Cancel),
        is_new: bool,
    ) -> LeaseHolder {
        // A user who cannot list the leases cannot collect the cache.
        let use_of = match (storage.as_list().is_some(), is_new) {
            (false, _) => Use::Never,
            (true, true) => Use::Later,
            (true, false) => Use::Now,
        };
        LeaseHolder::of(storage, lifetime, context, use_of)
    }

    fn of(
        storage: Arc<dyn WriteStorage>,
        lifetime: Duration,
        (events, cancel): (Events, Cancel),
        use_of: Use,
    ) -> LeaseHolder {
        let state = State {
            use_of,
            ..State::default()
        };
        LeaseHolder(Arc::new(Shared {
            storage,
            lifetime,
            events,
            cancel,
            state: Mutex::new(state),
            has_ended: AtomicBool::new(false),
            ended: Condvar::new(),
        }))
    }

    /// Writes the lease into a new cache.
    ///
    /// Errors: as [`LeaseHolder::need`].
    pub(super) fn begin(&self) -> Result<(), Error> {
        let mut state = self.0.state.lock();
        if state.use_of != Use::Later {
            return Ok(());
        }
        state.use_of = Use::Now;
        self.0.hold(&mut state)
    }

    /// Keeps objects until the end of the lease. After the return, no collection deletes those that
    /// exist. Waits for a collection that deletes some of them now.
    ///
    /// Errors: those of the storage; a plan of a newer version; [`Error::Cancelled`].
    pub(super) fn need<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
        let mut state = self.0.state.lock();
        if matches!(state.use_of, Use::Never | Use::Refused) {
            return Ok(());
        }
        let new = names
            .map(object_key)
            .filter(|key| !state.needed.contains(*key));
        let new: Vec<String> = new.map(str::to_owned).collect();
        state.needed.extend(new.iter().cloned());
        if state.use_of == Use::Later {
            return Ok(());
        }
        if state.lease.is_none() {
            return self.0.hold(&mut state);
        }
        self.0.keep(&mut state, &new)?;
        self.0.hold_again_if_expired(&mut state)
    }

    /// Whether the lease has expired since the last call, because the writer stood still or the
    /// cache was away. Then the objects that it counts on may be gone. Writes the lease anew.
    ///
    /// Errors: as [`LeaseHolder::need`].
    pub(super) fn has_expired(&self) -> Result<bool, Error> {
        let mut state = self.0.state.lock();
        if state.lease.is_none() {
            return Ok(false);
        }
        self.0.hold_again_if_expired(&mut state)?;
        Ok(std::mem::take(&mut state.has_expired))
    }
}

impl Drop for LeaseHolder {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
        // The thread may renew the lease at a server that is away.
        let state = self.0.state.try_lock_for(END_WAIT_MAX);
        if let Some(mut state) = state
            && let Some(held) = state.lease.take()
        {
            self.0.ended.notify_all();
            self.0.end(&held.name);
        }
    }
}

impl Shared {
    /// Writes the lease anew if it has expired.
    fn hold_again_if_expired(self: &Arc<Self>, state: &mut State) -> Result<(), Error> {
        for _ in 0..EXPIRIES_MAX {
            let held = state.lease.as_ref();
            if held.is_none_or(|held| !held.was_expired && held.age() <= self.own_lifetime()) {
                return Ok(());
            }
            state.has_expired = true;
            self.hold(state)?;
        }
        Err(CacheError::Write {
            url: self.storage.name(),
            reason: "the lease expires again and again, because the cache replies too slowly; try \
                     a longer lease-lifetime in its URI"
                .into(),
            transient: false,
        }
        .into())
    }

    /// Writes the lease, at first or after its end, and keeps all that is needed.
    fn hold(self: &Arc<Self>, state: &mut State) -> Result<(), Error> {
        let is_first = state.lease.is_none();
        let name = match &state.lease {
            Some(held) => held.name.clone(),
            None => format!(
                "{LEASES_FOLDER}{:016x}{:016x}",
                random_number(),
                random_number()
            ),
        };
        let mut held = HeldLease {
            name,
            object: Lease {
                lifetime: u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX),
                plan: None,
                needs: Default::default(),
            },
            renewed_at: time_since_boot(),
            was_expired: false,
            plan: None,
        };
        match self.write(&mut held) {
            Err(error) if is_first && is_refusal(&error) => {
                state.use_of = Use::Refused;
                self.events.event(Event::LeaseRefused { error: &error });
                return Ok(());
            }
            written => written?,
        }
        state.lease = Some(held);
        if is_first {
            self.start_renewals();
        }
        self.learn_plan(state, FirstNeeds::None)?;
        let needed: Vec<String> = state.needed.iter().cloned().collect();
        self.keep(state, &needed)
    }

    /// Names those of the keys in the lease that a collection would delete.
    fn keep(&self, state: &mut State, keys: &[String]) -> Result<(), Error> {
        loop {
            let Some(held) = &mut state.lease else {
                return Ok(());
            };
            let Some(plan) = &held.plan else {
                return Ok(());
            };
            let planned = keys.iter().filter(|key| plan.names.0.contains(*key));
            let missing = planned.filter(|key| !held.object.needs.contains(*key));
            let missing: Vec<String> = missing.cloned().collect();
            if missing.is_empty() {
                return Ok(());
            }
            held.object.needs.extend(missing.iter().cloned());
            self.write(held)?;
            match read_plan(&*self.storage, &self.cancel)? {
                PlanNow::Waiting(id) if id == plan_id(held) => return Ok(()),
                PlanNow::Deleting(id) if id == plan_id(held) => {
                    // The collection may have read the lease before. Its names are not kept.
                    missing
                        .iter()
                        .for_each(|key| _ = held.object.needs.remove(key));
                    self.wait_for_end(held, &id)?;
                    self.learn_plan(state, FirstNeeds::All)?;
                }
                _ => self.learn_plan(state, FirstNeeds::All)?,
            }
        }
    }

    /// Waits until a collection has ended, and renews the lease meanwhile.
    fn wait_for_end(&self, held: &mut HeldLease, id: &str) -> Result<(), Error> {
        self.events.event(Event::WaitingForCollection);
        loop {
            self.pause(held)?;
            match read_plan(&*self.storage, &self.cancel)? {
                PlanNow::Deleting(now) if now == id => {}
                _ => return Ok(()),
            }
        }
    }

    /// Waits before another look at the plan, and renews the lease.
    fn pause(&self, held: &mut HeldLease) -> Result<(), Error> {
        if held.age() > self.renewal_wait() {
            self.write(held)?;
        }
        for _ in 0..POLLS_PER_PLAN {
            if self.cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            thread::sleep(CANCEL_POLL);
        }
        Ok(())
    }

    /// Reads the plan of a collection that is new to the writer, and names it in the lease.
    fn learn_plan(&self, state: &mut State, first: FirstNeeds) -> Result<(), Error> {
        loop {
            let now = read_plan(&*self.storage, &self.cancel)?;
            let Some(held) = &mut state.lease else {
                return Ok(());
            };
            let (PlanNow::Waiting(id) | PlanNow::Deleting(id)) = now else {
                held.plan = None;
                held.object.plan = None;
                held.object.needs.clear();
                return Ok(());
            };
            if held.plan.as_ref().is_some_and(|known| known.id == id) {
                return Ok(());
            }
            let Some(names) = read_names(&*self.storage, &id, &self.cancel)? else {
                // The plan has ended since, or another program has deleted its names.
                self.pause(held)?;
                continue;
            };
            held.object.plan = Some(id.clone());
            let needed = state.needed.iter().filter(|_| first == FirstNeeds::All);
            let planned = needed.filter(|key| names.0.contains(*key));
            held.object.needs = planned.cloned().collect();
            held.plan = Some(KnownPlan { id, names });
            return self.write(held);
        }
    }

    fn write(&self, held: &mut HeldLease) -> Result<(), Error> {
        let now = time_since_boot();
        held.was_expired |= held.age() > self.own_lifetime();
        let objects = self.storage.as_objects();
        objects.put_volatile(&held.name, held.object.to_string().as_bytes())?;
        held.renewed_at = now;
        Ok(())
    }

    /// Returns the time for which the writer counts on its lease after a renewal. Others count on
    /// it for longer, because the clocks of two servers may differ.
    fn own_lifetime(&self) -> Duration {
        self.lifetime / 3
    }

    fn renewal_wait(&self) -> Duration {
        (self.lifetime / RENEWALS_PER_LIFETIME).max(CANCEL_POLL)
    }

    fn start_renewals(self: &Arc<Self>) {
        let shared = Arc::downgrade(self);
        let wait = self.renewal_wait();
        let renew = move || renew_until_the_end(&shared, wait);
        // Without a thread, the lease expires, and the writer checks everything again.
        let _ = thread::Builder::new()
            .name("floe-lease".into())
            .spawn(renew);
    }

    fn renew(self: &Arc<Self>, state: &mut State) -> Result<(), Error> {
        if let Some(held) = &mut state.lease {
            self.write(held)?;
        }
        self.learn_plan(state, FirstNeeds::All)?;
        self.hold_again_if_expired(state)
    }

    /// Removes the lease. A user who may not delete objects writes that it has ended.
    fn end(&self, name: &str) {
        let (sender, replies) = std::sync::mpsc::channel();
        self.storage.delete(
            vec![name.to_owned()],
            Box::new(move |done| _ = sender.send(done)),
        );
        if let Ok(Err(error)) = replies.recv_timeout(END_WAIT_MAX)
            && is_refusal(&error)
        {
            let ended = Lease {
                lifetime: 0,
                plan: None,
                needs: Default::default(),
            };
            let objects = self.storage.as_objects();
            // Otherwise it expires.
            let _ = objects.put_volatile(name, ended.to_string().as_bytes());
        }
    }
}

/// Renews a lease until it ends.
fn renew_until_the_end(shared: &Weak<Shared>, wait: Duration) {
    while let Some(shared) = shared.upgrade() {
        let mut state: MutexGuard<'_, State> = shared.state.lock();
        shared.ended.wait_for(&mut state, wait);
        let has_ended = shared.has_ended.load(Ordering::Relaxed);
        if has_ended || shared.cancel.is_raised() {
            return;
        }
        // The next renewal may succeed. If none does, the lease expires, and the writer checks
        // everything again.
        let _: Result<(), Error> = shared.renew(&mut state);
    }
}

fn plan_id(held: &HeldLease) -> &str {
    held.plan.as_ref().map_or("", |plan| &plan.id)
}

/// Whether the user may not write an object.
fn is_refusal(error: &Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match error {
        Error::File { source, .. } => {
            [PermissionDenied, ReadOnlyFilesystem].contains(&source.kind())
        }
        Error::Fetch { .. } | Error::OfKind(_) => !error.is_transient(),
        _ => false,
    }
}

/// How often a lease is renewed in its lifetime.
const RENEWALS_PER_LIFETIME: u32 = 15;

/// The end of a program waits so long for the end of its lease.
const END_WAIT_MAX: Duration = Duration::from_secs(3);

/// How many times in a row a lease is written anew.
const EXPIRIES_MAX: usize = 10;

/// How many times [`CANCEL_POLL`] passes between two looks at a plan.
const POLLS_PER_PLAN: u32 = 5;
