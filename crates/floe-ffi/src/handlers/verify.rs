//! The request `verify`.

use std::num::NonZeroUsize;

use floe_format::{PathInfo, StorePath};
use floe_messages::{ProblemKind, VerifyProblem, VerifyReply, VerifyRequest};
use floe_store::{ProblemCause, StoreReader, VerifyObserver};
use floe_transfer::{Cancel, PathSpec};

use super::{HandlerContext, HandlerResult, local_store, store_dir};
use crate::progress::ProgressCell;

struct ProgressObserver<'a> {
    cancel: &'a Cancel,
    progress: &'a ProgressCell,
}

impl VerifyObserver for ProgressObserver<'_> {
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

impl HandlerContext<'_> {
    pub(super) fn verify(&self) -> HandlerResult {
        let request: VerifyRequest<'_> = self.request()?;
        let dir = store_dir(request.store_dir)?;
        let store = StoreReader::open(local_store(request.store, dir.as_ref())?)?;
        let paths: Vec<StorePath> = request
            .paths
            .iter()
            .map(|text| PathSpec::parse(text, &store.layout().store_dir)?.find_in_store(&store))
            .collect::<Result<_, _>>()?;
        let jobs = request.jobs.and_then(|jobs| usize::try_from(jobs).ok());
        let observer = ProgressObserver {
            cancel: self.cancel(),
            progress: &self.job.progress,
        };
        let found = store.verify(&paths, jobs.and_then(NonZeroUsize::new), &observer)?;
        let messages: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
        let problems = found.problems.iter().zip(&messages);
        let problems: Vec<VerifyProblem<'_>> = problems
            .map(|(problem, message)| VerifyProblem {
                kind: kind(&problem.cause),
                subject: &problem.path,
                message,
            })
            .collect();
        self.reply(&VerifyReply {
            paths: found.paths,
            nar_bytes: found.nar_bytes,
            links: found.links,
            problems: problems.into(),
        })
    }
}

fn kind(cause: &ProblemCause) -> ProblemKind {
    match cause {
        ProblemCause::NotValid => ProblemKind::NotValid,
        ProblemCause::Disappeared { .. } => ProblemKind::Disappeared,
        ProblemCause::Modified { .. } => ProblemKind::Modified,
        ProblemCause::WrongSize { .. } => ProblemKind::WrongSize,
        ProblemCause::Unreadable(_) => ProblemKind::Unreadable,
        ProblemCause::ModifiedLink(_) => ProblemKind::ModifiedLink,
    }
}
