//! `floe copy-sigs`: adds the signatures of caches to paths of a store.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{
    CopiedSignatures, RequestedPaths, SignatureCopy, SourceOrder, Sources, check_writable,
};
use floe_format::{StoreDir, StorePath, TrustedKeys};
use floe_store::StoreReader;
use floe_transfer::{
    Cancel, Error, ErrorKind, Events, QueriedClosure, Session, StoreConfig, TargetContext,
};
use serde_json::json;

use crate::commands::sign::INTERRUPTED;
use crate::copying::warn_of_unavailable;
use crate::display::{Display, eprint_error, eprint_line, warn};
use crate::exit::{self, UsageError};
use crate::messages::counted;
use crate::options::Settings;
use crate::requested_paths::requested;
use crate::signals;
use crate::stdout::print;
use crate::writable_mount::make_writable;
use args::CopySigsArgs;

pub(crate) fn run(args: &CopySigsArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let settings = Settings::load(&args.options, None)?;
    let store = settings.store_or(args.to.as_deref(), &args.local, StoreAccess::Read)?;
    prepare(&*store)?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let events = Events::new(Arc::new(Display::default()));
    let session =
        Session::new(cancel.clone(), events).with_options::<Network>(settings.network(true));
    let request =
        settings.copy_from(&args.from, store.clone(), RequestedPaths::Named(Vec::new()))?;
    let QueriedClosure { found, absent } = present_paths(args, &settings, (&store, &session))?;
    let paths: Vec<StorePath> = found.into_keys().collect();
    let sources = Sources::open(&request.sources, request.order, &session)?;
    warn_of_unavailable(&sources);
    let opened = store.open_target(&TargetContext {
        session: &session,
        store_dir: None,
        write: &settings.write_options(&cancel)?,
        dry_run: false,
        substitutes: false,
        build_logs: None,
    })?;
    let Some(target) = opened.target.as_signature_target() else {
        bail!(UsageError(format!(
            "cannot add signatures to paths of {store}: its protocol has no request for that; try \
             ssh-ng://"
        )));
    };
    let dir = opened.target.store_dir();
    let copy = SignatureCopy {
        sources: &sources,
        target,
        store_dir: dir,
        trusted_keys: &settings.config.trusted_keys(TrustedKeys::default()),
        cancel: &cancel,
    };
    let copied = copy.run(&paths);
    let copied = copied.map_err(|error| exit::explain_interrupt(error.into(), INTERRUPTED))?;
    let outcome = Outcome {
        store: &store.to_string(),
        dir,
        paths: paths.len(),
        absent: &absent,
        copied: &copied,
    };
    if args.json {
        print(json!({
            "paths": paths.len(),
            "signed": copied.signed.len(),
            "notInCaches": outcome.not_offered(),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    }
    outcome.report()
}

/// Checks that the store exists and can be written. Must come before any other thread starts: such
/// a thread would keep a read-only mount.
fn prepare(store: &dyn StoreConfig) -> anyhow::Result<()> {
    if let Some(layout) = store.layout() {
        // A writer would create a store.
        drop(StoreReader::open(layout.clone())?);
        check_writable(store)?;
        make_writable(&layout.real_store_dir)?;
    }
    Ok(())
}

/// Returns the paths of the command line that the store has, and errors for the others.
fn present_paths(
    args: &CopySigsArgs,
    settings: &Settings,
    (store, session): (&Arc<dyn StoreConfig>, &Session),
) -> anyhow::Result<QueriedClosure> {
    let stores = std::slice::from_ref(store);
    let sources = Sources::open(stores, SourceOrder::AsListed, session)?;
    let source = sources.list.first().ok_or(Error::NoSources)?;
    let specs = requested(&args.paths, (&**source, store.layout()), None)?;
    let limits = (settings.closure_limit(), &session.cancel);
    Ok(source.query_closure(&specs, args.recursive, limits)?)
}

/// The result of a run.
struct Outcome<'a> {
    store: &'a str,
    dir: &'a StoreDir,
    /// The number of paths that the store has.
    paths: usize,
    /// The errors for paths that the store does not have.
    absent: &'a [Error],
    copied: &'a CopiedSignatures,
}

impl Outcome<'_> {
    fn not_offered(&self) -> usize {
        let CopiedSignatures {
            offered, different, ..
        } = self.copied;
        let others = different.iter().map(|(path, _, _)| path);
        let known: BTreeSet<&StorePath> = offered.iter().chain(others).collect();
        self.paths.saturating_sub(known.len())
    }

    fn report(&self) -> anyhow::Result<()> {
        let Outcome { store, copied, .. } = self;
        for (path, source, what) in &copied.different {
            let path = self.dir.full_path(path);
            warn(format_args!(
                "no signature of {path} was copied from {source}, which has another {what} of it"
            ));
        }
        let mut failures: Vec<String> = self.absent.iter().map(ToString::to_string).collect();
        failures.extend(copied.failures.iter().map(ToString::to_string));
        let of_path = |(path, reason): (&StorePath, &str)| {
            let path = self.dir.full_path(path);
            format!("cannot sign {path}: {reason}")
        };
        let vanished = copied.absent.iter().map(|path| (path, "it has vanished"));
        let unusable = copied.unusable.iter();
        let unusable = unusable.map(|(path, reason)| (path, reason.as_str()));
        failures.extend(vanished.chain(unusable).map(of_path));
        failures.iter().for_each(eprint_error);
        let all = counted(self.paths, "path");
        let none = match self.not_offered() {
            0 => String::new(),
            count => format!("; no cache has {count} of them"),
        };
        eprint_line(match (copied.signed.len(), failures.len()) {
            (0, 0) => format!("nothing to do: no cache has a further signature of {all}{none}"),
            (signed, _) => format!("added signatures to {signed} of {all} of {store}{none}"),
        });
        if failures.is_empty() {
            return Ok(());
        }
        let kinds = copied.failures.iter().map(Error::kind);
        let kind = kinds.max().unwrap_or(ErrorKind::Failed);
        let line = "cannot copy all signatures";
        Err(exit::failures(line, failures.len(), kind))
    }
}
