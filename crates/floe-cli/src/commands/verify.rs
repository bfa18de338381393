//! `floe verify`: finds what `nix-store --verify --check-contents` finds. With `--repair`, it
//! fetches damaged and missing paths again.

pub(crate) mod args;
pub(super) mod elsewhere;
pub(crate) mod page;
pub(super) mod problems;
pub(crate) mod repair;

use std::sync::Arc;
use std::time::Instant;

use floe_config::{StoreAccess, StoreChoice};
use floe_store::{ProblemCause, StoreError, StoreReader, Verification, VerifyProblem};
use floe_transfer::{Cancel, Error, ErrorKind, Events, PathSpec, Session, Size, StoreConfig};
use serde_json::{Value, json};

use crate::args::read_paths;
use crate::display::{eprint_line, is_json};
use crate::exit;
use crate::messages::{counted, escaped};
use crate::options::{self, Settings};
use crate::path_names;
use crate::signals;
use crate::stdout::print;
use crate::store_choice::warn_of_ignored;
use args::VerifyArgs;
use problems::Problem;
use repair::{Repaired, open_for_repair, repair, report_failed_repair};

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
        let uri = args
            .store
            .clone()
            .unwrap_or_else(|| store_config.to_string());
        let settings = settings.map_or_else(load, Ok)?;
        return elsewhere::verify(&args, &uri, (&store_config, &settings));
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
    let paths = path_names::follow(store.layout(), &paths)?;
    let (mut found, mut absent) = (Vec::new(), Vec::new());
    for text in &paths {
        match find(text) {
            Ok(path) => found.push(path),
            // The other paths are checked.
            Err(error @ Error::NotFound { .. }) => absent.push(Problem::from(&error)),
            Err(error) => return Err(error.into()),
        }
    }
    let mut paths = found;
    let is_none = paths.is_empty() && !args.names_no_path();
    if args.recursive {
        let closure = store.closure_paths(&paths)?;
        // A path that is not valid is a problem.
        paths.retain(|path| !closure.contains(path));
        paths.extend(closure);
    }
    let specs = || {
        let specs = paths.iter().cloned().map(PathSpec::Path);
        let specs: Vec<PathSpec> = specs.collect();
        (is_none || !specs.is_empty()).then_some(specs)
    };
    if args.no_contents {
        let settings = settings.map_or_else(load, Ok)?;
        let of = (&store_config, &settings);
        return elsewhere::verify_paths(&args, of, specs(), began);
    }
    let found = if is_none {
        Verification::default()
    } else {
        store.verify(&paths, args.jobs, &())?
    };
    let mut refused = absent;
    if args.sigs_needed.is_some() && !is_none {
        let loaded = settings.map_or_else(&load, Ok)?;
        let cancel = Cancel::default();
        signals::cancel_on_signals(&cancel)?;
        let (of, what) = ((&store_config, &loaded), (specs(), true));
        let mut errors = elsewhere::by_copy(&args, of, what, &cancel)?.problems;
        // The verification has found them.
        errors.retain(|error| !matches!(error, Error::NotFound { .. }));
        refused.extend(errors.iter().map(Problem::from));
        settings = Some(loaded);
    }
    let mut repaired = Repaired::default();
    let mut kind = ErrorKind::Untrusted;
    if args.repair && !found.problems.is_empty() {
        let settings = settings.map_or_else(&load, Ok)?;
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
    report(&args, (&found, &refused), (repaired.problems, kind), began)
}

/// Prints the problems, and how many of them are repaired. `kind` is the failure that the others
/// are. `refused` are the paths without enough signatures.
fn report(
    args: &VerifyArgs,
    (found, refused): (&Verification, &[Problem]),
    (repaired, kind): (usize, ErrorKind),
    began: Instant,
) -> anyhow::Result<()> {
    let failed = found.problems.len() + refused.len();
    let is_solved = failed == repaired;
    if args.json {
        let problems = found.problems.iter().map(to_json);
        let problems = problems.chain(refused.iter().map(Problem::to_json));
        let problems: Vec<Value> = problems.collect();
        let mut result = json!({
            "paths": found.paths,
            "narBytes": found.nar_bytes,
            "links": found.links,
            "problems": problems,
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
            .chain(refused.iter().map(|problem| escaped(&problem.message)))
            .try_for_each(print)?;
    }
    let mut sum = verified(found, failed);
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

fn verified(found: &Verification, problems: usize) -> String {
    format!(
        "verified {} ({}) and {}: {}",
        counted(found.paths, "path"),
        Size(found.nar_bytes),
        counted(found.links, "link"),
        counted(problems, "problem")
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
        expect!["verified 12 paths (40 MiB) and 0 links: 1 problem"]
            .assert_eq(&verified(&found, 1));
    }
}
