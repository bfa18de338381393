//! A model of the collection of a cache beside a push. A checker visits all orders of their steps,
//! with kills, pauses, clocks that differ and lists that lag.
//!
//! The cache has an old path `dependency` that no pin needs. A push publishes `referrer`, which
//! needs it. A tick is five minutes: the difference of two clocks, and the longest lag of a list.
//! The names of the steps are those of `floe-copy/cache_collection` and
//! `floe-cache/writer/lease`.

mod world;

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use world::{Collection, LAG, LIFETIME, OWN_LIFETIME, Push, Time, World};

/// The most pushes and collections that begin.
const PUSHES: u8 = 2;
const COLLECTIONS: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    Tick,
    /// A step of the push. With `sees_late`, the server says as early as it may that a plan has
    /// expired.
    Push {
        sees_late: bool,
    },
    RenewLease {
        sees_late: bool,
    },
    /// A step of the collection. With `sees_late`, the server says as early as it may that a lease
    /// or a plan has expired, and lists a new lease as late as it may.
    Collect {
        sees_late: bool,
    },
    RenewPlan,
    KillPush,
    KillCollection,
    StartPush,
    StartCollection,
}

/// The protocol, perhaps without one of its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Protocol {
    Whole,
    /// A push does not name what it needs in its lease.
    WithoutNeeds,
    /// A push does not read the plan again after it has named what it needs.
    WithoutSecondReading,
    /// A collection reads the leases at once after it has said that it deletes.
    WithoutSettling,
    /// A collection does not list the cache again.
    WithoutSecondLook,
    /// Owners believe their lease and their plan as long as others do.
    WithoutMargin,
    /// A push that writes an expired lease goes on.
    WithoutNewStart,
}

impl Protocol {
    fn own_lifetime(self) -> Time {
        match self {
            Protocol::WithoutMargin => LIFETIME,
            _ => OWN_LIFETIME,
        }
    }

    fn settle(self) -> Time {
        match self {
            Protocol::WithoutSettling => 0,
            _ => LAG,
        }
    }
}

/// The property that no collection may break.
const CLOSED: &str = "a published path has its references";

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            protocol: *self,
            time: 0,
            dependency: Some(0),
            has_referrer: false,
            lease: None,
            plan: None,
            push: Push::Ended,
            renewal: None,
            marked: None,
            collection: Collection::Ended,
            pushes: 0,
            collections: 0,
            has_lapsed: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.may_tick() {
            actions.push(Action::Tick);
        }
        if world.push == Push::Ended {
            if world.pushes < PUSHES && !world.has_referrer {
                actions.push(Action::StartPush);
            }
        } else {
            let late = [false, true];
            if world.renewal.is_none() {
                actions.extend(late.map(|sees_late| Action::Push { sees_late }));
            }
            if world.renewal.is_some() || world.holds_lease() {
                actions.extend(late.map(|sees_late| Action::RenewLease { sees_late }));
            }
            actions.push(Action::KillPush);
        }
        if world.collection == Collection::Ended {
            if world.collections < COLLECTIONS {
                actions.push(Action::StartCollection);
            }
        } else {
            let late = [false, true];
            actions.extend(late.map(|sees_late| Action::Collect { sees_late }));
            if world.holds_plan() {
                actions.push(Action::RenewPlan);
            }
            actions.push(Action::KillCollection);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Tick => next.time += 1,
            Action::Push { sees_late } => next.push(sees_late),
            Action::RenewLease { sees_late } => next.renew_lease(sees_late),
            Action::Collect { sees_late } => next.collect(sees_late),
            Action::RenewPlan => {
                if let Some(plan) = &mut next.plan {
                    plan.written = next.time;
                }
            }
            Action::KillPush => {
                next.push = Push::Ended;
                next.renewal = None;
                next.has_lapsed = false;
            }
            Action::KillCollection => next.collection = Collection::Ended,
            Action::StartPush => {
                next.pushes += 1;
                // The lease of a killed push has another name, and protects nothing.
                next.lease = None;
                next.push = Push::WriteLease;
            }
            Action::StartCollection => {
                next.collections += 1;
                next.collection = Collection::Mark;
            }
        }
        if *self == Protocol::WithoutNeeds
            && let Some(lease) = &mut next.lease
        {
            lease.needs_dependency = false;
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        vec![
            Property::always(CLOSED, |_, world: &World| {
                !world.has_referrer || world.dependency.is_some()
            }),
            Property::sometimes("the collection deletes", |_, world: &World| {
                world.dependency.is_none()
            }),
            Property::sometimes("a push waits", |_, world: &World| {
                matches!(world.push, Push::WaitForEnd(_))
            }),
            Property::sometimes("a lease keeps a path", |_, world: &World| {
                matches!(world.collection, Collection::ListAgain { is_needed: true })
            }),
            Property::sometimes("a push writes the path again", |_, world: &World| {
                world.has_referrer && world.dependency != Some(0)
            }),
        ]
    }
}

#[test]
fn no_order_of_steps_takes_a_reference_from_a_published_path() {
    let checker = Protocol::Whole.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    assert!(checker.unique_state_count() > 100_000);
}

/// The checker finds what a missing rule does.
#[test]
fn each_rule_is_needed() {
    for protocol in [
        Protocol::WithoutNeeds,
        Protocol::WithoutSecondReading,
        Protocol::WithoutSettling,
        Protocol::WithoutSecondLook,
        Protocol::WithoutMargin,
        Protocol::WithoutNewStart,
    ] {
        let finished = HasDiscoveries::AnyFailures;
        let checker = protocol.checker().threads(2).finish_when(finished);
        let checker = checker.spawn_bfs().join();
        let lost = checker.discovery(CLOSED);
        assert!(lost.is_some(), "{protocol:?}");
    }
}
