//! The requests `install`, `copy` and `resolve`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use floe_copy::{CopyRequest, CopySummary, RequestedPaths, reuse_directory};
use floe_messages::{self as messages, CopyReply, PlannedPath, ResolveReply};
use floe_store::{LockWait, WriteOptions};
use floe_transfer::{CopyOptions, ErrorKind, Events, Reuse, ReuseBy, Target, UriContext};

use super::network::network_options;
use super::{HandlerContext, parse_store_uri, store_dir, translate, uri_context, usage};
use crate::completion::{Failure, JobError, JobOutcome, texts};

impl HandlerContext<'_> {
    /// Handles `install` and `copy`, which differ only in their source and target.
    pub(super) fn copy_paths(&self) -> JobOutcome {
        let (summary, target) = self.run_copy(false)?;
        let dir = target.store_dir();
        let paths: Vec<String> = summary
            .requested_paths
            .iter()
            .map(|path| dir.full_path(path))
            .collect();
        self.reply(&CopyReply {
            paths: texts(&paths),
            copied: summary.copied,
            download_bytes: summary.download_bytes,
            nar_bytes: summary.nar_bytes,
            reused: summary.reused,
            reused_nar_bytes: summary.reused_nar_bytes,
        })
    }

    pub(super) fn resolve(&self) -> JobOutcome {
        let (summary, target) = self.run_copy(true)?;
        let dir = target.store_dir();
        let planned = summary.planned.iter();
        let paths: Vec<String> = planned.map(|(path, ..)| dir.full_path(path)).collect();
        let planned = paths.iter().zip(&summary.planned);
        let planned: Vec<PlannedPath<'_>> = planned
            .map(|(path, &(_, nar_size, download_size))| PlannedPath {
                path,
                nar_size,
                download_size,
            })
            .collect();
        let space = summary.space.as_ref();
        self.reply(&ResolveReply {
            planned: planned.into(),
            write_bytes: space.map(|space| space.write_bytes),
            write_inodes: space.map(|space| space.write_inodes),
            free_bytes: space.and_then(|space| space.file_system.free_bytes),
            free_inodes: space.and_then(|space| space.file_system.free_inodes),
        })
    }

    fn run_copy(&self, dry_run: bool) -> Result<(CopySummary, Arc<dyn Target>), JobError> {
        let message: messages::CopyRequest<'_> = self.request()?;
        let store_dir = store_dir(message.store_dir)?;
        let context = uri_context(store_dir.clone());
        let store = |text| parse_store_uri(text, &context);
        let sources = message.from.iter().map(store).collect::<Result<_, _>>()?;
        let paths = message.paths.iter().map(str::to_owned).collect();
        let target = store(message.to)?;
        let jobs = message.jobs.map(|jobs| {
            let number = usize::try_from(jobs).ok().and_then(NonZeroUsize::new);
            let text = || format!("invalid number of jobs: {jobs}; leave jobs out or use 1");
            number.ok_or_else(|| usage(text()))
        });
        let options = CopyOptions {
            trusted_keys: floe_transfer::trusted_keys(message.trusted_public_keys.iter())?,
            check_signatures: !message.no_check_sigs
                && target.facts().requires_signatures.unwrap_or(true),
            jobs: jobs.transpose()?,
            optimise: message.optimise,
            reuse: reuse(&message, &context)?,
            dry_run,
            check_space: !message.no_check_space,
            cancel: self.cancel().clone(),
            ..CopyOptions::default()
        };
        let request = CopyRequest {
            network: network_options(&message.network),
            events: Events::new(self.job.state.clone()),
            options,
            write: WriteOptions {
                temp_roots: self.engine.roots.clone(),
                // The host gets no message about a lock wait; it can cancel the request.
                lock_wait: LockWait::new(self.cancel().flag(), |_| {}),
                ..WriteOptions::default()
            },
            store_dir,
            ..CopyRequest::new(sources, target, RequestedPaths::Named(paths))
        };
        let copy = request.open()?;
        let summary = copy.run()?;
        if summary.failures.is_empty() {
            Ok((summary, copy.target))
        } else {
            Err(failed(&summary))
        }
    }
}

fn reuse(message: &messages::CopyRequest<'_>, context: &UriContext) -> Result<Reuse, JobError> {
    let directories = message.reuse.iter();
    let directories = directories.map(|text| {
        let store = parse_store_uri(text, context)?;
        Ok::<_, JobError>(reuse_directory(&*store, text, context)?)
    });
    Ok(Reuse {
        directories: directories.collect::<Result<_, _>>()?,
        by: match message.reuse_by {
            None | Some(messages::ReuseBy::Reflink) => ReuseBy::Reflink,
            Some(messages::ReuseBy::Hardlink) => ReuseBy::HardLink,
            Some(messages::ReuseBy::Copy) => ReuseBy::Copy,
        },
    })
}

fn failed(summary: &CopySummary) -> JobError {
    let kind = ErrorKind::most_severe(&summary.failures);
    if kind == ErrorKind::Interrupted {
        return JobError::Cancelled;
    }
    let causes: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    let failed_paths = summary.failed_paths();
    let things = if failed_paths == 1 { "path" } else { "paths" };
    let first = causes.first().cloned().unwrap_or_default();
    JobError::Failed(Failure {
        kind: translate(kind),
        message: format!("failed to copy {failed_paths} {things}: {first}"),
        causes,
    })
}
