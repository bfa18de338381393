//! Verification of a local store.

use std::num::NonZeroUsize;

use floe_engine::{Cancel, PathSpec};
use floe_format::{PathInfo, StorePath};
use floe_messages::{FaultKind, VerifyFault, VerifyReply, VerifyRequest};
use floe_store::{StoreReader, VerifyObserver, VerifyProblem as Problem};

use super::{Done, Work, local_store, store_dir};
use crate::progress::ProgressCell;

struct Watcher<'a> {
    cancel: &'a Cancel,
    progress: &'a ProgressCell,
}

impl VerifyObserver for Watcher<'_> {
    fn started(&self, paths: u64, nar_bytes: u64) {
        self.progress.plan(paths, nar_bytes, 0);
    }

    fn path_done(&self, info: &PathInfo) {
        self.progress.path_done(info.nar_size);
    }

    fn should_continue(&self) -> bool {
        !self.cancel.is_raised()
    }
}

impl Work<'_> {
    pub(super) fn verify(&self) -> Done {
        let request: VerifyRequest<'_> = self.request()?;
        let dir = store_dir(request.store_dir)?;
        let store = StoreReader::open(local_store(request.store, dir.as_ref())?)?;
        let paths: Vec<StorePath> = request
            .paths
            .iter()
            .map(|text| PathSpec::parse(text, &store.layout().store_dir)?.find_in_store(&store))
            .collect::<Result<_, _>>()?;
        let jobs = request.jobs.and_then(|jobs| usize::try_from(jobs).ok());
        let watcher = Watcher {
            cancel: self.cancel(),
            progress: &self.job.progress,
        };
        let found = store.verify(&paths, jobs.and_then(NonZeroUsize::new), &watcher)?;
        let dir = &store.layout().store_dir;
        let texts: Vec<(FaultKind, String, String)> = found
            .problems
            .iter()
            .map(|problem| (kind(problem), problem.subject(dir), problem.describe(dir)))
            .collect();
        let faults: Vec<VerifyFault<'_>> = texts
            .iter()
            .map(|(kind, subject, message)| VerifyFault {
                kind: *kind,
                subject,
                message,
            })
            .collect();
        self.reply(&VerifyReply {
            paths: found.paths,
            nar_bytes: found.nar_bytes,
            links: found.links,
            faults: faults.into(),
        })
    }
}

fn kind(problem: &Problem) -> FaultKind {
    match problem {
        Problem::NotValid(_) => FaultKind::NotValid,
        Problem::Disappeared { .. } => FaultKind::Disappeared,
        Problem::Modified { .. } => FaultKind::Modified,
        Problem::WrongSize { .. } => FaultKind::WrongSize,
        Problem::Unreadable { .. } => FaultKind::Unreadable,
        Problem::ModifiedLink { .. } => FaultKind::ModifiedLink,
    }
}
