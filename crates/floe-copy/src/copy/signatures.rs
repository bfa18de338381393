//! Adds the signatures of the target's keys to paths that it has already.

use std::sync::mpsc;

use floe_format::{PathInfo, StorePath};
use floe_transfer::{
    CANCEL_POLL, CachePolicy, Error, Event, NarInfoResult, PathSpec, QUERIES_MAX, SigningTarget,
    Source,
};

use super::{ClosureCopy, CopySummary};

impl ClosureCopy<'_> {
    /// Signs the present paths that this copy has met, that lack a signature, and whose facts in
    /// the target are those of a source.
    pub(super) fn add_signatures(&self, summary: &mut CopySummary) -> Result<(), Error> {
        let Some(target) = self.target.as_signing() else {
            return Ok(());
        };
        let mut paths = target.unsigned_paths();
        for source in &self.sources.list {
            if paths.is_empty() {
                break;
            }
            let infos = self.infos(&**source, &paths)?;
            paths.retain(|path| infos.iter().all(|info| info.path != *path));
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

    /// Queries a source for paths, many at once. Leaves out those that it lacks.
    fn infos(&self, source: &dyn Source, paths: &[StorePath]) -> Result<Vec<PathInfo>, Error> {
        let (sender, receiver) = mpsc::channel();
        let mut unsent = paths.iter();
        let (mut pending, mut infos) = (0, Vec::with_capacity(paths.len()));
        loop {
            while pending < QUERIES_MAX
                && let Some(path) = unsent.next()
            {
                pending += 1;
                let sender = sender.clone();
                let reply = Box::new(move |result: NarInfoResult| {
                    // The receiver is gone only when the copy has failed.
                    let _: Result<(), _> = sender.send(result);
                });
                source.query(&PathSpec::Path(path.clone()), CachePolicy::Use, reply);
            }
            if pending == 0 {
                return Ok(infos);
            }
            self.check_cancelled()?;
            if let Ok(result) = receiver.recv_timeout(CANCEL_POLL) {
                pending -= 1;
                infos.extend(result?.narinfo.map(|narinfo| narinfo.info));
            }
        }
    }
}
