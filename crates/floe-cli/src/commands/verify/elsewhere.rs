//! `floe verify` of binary caches, and of stores behind a Nix daemon. A daemon verifies and repairs
//! its whole store itself; of single paths floe reads the contents.

use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::bail;
use floe_copy::{Verification, Verified};
use floe_transfer::{
    Cancel, CopyOptions, Error, ErrorKind, Event, EventSink, Events, PathSpec, Session, Size,
    SourceContext, StoreConfig,
};
use serde_json::{Value, json};

use crate::args::{LocalStoreArgs, PathArgs, SourceArgs};
use crate::commands::verify::args::VerifyArgs;
use crate::display::{Display, eprint_line, is_json};
use crate::exit::{self, UsageError};
use crate::messages::{counted, escaped};
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
            format!(
                "cannot repair {store}: it is a binary cache; try floe push --check, which \
                 replaces damaged objects"
            )
        }));
    }
    let began = Instant::now();
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

/// Verifies paths, or all if there is no list, and reports the problems.
pub(super) fn verify_paths(
    args: &VerifyArgs,
    (store, settings): (&Arc<dyn StoreConfig>, &Settings),
    paths: Option<Vec<PathSpec>>,
    began: Instant,
) -> anyhow::Result<()> {
    let verified = by_copy(args, (store, settings), (paths, args.no_contents))?;
    report(args, &**store, &verified, began)
}

/// Verifies paths by a copy of them to nowhere.
pub(super) fn by_copy(
    args: &VerifyArgs,
    (store, settings): (&Arc<dyn StoreConfig>, &Settings),
    (paths, is_dry): (Option<Vec<PathSpec>>, bool),
) -> anyhow::Result<Verified> {
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let verification = Verification {
        store: store.clone(),
        paths,
        recursive: args.recursive,
        options: CopyOptions {
            trusted_keys: settings.trusted_keys(&args.trust)?,
            check_signatures: args.sigs_needed.is_some(),
            signatures_needed: args.sigs_needed.map_or(1, usize::from),
            obey_trusted: false,
            jobs: args.jobs,
            dry_run: is_dry,
            check_file_hash: true,
            closure_limit: settings.closure_limit(),
            cancel,
            ..CopyOptions::default()
        },
        network: settings.network(true),
        events: Events::new(Arc::new(VerifyEvents::default())),
    };
    Ok(verification.run()?)
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

fn report(
    args: &VerifyArgs,
    store: &dyn StoreConfig,
    verified: &Verified,
    began: Instant,
) -> anyhow::Result<()> {
    let Verified {
        paths,
        nar_bytes,
        download_bytes,
        problems,
    } = verified;
    if args.json {
        print(json!({
            "paths": paths,
            "narBytes": nar_bytes,
            "downloadBytes": download_bytes,
            "problems": problems.iter().map(to_json).collect::<Vec<_>>(),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        problems.iter().map(escaped).try_for_each(print)?;
    }
    let paths = counted(*paths, "path");
    let paths = if args.no_contents {
        format!("the metadata of {paths}")
    } else {
        format!("{paths} ({})", Size(*nar_bytes))
    };
    let found = counted(problems.len(), "problem");
    let line = format!("verified {paths} of {store}: {found}");
    if problems.is_empty() || !is_json() {
        eprint_line(&line);
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(exit::reported_failures(
        &line,
        problems.len(),
        kind(problems),
    ))
}

/// The kind of the error of a command that has found problems: those of the contents count first.
pub(super) fn kind(problems: &[Error]) -> ErrorKind {
    let is_network = |error: &Error| error.kind() == ErrorKind::Network;
    if problems.iter().all(is_network) {
        ErrorKind::Network
    } else {
        ErrorKind::Untrusted
    }
}

/// The JSON of a problem, as of a local store.
pub(super) fn to_json(error: &Error) -> Value {
    let kind = match error {
        Error::NotFound { .. } => "notValid",
        Error::Untrusted { .. } | Error::TooFewSignatures { .. } => "untrusted",
        Error::Mismatch { .. } | Error::Decode { .. } | Error::InvalidNar { .. } => "modified",
        error if error.kind() == ErrorKind::Untrusted => "damagedRow",
        _ => "unreadable",
    };
    json!({ "kind": kind, "path": error.path_name(), "message": error.to_string() })
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
