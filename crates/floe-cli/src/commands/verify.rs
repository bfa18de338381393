//! `floe verify`: finds what `nix-store --verify --check-contents` finds. With `--repair`, it
//! fetches damaged and missing paths again.

pub(crate) mod args;
pub(crate) mod page;
mod remote;

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use floe_config::{StoreAccess, StoreChoice};
use floe_copy::{CopyRequest, CopySummary, RequestedPaths};
use floe_format::StorePath;
use floe_store::{
    Damage, ProblemCause, Root, RootPlace, RuntimeRoots, StoreError, StoreLayout, StoreReader,
    StoreWriter, Verification, VerifyProblem, WriteOptions,
};
use floe_transfer::{
    Cancel, CopyOptions, Error, ErrorKind, Events, PathSpec, Session, Size, StoreConfig,
    TargetContext,
};
use serde_json::{Value, json};

use crate::args::read_paths;
use crate::copying::warn_of_unavailable;
use crate::display::{Display, eprint_error, eprint_line, is_json, warn};
use crate::exit;
use crate::messages::{counted, escaped};
use crate::options::{self, Settings};
use crate::path_names;
use crate::signals;
use crate::stdout::print;
use crate::store_choice::warn_of_ignored;
use args::VerifyArgs;

pub(crate) fn run(args: VerifyArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let load = || Settings::load(&args.options, args.store_dir.as_deref());
    let context = options::environment().uri_context(args.store_dir.as_deref())?;
    // A store that the user names needs no configuration, which may be broken.
    let mut settings = None;
    let choice = StoreChoice::of_flags(args.root.as_deref(), args.store.as_deref());
    let store_config = if choice == StoreChoice::AUTO {
        let settings = settings.insert(load()?);
        (settings.config).resolve_store(choice, StoreAccess::Read, &context)?
    } else {
        choice.resolve(&context)?
    };
    warn_of_ignored(store_config.facts().ignored_parameters);
    let Some(layout) = store_config.layout() else {
        return remote::verify(&args, &*store_config);
    };
    let lock_wait = options::lock_wait(Arc::default());
    let open = || StoreReader::open_with(layout.clone(), lock_wait.clone());
    let store = match open() {
        Err(StoreError::NoTables { .. }) if args.repair => {
            let loaded = match settings.take() {
                Some(settings) => settings,
                None => load()?,
            };
            make_tables(&*store_config, settings.insert(loaded))?;
            open()?
        }
        store => store?,
    };
    let dir = &store.layout().store_dir;
    let find = |text: &String| PathSpec::parse(text, dir)?.find_in_store(&store);
    let paths = read_paths(&args.paths, args.stdin)?;
    // No path at all means all paths, but an empty stdin means none.
    let is_none = paths.is_empty() && (args.stdin || !args.paths.is_empty());
    let paths = path_names::follow(store.layout(), &paths)?;
    let paths = paths.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let found = if is_none {
        Verification::default()
    } else {
        store.verify(&paths, args.jobs, &())?
    };
    let mut repaired = Repaired::default();
    let mut kind = ErrorKind::Untrusted;
    if args.repair && !found.problems.is_empty() {
        let settings = settings.map_or_else(load, Ok)?;
        repaired = match repair(&args, &settings, &store_config, layout, &found) {
            Ok(repaired) => repaired,
            Err(error) => {
                if exit::kind(&error) == ErrorKind::NoSpace {
                    kind = ErrorKind::NoSpace;
                }
                report_failed_repair(error)?
            }
        };
        if repaired.is_obstructed {
            kind = ErrorKind::Failed;
        }
    }
    report(&args, &found, (repaired.problems, kind), began)
}

/// Prints the problems, and how many of them are repaired. `kind` is the failure that the others
/// are.
fn report(
    args: &VerifyArgs,
    found: &Verification,
    (repaired, kind): (usize, ErrorKind),
    began: Instant,
) -> anyhow::Result<()> {
    let failed = found.problems.len();
    let is_solved = failed == repaired;
    if args.json {
        let mut result = json!({
            "paths": found.paths,
            "narBytes": found.nar_bytes,
            "links": found.links,
            "problems": found.problems.iter().map(to_json).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(),
        });
        if args.repair {
            result["repaired"] = repaired.into();
        }
        print(result)?;
    } else {
        let problems = found.problems.iter();
        problems
            .map(|problem| line(problem, is_solved))
            .try_for_each(print)?;
    }
    let mut sum = verified(found);
    if args.repair {
        sum = format!("{sum}, {repaired} repaired");
    }
    if is_solved || !is_json() {
        eprint_line(&sum);
    }
    if is_solved {
        return Ok(());
    }
    Err(exit::reported_failures(&sum, failed - repaired, kind))
}

/// Returns the line of a problem. If all problems are solved, it says that.
fn line(problem: &VerifyProblem, are_all_solved: bool) -> String {
    // Names of files in a path may have control characters.
    if are_all_solved {
        format!("repaired {}: {}", problem.path, escaped(&problem.cause))
    } else {
        escaped(problem)
    }
}

fn verified(found: &Verification) -> String {
    format!(
        "verified {} ({}) and {}: {}",
        counted(found.paths, "path"),
        Size(found.nar_bytes),
        counted(found.links, "link"),
        counted(found.problems.len(), "problem")
    )
}

/// Makes the tables of a database that has none, as an install does.
fn make_tables(store_config: &dyn StoreConfig, settings: &Settings) -> anyhow::Result<()> {
    let cancel = Cancel::default();
    let write = settings.write_options(&cancel)?;
    let session = Session::new(cancel, Events::default());
    open_for_repair(store_config, &session, &write)?;
    Ok(())
}

/// Reports why nothing could be repaired. The problems are still listed.
fn report_failed_repair<T: Default>(error: anyhow::Error) -> anyhow::Result<T> {
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
struct Repaired {
    /// The number of problems that are solved.
    problems: usize,
    /// Whether a file that floe may not move is in the place of a path.
    is_obstructed: bool,
}

/// Fetches the valid paths with problems again, and removes damaged links.
fn repair(
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
pub(super) fn open_for_repair(
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

fn to_json(problem: &VerifyProblem) -> Value {
    let kind = match problem.cause {
        ProblemCause::NotValid => "notValid",
        ProblemCause::Disappeared { .. } => "disappeared",
        ProblemCause::Modified { .. } => "modified",
        ProblemCause::WrongSize { .. } => "wrongSize",
        ProblemCause::DamagedRow(_) => "damagedRow",
        ProblemCause::Unreadable(_) => "unreadable",
        ProblemCause::ModifiedLink(_) => "modifiedLink",
    };
    json!({ "kind": kind, "path": problem.path, "message": problem.to_string() })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn verified_line_counts_paths_links_and_problems() {
        let found = Verification {
            paths: 12,
            nar_bytes: 40 << 20,
            problems: vec![VerifyProblem {
                path: "x".into(),
                cause: ProblemCause::NotValid,
            }],
            ..Verification::default()
        };
        expect!["verified 12 paths (40 MiB) and 0 links: 1 problem"].assert_eq(&verified(&found));
    }
}
