//! The request `verify`.

use std::num::NonZeroUsize;

use floe_format::StorePath;
use floe_messages::{ProblemKind, VerifyProblem, VerifyReply, VerifyRequest};
use floe_store::{ProblemCause, StoreReader};
use floe_transfer::PathSpec;

use super::{HandlerContext, local_store};
use crate::completion::JobOutcome;

impl HandlerContext<'_> {
    pub(super) fn verify(&self) -> JobOutcome {
        let request: VerifyRequest<'_> = self.request()?;
        let store = StoreReader::open(local_store(request.store, request.store_dir)?)?;
        let paths: Vec<StorePath> = request
            .paths
            .iter()
            .map(|text| PathSpec::parse(text, &store.layout().store_dir)?.find_in_store(&store))
            .collect::<Result<_, _>>()?;
        let jobs = request.jobs.and_then(|jobs| usize::try_from(jobs).ok());
        let jobs = jobs.and_then(NonZeroUsize::new);
        let found = store.verify(&paths, jobs, &*self.job.state)?;
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
        ProblemCause::DamagedRow(_) => ProblemKind::DamagedRow,
        ProblemCause::ModifiedLink(_) => ProblemKind::ModifiedLink,
    }
}
