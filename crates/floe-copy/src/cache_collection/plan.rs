//! The plan of a collection, and the leases of pushes.

use std::collections::{BTreeSet, HashSet};
use std::thread::{self, Scope};
use std::time::Duration;

use floe_format::lease::{
    GC_FOLDER, LEASES_FOLDER, LIFETIME_MAX, Lease, NAMES_LEN_MAX, PLAN_OBJECT, Plan, PlanState,
    PlannedNames,
};
use floe_format::pin::{PIN_LEN_MAX, is_cache_id};
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
                // Until the plan is there.
                is_lost: true,
                has_ended: false,
            }),
            ended: Condvar::new(),
        };
        // A push that sees the plan finds the names.
        let names = PlannedNames(keys.clone()).to_string();
        if names.len() > NAMES_LEN_MAX {
            return Err(not_collected(
                "it has too many objects to delete at once; delete some with floe cache delete",
            ));
        }
        objects.put(&plan.names_object(), names.as_bytes(), &Expected::Any)?;
        let written = objects.put(
            PLAN_OBJECT,
            plan.text(PlanState::Waiting).as_bytes(),
            &expected,
        )?;
        if written == Written::Conflict {
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
        let found = self.current()?.filter(|found| self.is_own(found));
        let found = found.ok_or_else(|| running(None))?;
        let mut state = self.state.lock();
        state.version = found.version;
        state.is_lost = false;
        Ok(())
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
        // Another collection may have replaced the plan, and the state may not tell.
        let is_there = match self.current() {
            Ok(Some(found)) if self.is_own(&found) => {
                let expected = found.version.map_or(Expected::Any, Expected::Version);
                let deleted = self.objects.delete(PLAN_OBJECT, &expected);
                !matches!(deleted, Ok(Written::Yes))
            }
            Ok(_) => false,
            Err(_) => true,
        };
        // A plan that stays expires, and the next collection removes it. Until then, pushes read
        // its names.
        if !is_there {
            let _ = self.objects.delete(&self.names_object(), &Expected::Any);
        }
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
    let plan = Plan::parse(&found.contents);
    let lifetime = plan.as_ref().map_or(LIFETIME_MAX, |plan| plan.lifetime);
    let Some(rest) = Duration::from_secs(lifetime.into()).checked_sub(found.age()) else {
        return Ok(());
    };
    match plan {
        Ok(_) => Err(running(Some(rest))),
        Err(error) => Err(not_collected(format!(
            "its object {PLAN_OBJECT} cannot be used: {error}; perhaps a newer floe collects it; \
             delete the object if none does"
        ))),
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
        let mut leases = Leases {
            valid: Vec::new(),
            expired: Vec::new(),
        };
        for name in names.into_iter().filter(|name| !name.contains('/')) {
            // A file that a writer renames in a moment, or has left when it was killed.
            let is_unfinished = name.starts_with('.');
            if !is_unfinished && !is_cache_id(&name) {
                continue;
            }
            let name = format!("{LEASES_FOLDER}{name}");
            let found = objects.get_large(&name, NAMES_LEN_MAX, of.cancel)?;
            let Some(found) = found else { continue };
            let lease = Lease::parse(&found.contents);
            let lifetime = match &lease {
                _ if is_unfinished => of.cache.lease_lifetime(),
                Ok(lease) => lease.lifetime,
                Err(_) => LIFETIME_MAX,
            };
            if lifetime == 0 || found.age() > Duration::from_secs(lifetime.into()) {
                leases.expired.push(name);
                continue;
            }
            if is_unfinished {
                continue;
            }
            let lease = lease.map_err(|error| {
                not_collected(format!(
                    "its lease {name} cannot be used: {error}; perhaps a newer floe pushes; delete \
                     it if none does"
                ))
            })?;
            leases.valid.push(lease);
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
        let names = self.cache.objects().list(GC_FOLDER, self.cancel)?;
        for name in names.unwrap_or_default() {
            let name = format!("{GC_FOLDER}{name}");
            let is_own = plan.is_some_and(|plan| name == plan.names_object());
            if is_own || name == PLAN_OBJECT {
                continue;
            }
            // Another collection may announce its plan in a moment.
            let found = self.cache.objects().get_large(&name, 1, self.cancel)?;
            let lifetime = Duration::from_secs(self.cache.lease_lifetime().into());
            let is_old = |found: NamedObject| found.age() > lifetime;
            old.extend(found.is_some_and(is_old).then_some(name));
        }
        self.cache.delete(&old, &|| self.check_cancelled())
    }
}
