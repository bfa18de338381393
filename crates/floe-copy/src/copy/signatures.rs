//! Adds the signatures of the target's keys to paths that it has already.

use floe_format::PathInfo;
use floe_transfer::{Error, Event, PathSpec, SigningTarget};

use super::{ClosureCopy, CopySummary};

impl ClosureCopy<'_> {
    /// Signs the present paths that this copy has met, that lack a signature, and whose facts in
    /// the target are those of a source.
    pub(super) fn add_signatures(&self, summary: &mut CopySummary) -> Result<(), Error> {
        // The paths that a repair leaves alone were not checked.
        let is_repair = self.options.replaced.is_some();
        let Some(target) = self.target.as_signing().filter(|_| !is_repair) else {
            return Ok(());
        };
        let mut paths = target.unsigned_paths();
        for source in &self.sources.list {
            if paths.is_empty() {
                break;
            }
            let specs: Vec<PathSpec> = paths.iter().cloned().map(PathSpec::Path).collect();
            let options = self.options;
            let limits = (options.closure_limit, &options.cancel);
            let found = source.query_closure(&specs, false, limits)?.found;
            paths.retain(|path| !found.contains_key(path));
            let infos: Vec<PathInfo> = found.into_values().map(|it| it.info).collect();
            self.sign(target, &infos, summary)?;
        }
        Ok(())
    }

    fn sign(
        &self,
        target: &dyn SigningTarget,
        infos: &[PathInfo],
        summary: &mut CopySummary,
    ) -> Result<(), Error> {
        let outcome = target.add_signatures(infos)?;
        summary.signed += outcome.signed.len() as u64;
        for (path, what) in &outcome.different {
            self.events.event(Event::NotSigned { path, what });
        }
        Ok(())
    }
}
