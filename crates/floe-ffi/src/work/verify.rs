//! Verification of a local store.

use std::num::NonZeroUsize;

use floe_engine::{Cancel, PathSpec};
use floe_format::{PathInfo, StorePath};
use floe_messages::{FaultKind, VerifyFault, VerifyReply, VerifyRequest};
use floe_store::{Fault, StoreReader, Watch};

use super::{Done, Work, local_store, store_dir};
use crate::progress::ProgressCell;

struct Watcher<'a> {
    cancel: &'a Cancel,
    progress: &'a ProgressCell,
}

impl Watch for Watcher<'_> {
    fn begins(&self, paths: u64, nar_bytes: u64) {
        self.progress.plan(paths, nar_bytes, 0);
    }

    fn is_done(&self, info: &PathInfo) {
        self.progress.path_done(info.nar_size);
    }

    fn goes_on(&self) -> bool {
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
            .faults
            .iter()
            .map(|fault| (kind(fault), fault.subject(dir), fault.describe(dir)))
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

fn kind(fault: &Fault) -> FaultKind {
    match fault {
        Fault::NotValid(_) => FaultKind::NotValid,
        Fault::Disappeared { .. } => FaultKind::Disappeared,
        Fault::Modified { .. } => FaultKind::Modified,
        Fault::WrongSize { .. } => FaultKind::WrongSize,
        Fault::Unreadable { .. } => FaultKind::Unreadable,
        Fault::ModifiedLink { .. } => FaultKind::ModifiedLink,
    }
}
