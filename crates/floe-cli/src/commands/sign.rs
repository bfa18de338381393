//! `floe sign`: adds signatures to paths that a binary cache or a local store has.

pub(crate) mod args;
pub(crate) mod page;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use floe_cache::Network;
use floe_config::{StoreAccess, StoreChoice, read_secret_keys};
use floe_copy::{SourceOrder, Sources, check_writable};
use floe_format::{PathInfo, SecretKey, StoreDir, StorePath};
use floe_store::{StoreLayout, StoreReader, StoreWriter, WriteOptions};
use floe_transfer::{
    Cancel, Error, ErrorKind, Events, NO_NAR_SIZE, PathSpec, Session, SigningOutcome, Source,
    StoreConfig, TargetContext,
};
use serde_json::json;

use crate::display::{Display, eprint_error, eprint_line, warn};
use crate::exit::{self, UsageError};
use crate::messages::counted;
use crate::options::{Settings, environment};
use crate::requested_paths::requested;
use crate::signals;
use crate::stdout::print;
use crate::writable_mount::make_writable;
use args::SignArgs;

pub(crate) fn run(args: &SignArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut settings = Settings::load(&args.options, None)?;
    let key_files = args.key_file.iter().map(std::path::absolute);
    let key_files = key_files.collect::<Result<Vec<PathBuf>, _>>()?;
    // The keys of the arguments alone count.
    settings.context.secret_keys.clear();
    settings.context.further_secret_keys.clone_from(&key_files);
    let store = settings.store(StoreChoice::Uri(&args.store), StoreAccess::Read)?;
    let environment = environment();
    let (keys, warnings) = read_secret_keys(&key_files, &environment)?;
    warnings.iter().for_each(warn);
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let signer = Signer {
        settings: &settings,
        store: &store,
        keys: &keys,
    };
    let signed = match store.layout().cloned() {
        Some(layout) => signer.sign_in_store(layout, args, &cancel),
        None => signer.sign_elsewhere(args, &cancel),
    };
    let signed = signed.map_err(|error| exit::explain_interrupt(error, INTERRUPTED))?;
    report(args, &signer, &signed, began.elapsed())
}

/// The result of a run.
#[derive(Debug, Default)]
struct Signed {
    /// The number of paths that were looked at.
    paths: usize,
    /// The number of paths that have got a signature.
    added: usize,
    failures: Vec<String>,
    /// Whether the metadata of a path cannot be used.
    has_unusable: bool,
}

impl Signed {
    fn fail(&mut self, path: &str, reason: &str) {
        self.failures.push(format!("cannot sign {path}: {reason}"));
    }

    /// Adds the outcome for some paths of a store.
    fn add(&mut self, outcome: SigningOutcome, dir: &StoreDir, store: &dyn StoreConfig) {
        self.added += outcome.signed.len();
        for path in &outcome.absent {
            self.fail(&dir.full_path(path), &format!("{store} does not have it"));
        }
        for (path, reason) in &outcome.unusable {
            self.has_unusable |= store.layout().is_none();
            self.fail(&dir.full_path(path), reason);
        }
        for (path, what) in &outcome.different {
            let reason = format!("its {what} in {store} has changed");
            self.fail(&dir.full_path(path), &reason);
        }
    }
}

/// The store, and the keys to sign with.
struct Signer<'a> {
    settings: &'a Settings,
    store: &'a Arc<dyn StoreConfig>,
    keys: &'a [SecretKey],
}

impl Signer<'_> {
    fn sign_in_store(
        &self,
        layout: StoreLayout,
        args: &SignArgs,
        cancel: &Cancel,
    ) -> anyhow::Result<Signed> {
        // A writer would create a store.
        drop(StoreReader::open(layout.clone())?);
        check_writable(&**self.store)?;
        make_writable(&layout.real_store_dir)?;
        let (paths, mut signed) = self.paths(args, cancel)?;
        let dir = layout.store_dir.clone();
        let writer = StoreWriter::open_with(layout, &self.settings.write_options(cancel)?)?;
        for part in paths.chunks(PATHS_AT_ONCE) {
            if cancel.is_raised() {
                return Err(Error::Cancelled.into());
            }
            let mut outcome = SigningOutcome::default();
            for (path, signing) in part.iter().zip(writer.sign(part, self.keys)?) {
                outcome.add(path, signing);
            }
            signed.add(outcome, &dir, &**self.store);
        }
        Ok(signed)
    }

    /// Signs in a binary cache or behind a daemon.
    fn sign_elsewhere(&self, args: &SignArgs, cancel: &Cancel) -> anyhow::Result<Signed> {
        let session = self.session(cancel);
        let opened = self.store.open_target(&TargetContext {
            session: &session,
            store_dir: None,
            write: &WriteOptions::default(),
            dry_run: false,
            substitutes: false,
            build_logs: None,
        })?;
        let target = &*opened.target;
        let dir = target.store_dir();
        if let Some(cache) = target.as_signing() {
            let (paths, mut signed) = self.paths(args, cancel)?;
            for part in paths.chunks(PATHS_AT_ONCE) {
                signed.add(cache.sign(part)?, dir, &**self.store);
            }
            return Ok(signed);
        }
        let Some(daemon) = target.as_signature_target() else {
            bail!(UsageError(format!(
                "cannot sign paths of {store}: its protocol has no request for that; try ssh-ng://",
                store = self.store
            )));
        };
        let (mut infos, mut signed) = self.path_infos(args, cancel)?;
        infos.retain(|info| {
            if info.nar_size == 0 {
                signed.fail(&dir.full_path(&info.path), NO_NAR_SIZE);
            }
            info.nar_size > 0
        });
        for info in &mut infos {
            info.signatures.clear();
            self.keys.iter().for_each(|key| info.sign(dir, key));
        }
        for part in infos.chunks(PATHS_AT_ONCE) {
            signed.add(daemon.merge_signatures(part)?, dir, &**self.store);
        }
        Ok(signed)
    }

    /// Returns the paths of the command line, and what is known of them.
    fn paths(&self, args: &SignArgs, cancel: &Cancel) -> anyhow::Result<(Vec<StorePath>, Signed)> {
        let (_session, source) = self.open_source(cancel)?;
        let specs = requested(&args.paths, (&*source, self.store.layout()), None)?;
        let is_path = |spec: &PathSpec| match spec {
            PathSpec::Path(path) => Some(path.clone()),
            PathSpec::HashPart(_) => None,
        };
        let paths: Option<Vec<StorePath>> = specs.iter().map(is_path).collect();
        if let Some(paths) = paths.filter(|_| !args.recursive) {
            let signed = Signed {
                paths: paths.len(),
                ..Signed::default()
            };
            return Ok((paths, signed));
        }
        let (infos, signed) = self.query(&*source, &specs, (args.recursive, cancel))?;
        Ok((infos.into_iter().map(|info| info.path).collect(), signed))
    }

    /// As [`Signer::paths`], with the metadata of the paths.
    fn path_infos(
        &self,
        args: &SignArgs,
        cancel: &Cancel,
    ) -> anyhow::Result<(Vec<PathInfo>, Signed)> {
        let (_session, source) = self.open_source(cancel)?;
        let specs = requested(&args.paths, (&*source, None), None)?;
        self.query(&*source, &specs, (args.recursive, cancel))
    }

    /// Opens the store for queries. The session must outlive the source.
    fn open_source(&self, cancel: &Cancel) -> anyhow::Result<(Session, Arc<dyn Source>)> {
        let session = self.session(cancel);
        let stores = [self.store.clone()];
        let sources = Sources::open(&stores, SourceOrder::AsListed, &session)?;
        let source = sources.list.into_iter().next().ok_or(Error::NoSources)?;
        Ok((session, source))
    }

    fn query(
        &self,
        source: &dyn Source,
        specs: &[PathSpec],
        (recursive, cancel): (bool, &Cancel),
    ) -> anyhow::Result<(Vec<PathInfo>, Signed)> {
        let limit = self.settings.closure_limit();
        let closure = source.query_closure(specs, recursive, (limit, cancel))?;
        let infos = closure.found.into_values().map(|found| found.info);
        let infos: Vec<PathInfo> = infos.collect();
        let signed = Signed {
            paths: infos.len(),
            failures: closure.absent.iter().map(ToString::to_string).collect(),
            ..Signed::default()
        };
        Ok((infos, signed))
    }

    fn session(&self, cancel: &Cancel) -> Session {
        let events = Events::new(Arc::new(Display::default()));
        Session::new(cancel.clone(), events).with_options::<Network>(self.settings.network(true))
    }
}

fn report(
    args: &SignArgs,
    signer: &Signer<'_>,
    signed: &Signed,
    time: Duration,
) -> anyhow::Result<()> {
    let Signed { paths, added, .. } = signed;
    if args.json {
        print(json!({
            "paths": paths,
            "signed": added,
            "seconds": time.as_secs_f64(),
        }))?;
    }
    signed.failures.iter().for_each(eprint_error);
    let keys = signer.keys.iter().map(SecretKey::name);
    let keys = keys.collect::<Vec<_>>().join(" and ");
    let (all, store) = (counted(*paths, "path"), signer.store);
    eprint_line(match (*added, signed.failures.len()) {
        (0, 0) => format!("nothing to do: {all} of {store} had the signature of {keys}"),
        _ => format!("signed {added} of {all} of {store} as {keys}"),
    });
    match signed.failures.len() {
        0 => Ok(()),
        failed => {
            let line = format!("cannot sign {}", counted(failed, "path"));
            let kind = if signed.has_unusable {
                ErrorKind::Untrusted
            } else {
                ErrorKind::Failed
            };
            Err(exit::failures(&line, failed, kind))
        }
    }
}

/// The paths of one transaction, or the narinfos in memory.
const PATHS_AT_ONCE: usize = 1000;

/// Says what an interrupt leaves.
pub(super) const INTERRUPTED: &str =
    "interrupted; signatures that were added stay, and another run adds the rest";
