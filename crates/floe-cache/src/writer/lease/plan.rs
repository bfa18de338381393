//! Reads the plan of a collection.

use std::time::Duration;

use floe_format::lease::{LIFETIME_MAX, NAMES_LEN_MAX, PLAN_OBJECT, Plan, PlanState, PlannedNames};
use floe_format::pin::PIN_LEN_MAX;
use floe_transfer::{Cancel, Error};

use crate::error::CacheError;
use crate::storage::WriteStorage;

/// A plan that the writer has read.
pub(super) struct KnownPlan {
    pub(super) id: String,
    pub(super) names: PlannedNames,
}

/// The collection of a cache that runs now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PlanNow {
    /// None runs.
    None,
    /// The one with this identifier waits for writers.
    Waiting(String),
    /// The one with this identifier deletes.
    Deleting(String),
}

/// Reads the plan. One that no collection renews does not count.
///
/// Errors: those of the storage; [`CacheError::SmallObject`].
pub(super) fn read_plan(storage: &dyn WriteStorage, cancel: &Cancel) -> Result<PlanNow, Error> {
    let objects = storage.as_objects();
    let Some(found) = objects.get_large(PLAN_OBJECT, PIN_LEN_MAX, cancel)? else {
        return Ok(PlanNow::None);
    };
    let plan = Plan::parse(&found.contents);
    let lifetime = plan.as_ref().map_or(LIFETIME_MAX, |plan| plan.lifetime);
    if found.age() > Duration::from_secs(lifetime.into()) {
        return Ok(PlanNow::None);
    }
    let plan = plan.map_err(|error| damaged(storage, PLAN_OBJECT, error))?;
    Ok(match plan.state {
        PlanState::Waiting => PlanNow::Waiting(plan.id),
        PlanState::Deleting => PlanNow::Deleting(plan.id),
    })
}

/// Reads the names of a plan; `None` if the plan has ended.
///
/// Errors: as [`read_plan`].
pub(super) fn read_names(
    storage: &dyn WriteStorage,
    id: &str,
    cancel: &Cancel,
) -> Result<Option<PlannedNames>, Error> {
    let name = format!("gc/{id}");
    let found = storage
        .as_objects()
        .get_large(&name, NAMES_LEN_MAX, cancel)?;
    let names = found.map(|found| PlannedNames::parse(&found.contents));
    names
        .transpose()
        .map_err(|error| damaged(storage, &name, error))
}

fn damaged(storage: &dyn WriteStorage, name: &str, error: impl ToString) -> Error {
    CacheError::SmallObject {
        url: storage.name(),
        name: name.to_owned(),
        reason: error.to_string(),
    }
    .into()
}
