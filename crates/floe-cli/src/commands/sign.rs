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
use floe_format::{SecretKey, StorePath};
use floe_store::{Signing, StoreLayout, StoreReader, StoreWriter, WriteOptions};
use floe_transfer::{
    Cancel, Error, ErrorKind, Events, PathSpec, Session, StoreConfig, TargetContext,
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
        None if store.facts().secret_key_files.is_empty() => bail!(UsageError(format!(
            "cannot sign paths of {store}: floe signs in caches and local stores; run floe sign \
             auto on that machine"
        ))),
        None => signer.sign_in_cache(args, &cancel),
    };
    let signed = signed.map_err(|error| match error.downcast_ref() {
        Some(Error::Cancelled) => error.context(INTERRUPTED),
        _ => error,
    })?;
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

    fn fail_absent(&mut self, path: &str, store: &dyn StoreConfig) {
        self.fail(path, &format!("{store} does not have it"));
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
            let results = writer.sign(part, self.keys)?;
            for (path, result) in part.iter().zip(results) {
                let path = || dir.full_path(path);
                match result {
                    Signing::Added => signed.added += 1,
                    Signing::Present => {}
                    Signing::Absent => signed.fail_absent(&path(), &**self.store),
                    Signing::NoNarSize => signed.fail(&path(), NO_NAR_SIZE),
                    Signing::DamagedRow(reason) => signed.fail(
                        &path(),
                        &format!("its row in the database: {reason}; try floe verify --repair"),
                    ),
                }
            }
        }
        Ok(signed)
    }

    fn sign_in_cache(&self, args: &SignArgs, cancel: &Cancel) -> anyhow::Result<Signed> {
        let (paths, mut signed) = self.paths(args, cancel)?;
        let session = self.session(cancel);
        let opened = self.store.open_target(&TargetContext {
            session: &session,
            store_dir: None,
            write: &WriteOptions::default(),
            dry_run: false,
            substitutes: false,
            build_logs: None,
        })?;
        let target = opened.target.as_signing();
        let target = target.ok_or(Error::Internal("a cache with keys does not sign"))?;
        let dir = opened.target.store_dir();
        for part in paths.chunks(PATHS_AT_ONCE) {
            let outcome = target.sign(part)?;
            signed.added += outcome.signed.len();
            for path in &outcome.absent {
                signed.fail_absent(&dir.full_path(path), &**self.store);
            }
            for (path, reason) in &outcome.unusable {
                signed.has_unusable = true;
                signed.fail(&dir.full_path(path), reason);
            }
        }
        Ok(signed)
    }

    /// Returns the paths of the command line, and what is known of them.
    fn paths(&self, args: &SignArgs, cancel: &Cancel) -> anyhow::Result<(Vec<StorePath>, Signed)> {
        let session = self.session(cancel);
        let stores = [self.store.clone()];
        let sources = Sources::open(&stores, SourceOrder::AsListed, &session)?;
        let [source] = &*sources.list else {
            return Err(Error::NoSources.into());
        };
        let specs = requested(&args.paths, (&**source, self.store.layout()), None)?;
        let mut signed = Signed::default();
        let is_path = |spec: &PathSpec| match spec {
            PathSpec::Path(path) => Some(path.clone()),
            PathSpec::HashPart(_) => None,
        };
        let paths: Option<Vec<StorePath>> = specs.iter().map(is_path).collect();
        let paths = match paths.filter(|_| !args.recursive) {
            Some(paths) => paths,
            None => {
                let limit = self.settings.closure_limit();
                let closure = source.query_closure(&specs, args.recursive, (limit, cancel))?;
                signed.failures = closure.absent.iter().map(ToString::to_string).collect();
                closure.found.into_keys().collect()
            }
        };
        signed.paths = paths.len();
        Ok((paths, signed))
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

const INTERRUPTED: &str =
    "interrupted; signatures that were added stay, and another run adds the rest";

const NO_NAR_SIZE: &str = "its NAR size is not registered; try floe verify --repair";
