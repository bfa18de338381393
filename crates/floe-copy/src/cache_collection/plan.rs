//! The plan of a collection, and the leases of pushes.

use std::collections::{BTreeSet, HashSet};
use std::thread::{self, Scope};
use std::time::Duration;

use floe_format::lease::{
    GC_FOLDER, LEASES_FOLDER, Lease, NAMES_LEN_MAX, PLAN_OBJECT, Plan, PlanState, PlannedNames,
};
use floe_format::pin::PIN_LEN_MAX;
use floe_transfer::{
    Cancel, Error, Expected, NamedObject, NamedObjects, Written, random_number, time_since_boot,
};
use parking_lot::{Condvar, Mutex};

use super::CacheCollection;

/// A plan that is in the cache. The end of the value removes it.
pub(super) struct HeldPlan<'a> {
    objects: &'a dyn NamedObjects,
    id: String,
    lifetime: Duration,
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    plan: PlanState,
    /// The version of the object, if the store tells it.
    version: Option<String>,
    /// When the last renewal began, since the start of the machine.
    renewed_at: Duration,
    /// Whether another collection has replaced the plan.
    is_lost: bool,
    has_ended: bool,
}

impl State {
    fn expected(&self) -> Expected {
        let version = self.version.clone();
        version.map_or(Expected::Any, Expected::Version)
    }
}

/// How often a plan is written whose version is not known.
const ATTEMPTS: usize = 3;

impl<'a> HeldPlan<'a> {
    /// Writes the plan, and the keys of the objects that will be deleted.
    ///
    /// Errors: another collection runs; those of the storage.
    pub(super) fn announce(
        of: &CacheCollection<'a>,
        keys: &BTreeSet<String>,
    ) -> Result<HeldPlan<'a>, Error> {
        let objects = of.cache.objects();
        let id = format!("{:016x}{:016x}", random_number(), random_number());
        let lifetime = Duration::from_secs(of.cache.lease_lifetime().into());
        let before = objects.get_large(PLAN_OBJECT, PIN_LEN_MAX, of.cancel)?;
        let expected = match &before {
            None => Expected::Absent,
            Some(found) => {
                refuse_running(found)?;
                let version = found.version.clone();
                version.map_or(Expected::Any, Expected::Version)
            }
        };
        let plan = HeldPlan {
            objects,
            id,
            lifetime,
            state: Mutex::new(State {
                plan: PlanState::Waiting,
                version: None,
                renewed_at: time_since_boot(),
                is_lost: false,
                has_ended: false,
            }),
            ended: Condvar::new(),
        };
        // A push that sees the plan finds the names.
        let names = PlannedNames(keys.clone()).to_string();
        objects.put(&plan.names_object(), names.as_bytes(), &Expected::Any)?;
        let written = objects.put(
            PLAN_OBJECT,
            plan.text(PlanState::Waiting).as_bytes(),
            &expected,
        )?;
        if written == Written::Conflict {
            plan.state.lock().is_lost = true;
            return Err(running(None));
        }
        // The store may know no conditions, and two collections may have written at once.
        plan.adopt_version()?;
        Ok(plan)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Renews the plan until the value that is returned ends.
    pub(super) fn start_renewals<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> Renewals<'scope, 'a> {
        let renew = || {
            let mut state = self.state.lock();
            while !state.has_ended {
                self.ended.wait_for(&mut state, self.lifetime / 15);
                if !state.has_ended {
                    // The next one may succeed. Otherwise the plan expires.
                    let _: Result<(), Error> = self.write(&mut state);
                }
            }
        };
        // Without a thread, the plan expires, and the collection ends with an error.
        let _ = thread::Builder::new().spawn_scoped(scope, renew);
        Renewals(self)
    }

    /// Says what the collection does from now on.
    pub(super) fn set_state(&self, plan: PlanState) -> Result<(), Error> {
        self.check_held()?;
        let mut state = self.state.lock();
        state.plan = plan;
        self.write(&mut state)?;
        drop(state);
        self.check_held()
    }

    /// Fails if the plan may no longer count for pushes. The collection assumes a shorter life than
    /// pushes do, in case that the clocks of the servers differ.
    pub(super) fn check_held(&self) -> Result<(), Error> {
        let state = self.state.lock();
        if state.is_lost {
            return Err(running(None));
        }
        if self.has_expired(&state) {
            let reason = "the plan of the collection could not be renewed in time; try again";
            return Err(not_collected(reason));
        }
        Ok(())
    }

    fn has_expired(&self, state: &State) -> bool {
        time_since_boot().saturating_sub(state.renewed_at) > self.lifetime / 3
    }

    fn text(&self, state: PlanState) -> String {
        let plan = Plan {
            id: self.id.clone(),
            state,
            lifetime: u32::try_from(self.lifetime.as_secs()).unwrap_or(u32::MAX),
        };
        plan.to_string()
    }

    pub(super) fn names_object(&self) -> String {
        format!("{GC_FOLDER}{}", self.id)
    }

    /// Writes the plan again, if it is still that of this collection.
    fn write(&self, state: &mut State) -> Result<(), Error> {
        let text = self.text(state.plan);
        for _ in 0..ATTEMPTS {
            let began = time_since_boot();
            // Pushes may already ignore the plan.
            if self.has_expired(state) {
                return Ok(());
            }
            let (Written::Yes | Written::Conflict) =
                self.objects
                    .put(PLAN_OBJECT, text.as_bytes(), &state.expected())?;
            let found = self.current()?;
            let Some(found) = found.filter(|found| self.is_own(found)) else {
                state.is_lost = true;
                return Ok(());
            };
            // The reply to an earlier write may be lost, so that another version is there.
            let is_written = found.contents == text.as_bytes();
            state.version = found.version;
            if is_written {
                state.renewed_at = began;
                return Ok(());
            }
        }
        Err(not_collected("its plan cannot be written"))
    }

    fn adopt_version(&self) -> Result<(), Error> {
        let found = self.current()?;
        match found {
            Some(found) if self.is_own(&found) => {
                self.state.lock().version = found.version;
                Ok(())
            }
            _ => {
                self.state.lock().is_lost = true;
                Err(running(None))
            }
        }
    }

    fn current(&self) -> Result<Option<NamedObject>, Error> {
        let cancel = Cancel::default();
        self.objects.get_large(PLAN_OBJECT, PIN_LEN_MAX, &cancel)
    }

    fn is_own(&self, found: &NamedObject) -> bool {
        Plan::parse(&found.contents).is_ok_and(|plan| plan.id == self.id)
    }
}

impl Drop for HeldPlan<'_> {
    fn drop(&mut self) {
        let state = self.state.lock();
        if !state.is_lost {
            let expected = state.expected();
            // Otherwise it expires, and the next collection removes it.
            let _ = self.objects.delete(PLAN_OBJECT, &expected);
        }
        let _ = self.objects.delete(&self.names_object(), &Expected::Any);
    }
}

/// The thread that renews a plan. The end of the value ends it.
pub(super) struct Renewals<'scope, 'a>(&'scope HeldPlan<'a>);

impl Drop for Renewals<'_, '_> {
    fn drop(&mut self) {
        self.0.state.lock().has_ended = true;
        self.0.ended.notify_all();
    }
}

/// Refuses to replace the plan of a collection that runs.
fn refuse_running(found: &NamedObject) -> Result<(), Error> {
    let plan = Plan::parse(&found.contents).map_err(|error| {
        not_collected(format!("its object {PLAN_OBJECT} cannot be used: {error}"))
    })?;
    let lifetime = Duration::from_secs(plan.lifetime.into());
    match lifetime.checked_sub(found.age()) {
        None => Ok(()),
        Some(rest) => Err(running(Some(rest))),
    }
}

fn running(rest: Option<Duration>) -> Error {
    let rest = rest.map_or_else(String::new, |rest| {
        let seconds = rest.as_secs() + 1;
        format!("; if it was killed, its plan expires in {seconds} s")
    });
    not_collected(format!("another collection of it runs{rest}"))
}

pub(super) fn not_collected(reason: impl Into<String>) -> Error {
    Error::NotCollected {
        reason: reason.into(),
    }
}

/// The leases of a cache.
pub(super) struct Leases {
    /// Those that count.
    valid: Vec<Lease>,
    /// The names of the objects of the others.
    pub(super) expired: Vec<String>,
}

impl Leases {
    /// Reads all leases.
    ///
    /// Errors: those of the storage; a lease that does not parse, perhaps of a newer floe.
    pub(super) fn read(of: &CacheCollection<'_>) -> Result<Leases, Error> {
        let objects = of.cache.objects();
        let names = objects.list(LEASES_FOLDER, of.cancel)?.unwrap_or_default();
        let names = names.into_iter().filter(|name| !name.starts_with('.'));
        let names = names.map(|name| format!("{LEASES_FOLDER}{name}"));
        let mut leases = Leases {
            valid: Vec::new(),
            expired: Vec::new(),
        };
        for name in names {
            let found = objects.get_large(&name, NAMES_LEN_MAX, of.cancel)?;
            let Some(found) = found else { continue };
            let lease = Lease::parse(&found.contents);
            let lease = lease.map_err(|error| {
                not_collected(format!(
                    "its lease {name} cannot be used: {error}; perhaps a newer floe pushes"
                ))
            })?;
            if found.age() > Duration::from_secs(lease.lifetime.into()) || lease.lifetime == 0 {
                leases.expired.push(name);
            } else {
                leases.valid.push(lease);
            }
        }
        Ok(leases)
    }

    /// Returns the number of leases that do not name a plan.
    pub(super) fn unaware(&self, id: &str) -> usize {
        let unaware = |lease: &&Lease| lease.plan.as_deref() != Some(id);
        self.valid.iter().filter(unaware).count()
    }

    /// Returns the keys of all objects that pushes need.
    pub(super) fn needs(&self) -> HashSet<String> {
        let needs = self.valid.iter().flat_map(|lease| &lease.needs);
        needs.cloned().collect()
    }
}

impl CacheCollection<'_> {
    /// Removes expired leases, and the names of plans of killed collections.
    pub(super) fn remove_expired(&self, plan: Option<&HeldPlan<'_>>) -> Result<(), Error> {
        let mut old = Leases::read(self)?.expired;
        // Without an own plan, another collection may run.
        if let Some(plan) = plan {
            let names = self.cache.objects().list(GC_FOLDER, self.cancel)?;
            let names = names.unwrap_or_default().into_iter();
            let names = names.map(|name| format!("{GC_FOLDER}{name}"));
            old.extend(names.filter(|name| *name != PLAN_OBJECT && *name != plan.names_object()));
        }
        self.cache.delete(&old, self.cancel)
    }
}
