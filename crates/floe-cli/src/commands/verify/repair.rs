//! The repair of a local store: damaged and missing paths are fetched again.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use floe_copy::{CopyRequest, CopySummary, RequestedPaths};
use floe_format::StorePath;
use floe_store::{
    Damage, ProblemCause, Root, RootPlace, RuntimeRoots, StoreError, StoreLayout, StoreReader,
    StoreWriter, Verification, VerifyProblem, WriteOptions,
};
use floe_transfer::{
    Cancel, CopyOptions, Error, ErrorKind, Events, Session, StoreConfig, TargetContext,
};

use super::args::VerifyArgs;
use crate::copying::warn_of_unavailable;
use crate::display::{Display, eprint_error, eprint_line, warn};
use crate::exit;
use crate::options::{self, Settings};
use crate::signals;

/// Reports why nothing could be repaired. The problems are still listed.
pub(in crate::commands) fn report_failed_repair<T: Default>(
    error: anyhow::Error,
) -> anyhow::Result<T> {
    match exit::kind(&error) {
        ErrorKind::Interrupted => Err(error),
        _ => {
            eprint_error(exit::message(&error));
            Ok(T::default())
        }
    }
}

/// The result of a repair.
#[derive(Default)]
pub(super) struct Repaired {
    /// The number of problems that are solved.
    pub(super) problems: usize,
    /// Whether a file that floe may not move is in the place of a path.
    pub(super) is_obstructed: bool,
}

/// Fetches the valid paths with problems again, and removes damaged links.
pub(super) fn repair(
    args: &VerifyArgs,
    settings: &Settings,
    store_config: &Arc<dyn StoreConfig>,
    layout: &StoreLayout,
    found: &Verification,
) -> anyhow::Result<Repaired> {
    let cancel = Cancel::default();
    let write = settings.write_options(&cancel)?;
    let session = Session::new(cancel.clone(), Events::new(Arc::new(Display::default())));
    // Before any change, because the URI may forbid writing.
    let store = open_for_repair(&**store_config, &session, &write)?;
    let mut solved = 0;
    for problem in &found.problems {
        if let ProblemCause::ModifiedLink(_) = &problem.cause {
            let link = layout.real_store_dir.join(&problem.path);
            solved += usize::from(fs::remove_file(link).is_ok());
        }
    }
    let mut damaged = found.damaged_paths(&layout.store_dir);
    if let Some(store) = &store {
        solved += correct_sizes(store, found, &mut damaged)?;
    }
    signals::cancel_on_signals(&cancel)?;
    let mut fetched = Fetched::default();
    if !damaged.is_empty() {
        if let Some(store) = &store {
            store.record_damaged(&damaged)?;
        }
        // The copy opens the store itself.
        fetched = fetch(args, settings, store_config, (&damaged, &session, write))
            .or_else(report_failed_repair)?;
        solved += fetched.repaired;
    }
    // A path that was fetched again no longer refers to such a row.
    if let Some(store) = &store {
        solved += remove_vanished(
            store,
            store_config.facts().runtime_roots,
            found,
            &fetched.absent,
        )?;
        solved += remove_rows(store, found)?;
    }
    Ok(Repaired {
        problems: solved,
        is_obstructed: fetched.is_obstructed,
    })
}

/// The result of an attempt to fetch damaged paths.
#[derive(Default)]
struct Fetched {
    /// The number of paths that were fetched again.
    repaired: usize,
    /// The paths of which all sources have replied that they do not have them.
    absent: BTreeSet<StorePath>,
    /// Whether a file that floe may not move is in the place of a path.
    is_obstructed: bool,
}

/// Fetches damaged paths again.
fn fetch(
    args: &VerifyArgs,
    settings: &Settings,
    store_config: &Arc<dyn StoreConfig>,
    (damaged, session, write): (&[(StorePath, Damage)], &Session, WriteOptions),
) -> anyhow::Result<Fetched> {
    let cancel = session.cancel.clone();
    let paths = damaged.iter().map(|(path, _)| path.to_string()).collect();
    let is_unusable = args.from.is_empty() && settings.has_unusable_substituter();
    let names = RequestedPaths::Named(paths);
    let request = match settings.copy_from(&args.from, store_config.clone(), names) {
        // Without any source, no reply is missing.
        Err(error) if args.from.is_empty() && !is_unusable => {
            let mut fetched: Fetched = report_failed_repair(error)?;
            fetched.absent = damaged.iter().map(|(path, _)| path.clone()).collect();
            return Ok(fetched);
        }
        request => request?,
    };
    let request = CopyRequest {
        network: settings.network(args.refresh),
        events: session.events.clone(),
        options: CopyOptions {
            trusted_keys: settings.trusted_keys(&args.trust)?,
            check_signatures: settings.check_signatures(&args.trust, &**store_config),
            jobs: args.jobs,
            cancel,
            ..CopyOptions::default()
        },
        write,
        ..request
    };
    let copy = request.open()?;
    warn_of_unavailable(&copy.sources);
    let summary: CopySummary = copy.run()?;
    let is_repaired = |(path, _): &&(StorePath, Damage)| summary.requested_paths.contains(path);
    // A source that failed, or whose signature is not trusted, may have the path.
    let is_absent = |path: &StorePath| {
        let mut failures = summary.failures.iter();
        let is_of_path = |error: &Error| match error {
            Error::NotFound { path: absent, .. } => *absent == path.as_str(),
            _ => false,
        };
        !is_unusable && copy.sources.unavailable.is_empty() && failures.any(is_of_path)
    };
    let names = damaged.iter().map(|(path, _)| path);
    Ok(Fetched {
        repaired: damaged.iter().filter(is_repaired).count(),
        absent: names.filter(|path| is_absent(path)).cloned().collect(),
        is_obstructed: summary.failures.iter().any(is_obstructed),
    })
}

fn is_obstructed(error: &Error) -> bool {
    matches!(error, Error::Store(StoreError::PathObstructed { .. }))
}

/// Registers the right sizes of intact paths. Removes these from the damaged paths, and returns
/// their number.
fn correct_sizes(
    store: &StoreWriter,
    found: &Verification,
    damaged: &mut Vec<(StorePath, Damage)>,
) -> anyhow::Result<usize> {
    let dir = &store.layout().store_dir;
    let mut corrected = 0;
    for problem in &found.problems {
        if let ProblemCause::WrongSize { actual, .. } = problem.cause
            && let Ok(path) = dir.parse(&problem.path)
        {
            store.set_nar_size(&path, actual)?;
            damaged.retain(|(other, _)| *other != path);
            corrected += 1;
        }
    }
    Ok(corrected)
}

/// Removes the rows of paths whose files are gone, which no source has, and which no root or other
/// path needs. `absent` are the paths that no source has. Returns the number of problems that this
/// solves.
fn remove_vanished(
    store: &StoreWriter,
    runtime_roots: RuntimeRoots,
    found: &Verification,
    absent: &BTreeSet<StorePath>,
) -> anyhow::Result<usize> {
    let dir = &store.layout().store_dir;
    let is_vanished =
        |problem: &&VerifyProblem| matches!(problem.cause, ProblemCause::Disappeared { .. });
    let vanished = found.problems.iter().filter(is_vanished);
    let mut vanished: Vec<_> = vanished.filter_map(|it| dir.parse(&it.path).ok()).collect();
    if found.has_no_trees && !vanished.is_empty() {
        warn(format_args!(
            "keeping the paths of {store} in the database: no file is there, so its file system \
             may not be mounted; try mount {store}",
            store = store.layout().real_store_dir.display()
        ));
        return Ok(0);
    }
    vanished.retain(|path| absent.contains(path));
    if vanished.is_empty() {
        return Ok(0);
    }
    let lock_wait = options::lock_wait(Arc::default());
    let reader = StoreReader::open_with(store.layout().clone(), lock_wait)?;
    let roots = reader.find_roots(runtime_roots)?.roots;
    // The repair itself has made all these paths temporary roots.
    let own = RootPlace::Temporary(std::process::id());
    let needs = |root: &Root, path: &StorePath| root.path == *path && root.place != own;
    vanished.retain(|path| !roots.iter().any(|root| needs(root, path)));
    let removed = store.remove_vanished(&vanished)?;
    for path in &removed {
        let path = dir.full_path(path);
        eprint_line(format_args!(
            "floe: removed {path} from the database: its files are gone, and no source has it"
        ));
    }
    Ok(removed.len())
}

/// Removes the rows that describe no path. Returns the number of problems that this solves.
fn remove_rows(store: &StoreWriter, found: &Verification) -> anyhow::Result<usize> {
    let is_meaningless = |problem: &&VerifyProblem| match &problem.cause {
        ProblemCause::DamagedRow(row) => row.path.is_none(),
        _ => false,
    };
    if !found.problems.iter().any(|it| is_meaningless(&it)) {
        return Ok(0);
    }
    let removed = store.remove_meaningless_rows()?;
    let is_removed = |problem: &&VerifyProblem| match &problem.cause {
        ProblemCause::DamagedRow(row) => removed.contains(row),
        _ => false,
    };
    Ok(found.problems.iter().filter(is_removed).count())
}

/// Opens a local store to record damaged paths. Its URI may forbid that.
pub(in crate::commands) fn open_for_repair(
    store: &dyn StoreConfig,
    session: &Session,
    write: &WriteOptions,
) -> anyhow::Result<Option<Arc<StoreWriter>>> {
    let opened = store.open_target(&TargetContext {
        session,
        store_dir: None,
        write,
        dry_run: false,
        substitutes: false,
        build_logs: None,
    })?;
    Ok(opened.local_store)
}
