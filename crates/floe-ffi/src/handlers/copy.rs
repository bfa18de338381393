//! The requests `install`, `copy` and `resolve`.

use std::num::NonZeroUsize;
use std::sync::Arc;

use floe_cache::NetworkOptions;
use floe_copy::{
    ClosureCopy, CopySummary, SourceOrder, Sources, open_read_only_target, open_target,
    reuse_directory,
};
use floe_messages::{CopyReply, CopyRequest, PlannedPath, ResolveReply, ReuseBy as RequestedReuse};
use floe_store::{LockWait, WriteOptions};
use floe_transfer::{CopyOptions, ErrorKind, PathSpec, Reuse, ReuseBy, StoreUri, Target};

use super::{HandlerContext, HandlerResult, WorkError, location, store_dir, translate, usage};
use crate::completion::Failure;

impl HandlerContext<'_> {
    /// Handles `install` and `copy`, which differ only in their source and target.
    pub(super) fn copy_paths(&self) -> HandlerResult {
        let (outcome, target) = self.run_copy(false)?;
        let dir = target.store_dir();
        let roots: Vec<String> = outcome
            .requested_paths
            .iter()
            .map(|path| dir.full_path(path))
            .collect();
        let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
        self.reply(&CopyReply {
            paths: roots.into(),
            copied: outcome.copied,
            download_bytes: outcome.download_bytes,
            nar_bytes: outcome.nar_bytes,
            reused: outcome.reused,
            reused_nar_bytes: outcome.reused_nar_bytes,
        })
    }

    pub(super) fn resolve(&self) -> HandlerResult {
        let (outcome, target) = self.run_copy(true)?;
        let dir = target.store_dir();
        let print = |(path, nar_size, download): &(_, u64, Option<u64>)| {
            (dir.full_path(path), *nar_size, *download)
        };
        let planned: Vec<_> = outcome.planned.iter().map(print).collect();
        let planned: Vec<PlannedPath<'_>> = planned
            .iter()
            .map(|(path, nar_size, download_size)| PlannedPath {
                path,
                nar_size: *nar_size,
                download_size: *download_size,
            })
            .collect();
        let space = outcome.space.as_ref();
        self.reply(&ResolveReply {
            planned: planned.into(),
            write_bytes: space.map(|space| space.write_bytes),
            write_inodes: space.map(|space| space.write_inodes),
            free_bytes: space.and_then(|space| space.file_system.free_bytes),
            free_inodes: space.and_then(|space| space.file_system.free_inodes),
        })
    }

    fn run_copy(&self, dry_run: bool) -> Result<(CopySummary, Arc<dyn Target>), WorkError> {
        let request: CopyRequest<'_> = self.request()?;
        let requested_dir = store_dir(request.store_dir)?;
        let at = |text| location(text, requested_dir.as_ref());
        let from: Vec<StoreUri> = request.from.iter().map(at).collect::<Result<_, _>>()?;
        let to = at(request.to)?;
        if !matches!(to, StoreUri::Local(_)) && (request.optimise || !request.reuse.is_empty()) {
            let what = "cannot use optimise or reuse";
            return Err(usage(format!(
                "{what}: `{to}` is a cache, not a local store"
            )));
        }
        let options = self.options(&request, dry_run)?;
        let sources = Sources::open(
            &from,
            SourceOrder::AsListed,
            &NetworkOptions::default(),
            self.cancel(),
        )?;
        // A new cache gets the store directory of its first source.
        let first = sources
            .iter()
            .next()
            .map(|source| source.store_dir().clone());
        let dir = requested_dir.clone().or(first);
        let target = match dry_run {
            true => open_read_only_target(&to, dir.as_ref())?,
            false => open_target(&to, dir.as_ref(), &self.write_options())?,
        };
        let mut roots: Vec<PathSpec> = Vec::new();
        for text in request.paths.iter() {
            let root = PathSpec::parse(text, target.store_dir())?;
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        let copy = ClosureCopy {
            sources: &sources,
            target: &*target,
            options: &options,
            events: &*self.job.progress,
        };
        let outcome = copy.run(&roots)?;
        match outcome.failures.is_empty() {
            true => Ok((outcome, target)),
            false => Err(failed(&outcome)),
        }
    }

    fn write_options(&self) -> WriteOptions {
        WriteOptions {
            temp_roots: self.engine.roots.clone(),
            // The host gets no message about a lock wait; it can cancel the request.
            lock_wait: LockWait::new(self.cancel().flag(), |_| {}),
            ..WriteOptions::default()
        }
    }

    fn options(&self, request: &CopyRequest<'_>, dry_run: bool) -> Result<CopyOptions, WorkError> {
        let jobs = match request.jobs {
            None => None,
            Some(jobs) => Some(
                usize::try_from(jobs)
                    .ok()
                    .and_then(NonZeroUsize::new)
                    .ok_or_else(|| {
                        usage(format!(
                            "invalid number of jobs: {jobs}; leave jobs out or use 1"
                        ))
                    })?,
            ),
        };
        Ok(CopyOptions {
            trusted_keys: floe_transfer::trusted_keys(request.trusted_public_keys.iter())?,
            check_signatures: !request.no_check_sigs,
            jobs,
            optimise: request.optimise,
            reuse: reuse(request)?,
            dry_run,
            check_space: !request.no_check_space,
            cancel: self.cancel().clone(),
        })
    }
}

fn reuse(request: &CopyRequest<'_>) -> Result<Reuse, WorkError> {
    let dir = store_dir(request.store_dir)?;
    let directory = |text| reuse_directory(text, dir.as_ref(), None);
    let directories = request.reuse.iter().map(directory);
    Ok(Reuse {
        directories: directories.collect::<Result<_, _>>()?,
        by: match request.reuse_by {
            None | Some(RequestedReuse::Reflink) => ReuseBy::Reflink,
            Some(RequestedReuse::Hardlink) => ReuseBy::HardLink,
            Some(RequestedReuse::Copy) => ReuseBy::Copy,
        },
    })
}

fn failed(outcome: &CopySummary) -> WorkError {
    let kind = ErrorKind::most_severe(&outcome.failures);
    if kind == ErrorKind::Interrupted {
        return WorkError::Cancelled;
    }
    let causes: Vec<String> = outcome.failures.iter().map(ToString::to_string).collect();
    let unmoved = outcome.failed_paths();
    let things = if unmoved == 1 { "path" } else { "paths" };
    let first = causes.first().cloned().unwrap_or_default();
    WorkError::Failed(Failure {
        kind: translate(kind),
        message: format!("failed to copy {unmoved} {things}: {first}"),
        causes,
    })
}
