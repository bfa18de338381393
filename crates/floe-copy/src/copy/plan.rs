//! The plan of a round: the order of its paths, and whether they fit.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use floe_format::StorePath;
use floe_hash::hash_pool::HashPool;
use floe_transfer::{Error, Event, PlannedPath, Space};

use super::order;
use super::resolve::Resolved;
use super::summary::CopySummary;
use super::transfer::Transfer;
use super::{ClosureCopy, Round};

impl ClosureCopy<'_> {
    /// Plans the transfers of a round, and checks whether they can fit.
    pub(super) fn plan_round(
        &self,
        mut resolved: Resolved,
        transfer: &Transfer<'_, '_>,
        summary: &mut CopySummary,
    ) -> Result<(Round, Vec<Arc<PlannedPath>>), Error> {
        if summary.planned.is_empty() {
            self.discard_unneeded_trees(&resolved);
        }
        let round = Round {
            requested_paths: std::mem::take(&mut resolved.requested_paths),
            already_valid: resolved.already_valid,
            unavailable: std::mem::take(&mut resolved.unavailable),
            vanished: BTreeSet::new(),
        };
        let planned_paths = self.plan(resolved, summary);
        if summary.space.is_none() {
            summary.space = self.check_space(&planned_paths, transfer.first_space())?;
        }
        if !self.options.dry_run && (!planned_paths.is_empty() || summary.failures.is_empty()) {
            self.target.prepare()?;
        }
        Ok((round, planned_paths))
    }

    /// Deletes recovered trees that this copy does not need, because it may need their space. If a
    /// query failed, the copy does not know all paths that it needs, and keeps all trees.
    fn discard_unneeded_trees(&self, resolved: &Resolved) {
        let is_known = resolved.failures.is_empty() && resolved.unavailable.is_empty();
        if is_known {
            let is_wanted = |path: &StorePath| resolved.planned_paths.contains_key(path);
            self.discard_recovered(&is_wanted);
        }
    }

    /// Sorts the paths, largest first: they take longest, and small ones fill the gaps. A slow
    /// target gets references first.
    fn plan(&self, resolved: Resolved, summary: &mut CopySummary) -> Vec<Arc<PlannedPath>> {
        summary.unplanned += resolved.failures.len();
        for error in resolved.failures {
            summary.fail(self.events, error);
        }
        let mut planned_paths: Vec<Arc<PlannedPath>> =
            resolved.planned_paths.into_values().collect();
        planned_paths.sort_by_key(|planned| Reverse(planned.narinfo.info.nar_size));
        let facts = self.target.facts();
        if facts.needs_references_first {
            planned_paths = order::references_first(planned_paths, None);
        } else if facts.needs_core_per_worker {
            let workers = HashPool::sequential(planned_paths.len(), self.options.jobs).cores();
            planned_paths = order::references_first(planned_paths, Some(workers));
        }
        let planned = planned_paths.iter().map(|planned| {
            let info = &planned.narinfo.info;
            // If the local copy turns out to be wrong, the path is fetched all the same.
            let size = if planned.is_local() {
                Some(0)
            } else {
                planned.narinfo.download_size()
            };
            (info.path.clone(), info.nar_size, size)
        });
        summary.planned.extend(planned);
        let nar_sizes = planned_paths
            .iter()
            .map(|planned| planned.narinfo.info.nar_size);
        let fetched = planned_paths.iter().filter(|planned| !planned.is_local());
        let file_sizes = fetched.filter_map(|planned| planned.narinfo.file_size);
        self.events.event(Event::Planned {
            paths: planned_paths.len(),
            // A narinfo may claim any size, so the sums must not overflow.
            nar_bytes: nar_sizes.fold(0, u64::saturating_add),
            download_bytes: file_sizes.fold(0, u64::saturating_add),
        });
        planned_paths
    }

    /// Estimates the needed and the free space. Fails if the paths cannot fit, except in a dry run.
    /// `before` is the estimate before the first early path, whose files take space already.
    fn check_space(
        &self,
        planned_paths: &[Arc<PlannedPath>],
        before: Option<&Space>,
    ) -> Result<Option<Space>, Error> {
        let (check, dry_run) = (self.options.check_space, self.options.dry_run);
        if planned_paths.is_empty() || !(check || dry_run) {
            return Ok(None);
        }
        let Some(mut space) = self.estimate_space(planned_paths)? else {
            return Ok(None);
        };
        if let Some(before) = before {
            space.file_system = before.file_system.clone();
        }
        for shortage in space.shortages().into_iter().filter(|_| check) {
            if shortage.is_certain && !dry_run {
                return Err(Error::NoSpace(Box::new(shortage)));
            }
            let shortage = &shortage;
            self.events.event(Event::LowSpace { shortage });
        }
        Ok(Some(space))
    }
}
