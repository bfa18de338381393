//! The state of the model, and the steps of pushes and collections.

use super::Protocol;

pub(super) type Time = u8;

/// For how many ticks after its last write others believe a lease or a plan.
pub(super) const LIFETIME: Time = 3;
/// For how many ticks its owner believes it.
pub(super) const OWN_LIFETIME: Time = 1;
/// How many ticks pass at most between the check of an owner and its request.
pub(super) const PAUSE_MAX: Time = 1;
/// How many ticks the clocks of two servers differ at most.
pub(super) const SKEW: Time = 1;
/// For how many ticks a list may lack a new lease.
pub(super) const LAG: Time = 1;
/// How many ticks a collection waits before it deletes.
pub(super) const GRACE: Time = 1;
/// The end of time.
pub(super) const TIME_MAX: Time = 7;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) protocol: Protocol,
    pub(super) time: Time,
    /// The number of the last write of the dependency.
    pub(super) dependency: Option<u8>,
    pub(super) has_referrer: bool,
    pub(super) lease: Option<Lease>,
    pub(super) plan: Option<Plan>,
    pub(super) push: Push,
    /// A step of the thread that renews the lease. The push waits for its end.
    pub(super) renewal: Option<Renewal>,
    /// The write of the dependency that the collection has marked.
    pub(super) marked: Option<u8>,
    pub(super) collection: Collection,
    pub(super) pushes: u8,
    pub(super) collections: u8,
    /// Whether the push has written its lease after it had expired for itself.
    pub(super) has_lapsed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lease {
    pub(super) created: Time,
    pub(super) written: Time,
    pub(super) plan: Option<u8>,
    pub(super) needs_dependency: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Plan {
    /// The number of its collection.
    pub(super) id: u8,
    pub(super) is_deleting: bool,
    pub(super) written: Time,
}

/// The next step of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Push {
    WriteLease,
    ReadPlan,
    /// Names the plan and the dependency in the lease.
    Keep(u8),
    ReadPlanAgain(u8),
    WaitForEnd(u8),
    /// Names another plan, which is younger than the lease, and the dependency.
    NameAtOnce(u8),
    Query,
    /// Checks the lease before it publishes.
    Check {
        found: bool,
    },
    WriteDependency {
        checked: Time,
    },
    WriteReferrer {
        checked: Time,
    },
    EndLease,
    Ended,
}

/// The next step of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Renewal {
    ReadPlan,
    NamePlan(u8),
}

/// The next step of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Collection {
    Mark,
    Announce,
    Wait { since: Time },
    WaitForLeases,
    WriteDeleting,
    Settle { since: Time },
    WaitForLeasesAgain,
    ListAgain { is_needed: bool },
    Check,
    Delete { checked: Time },
    RemovePlan,
    Ended,
}

impl World {
    /// Whether a server says that a lease or a plan counts.
    fn counts(&self, written: Time, sees_late: bool) -> bool {
        let age = self.time - written;
        if sees_late {
            age + SKEW <= LIFETIME
        } else {
            age <= LIFETIME + SKEW
        }
    }

    /// Returns the plan that counts.
    fn read_plan(&self, sees_late: bool) -> Option<Plan> {
        self.plan
            .filter(|plan| self.counts(plan.written, sees_late))
    }

    /// Returns the leases that are listed and count.
    fn read_leases(&self, sees_late: bool) -> Option<Lease> {
        let is_listed = |lease: &Lease| !sees_late || self.time >= lease.created + LAG;
        let lease = self.lease.filter(is_listed);
        lease.filter(|lease| self.counts(lease.written, sees_late))
    }

    /// Whether the push may rely on its lease.
    pub(super) fn holds_lease(&self) -> bool {
        let written = self.lease.map(|lease| lease.written);
        written.is_some_and(|written| self.time - written <= self.protocol.own_lifetime())
    }

    /// Whether the collection may rely on its plan.
    pub(super) fn holds_plan(&self) -> bool {
        let own = self.plan.filter(|plan| plan.id == self.collections);
        own.is_some_and(|plan| self.time - plan.written <= self.protocol.own_lifetime())
    }

    fn write_lease(&mut self, plan: Option<u8>, needs_dependency: bool) {
        self.has_lapsed |= self.lease.is_some() && !self.holds_lease();
        let created = self.lease.map_or(self.time, |lease| lease.created);
        self.lease = Some(Lease {
            created,
            written: self.time,
            plan,
            needs_dependency,
        });
    }

    pub(super) fn push(&mut self, sees_late: bool) {
        let uses_lease = !matches!(
            self.push,
            Push::WriteLease
                | Push::EndLease
                | Push::WriteDependency { .. }
                | Push::WriteReferrer { .. }
        );
        let has_lapsed = self.has_lapsed && self.protocol != Protocol::WithoutNewStart;
        if uses_lease && (has_lapsed || !self.holds_lease()) {
            // Everything is checked again.
            self.push = Push::WriteLease;
            return;
        }
        self.push = match self.push {
            Push::WriteLease => {
                self.write_lease(None, false);
                self.has_lapsed = false;
                Push::ReadPlan
            }
            Push::ReadPlan => match self.read_plan(sees_late) {
                None => Push::Query,
                Some(plan) => Push::Keep(plan.id),
            },
            Push::Keep(id) => {
                self.write_lease(Some(id), true);
                match self.protocol {
                    Protocol::WithoutSecondReading => Push::Query,
                    _ => Push::ReadPlanAgain(id),
                }
            }
            Push::ReadPlanAgain(id) => match self.read_plan(sees_late) {
                Some(plan) if plan.id == id && plan.is_deleting => Push::WaitForEnd(id),
                Some(plan) if plan.id == id => Push::Query,
                Some(plan) => Push::NameAtOnce(plan.id),
                None => Push::Query,
            },
            Push::WaitForEnd(id) => match self.read_plan(sees_late) {
                Some(plan) if plan.id == id => Push::WaitForEnd(id),
                Some(plan) => Push::NameAtOnce(plan.id),
                None => Push::Query,
            },
            Push::NameAtOnce(id) => {
                self.write_lease(Some(id), true);
                Push::Query
            }
            Push::Query => Push::Check {
                found: self.dependency.is_some(),
            },
            Push::Check { found: true } => Push::WriteReferrer { checked: self.time },
            Push::Check { found: false } => Push::WriteDependency { checked: self.time },
            Push::WriteDependency { checked } => {
                self.dependency = Some(self.pushes + 1);
                Push::WriteReferrer { checked }
            }
            Push::WriteReferrer { .. } => {
                self.has_referrer = true;
                Push::EndLease
            }
            Push::EndLease | Push::Ended => {
                self.lease = None;
                Push::Ended
            }
        };
    }

    /// Whether the push has asked for the dependency.
    fn needs_dependency(&self) -> bool {
        !matches!(self.push, Push::WriteLease | Push::ReadPlan)
    }

    pub(super) fn renew_lease(&mut self, sees_late: bool) {
        self.renewal = match self.renewal {
            None => {
                if let Some(lease) = self.lease {
                    self.write_lease(lease.plan, lease.needs_dependency);
                }
                Some(Renewal::ReadPlan)
            }
            Some(Renewal::ReadPlan) => {
                let known = self.lease.and_then(|lease| lease.plan);
                let plan = self.read_plan(sees_late).map(|plan| plan.id);
                plan.filter(|id| known != Some(*id)).map(Renewal::NamePlan)
            }
            Some(Renewal::NamePlan(id)) => {
                self.write_lease(Some(id), self.needs_dependency());
                None
            }
        };
    }

    pub(super) fn collect(&mut self, sees_late: bool) {
        let id = self.collections;
        let is_announced = !matches!(
            self.collection,
            Collection::Mark
                | Collection::Announce
                | Collection::RemovePlan
                | Collection::Delete { .. }
        );
        if is_announced && !self.holds_plan() {
            self.collection = Collection::RemovePlan;
            return;
        }
        self.collection = match self.collection {
            Collection::Mark if self.has_referrer || self.dependency.is_none() => Collection::Ended,
            Collection::Mark => {
                self.marked = self.dependency;
                Collection::Announce
            }
            Collection::Announce => match self.read_plan(sees_late) {
                Some(_) => Collection::Ended,
                None => {
                    self.plan = Some(Plan {
                        id,
                        is_deleting: false,
                        written: self.time,
                    });
                    Collection::Wait { since: self.time }
                }
            },
            Collection::Wait { since } if self.time < since + GRACE => return,
            Collection::Wait { .. } => Collection::WaitForLeases,
            Collection::WaitForLeases => match self.read_leases(sees_late) {
                Some(lease) if lease.plan != Some(id) => return,
                _ => Collection::WriteDeleting,
            },
            Collection::WriteDeleting => {
                self.plan = Some(Plan {
                    id,
                    is_deleting: true,
                    written: self.time,
                });
                Collection::Settle { since: self.time }
            }
            Collection::Settle { since } if self.time < since + self.protocol.settle() => return,
            Collection::Settle { .. } => Collection::WaitForLeasesAgain,
            Collection::WaitForLeasesAgain => match self.read_leases(sees_late) {
                Some(lease) if lease.plan != Some(id) => return,
                lease => Collection::ListAgain {
                    is_needed: lease.is_some_and(|lease| lease.needs_dependency),
                },
            },
            Collection::ListAgain { is_needed } => {
                let is_rewritten = self.dependency != self.marked;
                let is_used = is_rewritten || self.has_referrer;
                let is_used = is_used && self.protocol != Protocol::WithoutSecondLook;
                if is_needed || is_used {
                    Collection::RemovePlan
                } else {
                    Collection::Check
                }
            }
            Collection::Check => Collection::Delete { checked: self.time },
            Collection::Delete { .. } => {
                self.dependency = None;
                Collection::RemovePlan
            }
            Collection::RemovePlan => {
                self.plan = self.plan.filter(|plan| plan.id != id);
                Collection::Ended
            }
            Collection::Ended => Collection::Ended,
        };
    }

    /// Whether time may pass: a program does not stand still between a check and its request.
    pub(super) fn may_tick(&self) -> bool {
        let checked = match self.push {
            Push::WriteDependency { checked } | Push::WriteReferrer { checked } => Some(checked),
            _ => None,
        };
        let deleting = match self.collection {
            Collection::Delete { checked } => Some(checked),
            _ => None,
        };
        let mut checks = checked.into_iter().chain(deleting);
        self.time < TIME_MAX && checks.all(|checked| self.time - checked < PAUSE_MAX)
    }
}
