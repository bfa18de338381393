//! `floe verify` of binary caches, and of stores behind a Nix daemon. A daemon verifies and repairs
//! its whole store itself; of single paths floe reads the contents.

use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::bail;
use floe_copy::{Verification, Verified};
use floe_transfer::{
    Cancel, CopyOptions, ErrorKind, Event, EventSink, Events, PathSpec, Session, Size,
    SourceContext, StoreConfig,
};
use serde_json::json;

use crate::args::{LocalStoreArgs, PathArgs, SourceArgs, TrustArgs};
use crate::commands::verify::args::VerifyArgs;
use crate::commands::verify::problems::{self, Problem};
use crate::display::{Display, eprint_line, is_json};
use crate::exit::{self, UsageError};
use crate::messages::{counted, escaped};
use crate::open_cache::OpenCache;
use crate::options::Settings;
use crate::requested_paths::{OpenSource, requested};
use crate::signals;
use crate::stdout::print;

/// Verifies paths of a store that is not local. `uri` is the text that names it.
pub(super) fn verify(
    args: &VerifyArgs,
    uri: &str,
    (store, settings): (&Arc<dyn StoreConfig>, &Settings),
) -> anyhow::Result<()> {
    // Only a store with substituters of its own has a daemon.
    let has_daemon = store.facts().can_substitute;
    if has_daemon && args.is_of_whole_store() {
        return verify_by_daemon(args, &**store);
    }
    if args.repair {
        bail!(UsageError(if has_daemon {
            format!(
                "cannot repair single paths of {store}: its daemon repairs whole stores; leave \
                 out the paths and the options that belong to them"
            )
        } else {
            format!("cannot repair {store}: it is a binary cache; try floe cache repair")
        }));
    }
    let began = Instant::now();
    if args.names_no_path() && !has_daemon {
        let cancel = Cancel::default();
        signals::cancel_on_signals(&cancel)?;
        let (paths, problems) = all_paths_of_cache(store, settings, &cancel)?;
        let what = (Some(paths), args.no_contents);
        let verified = by_copy(args, (store, settings), what, &cancel)?;
        return report(args, &**store, (&verified, problems), began);
    }
    let paths = PathArgs::new(false, args.stdin, args.paths.clone());
    let specs = if args.names_no_path() {
        None
    } else {
        let source = SourceArgs {
            from: Some(uri.to_owned()),
            store_dir: args.store_dir.clone(),
            refresh: false,
        };
        let open = OpenSource::open(&source, &LocalStoreArgs::default(), &args.options)?;
        Some(requested(&paths, (open.source(), None), None)?)
    };
    verify_paths(args, (store, settings), specs, began)
}

/// Returns all paths of a cache, and the problems that its objects show.
fn all_paths_of_cache(
    store: &Arc<dyn StoreConfig>,
    settings: &Settings,
    cancel: &Cancel,
) -> anyhow::Result<(Vec<PathSpec>, Vec<Problem>)> {
    let contents = OpenCache::open(settings, store, true, cancel)?.contents()?;
    let problems = problems::of_contents(&contents);
    let paths = contents.narinfos.into_keys().map(PathSpec::Path);
    Ok((paths.collect(), problems))
}

/// Verifies paths, or all if there is no list, and reports the problems.
pub(super) fn verify_paths(
    args: &VerifyArgs,
    (store, settings): (&Arc<dyn StoreConfig>, &Settings),
    paths: Option<Vec<PathSpec>>,
    began: Instant,
) -> anyhow::Result<()> {
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let what = (paths, args.no_contents);
    let verified = by_copy(args, (store, settings), what, &cancel)?;
    report(args, &**store, (&verified, Vec::new()), began)
}

/// Verifies paths by a copy of them to nowhere.
pub(super) fn by_copy(
    args: &VerifyArgs,
    (store, settings): (&Arc<dyn StoreConfig>, &Settings),
    (paths, is_dry): (Option<Vec<PathSpec>>, bool),
    cancel: &Cancel,
) -> anyhow::Result<Verified> {
    let mut verification =
        verification((store, settings), (args.sigs_needed, &args.trust), cancel)?;
    verification.paths = paths;
    verification.recursive = args.recursive;
    verification.options.dry_run = is_dry;
    verification.options.jobs = verification.options.jobs.or(args.jobs);
    run_verification(&verification)
}

/// Returns the verification of all paths of a store, with their contents.
pub(in crate::commands) fn verification(
    (store, settings): (&Arc<dyn StoreConfig>, &Settings),
    (sigs_needed, trust): (Option<NonZeroUsize>, &TrustArgs),
    cancel: &Cancel,
) -> anyhow::Result<Verification> {
    // A damaged path may end the connection to a daemon, and with it all transfers of the moment.
    let one_by_one = store.facts().can_substitute.then_some(NonZeroUsize::MIN);
    Ok(Verification {
        store: store.clone(),
        paths: None,
        recursive: false,
        options: CopyOptions {
            trusted_keys: settings.trusted_keys(trust)?,
            check_signatures: sigs_needed.is_some(),
            signatures_needed: sigs_needed.map_or(1, usize::from),
            obey_trusted: false,
            jobs: one_by_one,
            check_file_hash: true,
            closure_limit: settings.closure_limit(),
            cancel: cancel.clone(),
            ..CopyOptions::default()
        },
        network: settings.network(true),
        events: Events::new(Arc::new(VerifyEvents::default())),
    })
}

pub(in crate::commands) fn run_verification(
    verification: &Verification,
) -> anyhow::Result<Verified> {
    let verified = verification.run();
    verified.map_err(|error| exit::explain_interrupt(error.into(), INTERRUPTED))
}

/// Shows the progress of a verification. The problems are its result, and not events.
#[derive(Default)]
struct VerifyEvents(Display);

impl EventSink for VerifyEvents {
    fn event(&self, event: Event<'_>) {
        if !matches!(event, Event::Planned { .. } | Event::Failed { .. }) {
            self.0.event(event);
        }
    }
}

const INTERRUPTED: &str = "interrupted; a verification changes nothing";

/// Prints the problems of the paths, after those that are known before.
fn report(
    args: &VerifyArgs,
    store: &dyn StoreConfig,
    (verified, mut problems): (&Verified, Vec<Problem>),
    began: Instant,
) -> anyhow::Result<()> {
    problems::add(&mut problems, &verified.problems);
    if args.json {
        print(json!({
            "paths": verified.paths,
            "narBytes": verified.nar_bytes,
            "downloadBytes": verified.download_bytes,
            "problems": problems.iter().map(Problem::to_json).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        let lines = problems.iter().map(|problem| escaped(&problem.message));
        lines.into_iter().try_for_each(print)?;
    }
    let paths = counted(verified.paths, "path");
    let paths = if args.no_contents {
        format!("the metadata of {paths}")
    } else {
        format!("{paths} ({})", Size(verified.nar_bytes))
    };
    let found = counted(problems.len(), "problem");
    let line = format!("verified {paths} of {store}: {found}");
    if problems.is_empty() || !is_json() {
        eprint_line(&line);
    }
    if problems.is_empty() {
        return Ok(());
    }
    let kind = problems::error_kind(&problems);
    Err(exit::reported_failures(&line, problems.len(), kind))
}

/// Lets the daemon verify its store.
fn verify_by_daemon(args: &VerifyArgs, store: &dyn StoreConfig) -> anyhow::Result<()> {
    if !args.from.is_empty() || args.refresh {
        bail!(UsageError(format!(
            "cannot repair {store} from another cache: its daemon uses its own substituters; leave \
             out --from and --refresh"
        )));
    }
    let began = Instant::now();
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let session = Session::new(cancel, Events::new(Arc::new(Display::default())));
    let (opened, _opened) = mpsc::channel();
    let source = store.open_source(&SourceContext {
        session: &session,
        are_substituters: false,
        opened,
    })?;
    let Some(daemon) = source.as_verifier() else {
        bail!("cannot verify {store}: its protocol has no request for that");
    };
    let has_problems = daemon.verify_store(args.repair)?;
    if args.json {
        print(json!({
            "problemsRemain": has_problems,
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    }
    let result = if has_problems {
        "problems remain"
    } else {
        "no problem remains"
    };
    let line = format!("the daemon of {store} verified its store: {result}");
    if !has_problems {
        eprint_line(&line);
        return Ok(());
    }
    if !is_json() {
        eprint_line(&line);
    }
    Err(exit::reported_failures(&line, 1, ErrorKind::Untrusted))
}
