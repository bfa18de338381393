//! `floe why`: shows why an install of a path would succeed or fail.

pub(crate) mod args;
mod closure;
mod json;
pub(crate) mod page;
mod text;
mod trust;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{
    AvailabilityQuery, PathAvailability, RequestedPaths, SourceOrder, SourceResult, Sources,
};
use floe_format::{StoreDir, StorePath};
use floe_store::{ReferenceGraph, Root, StoreError, StoreReader};
use floe_transfer::{
    Cancel, CopyOptions, Error, ErrorKind, Events, PathSpec, RetryPolicy, Session, Source,
    StoreConfig,
};

use crate::copying::warn_of_unavailable;
use crate::display::{Display, warn};
use crate::exit;
use crate::messages::counted;
use crate::options::Settings;
use crate::package_names::PackageNames;
use crate::path_names;
use crate::root_links::warn_of_unreadable;
use crate::signals;
use args::WhyArgs;
use closure::InstallClosure;
use trust::Trust;

pub(crate) fn run(args: &WhyArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, args.store_dir.as_deref())?;
    let store = settings.store(args.local.choice(), StoreAccess::Read)?;
    let cancel = Cancel::default();
    signals::cancel_on_signals(&cancel)?;
    let events = Events::new(Arc::new(Display::default()));
    let session = Session::new(cancel.clone(), events)
        .with_options::<Network>(settings.network(args.refresh));
    let request =
        settings.copy_from(&args.from, store.clone(), RequestedPaths::Named(Vec::new()))?;
    let texts = requested(args, &settings, (&*store, &request.sources))?;
    let (sources, mut unusable) = match Sources::open(&request.sources, request.order, &session) {
        // The path may be valid, and the error is a part of the answer.
        Err(error) if !matches!(error, Error::Cancelled) => {
            warn(&error);
            let none = Sources::new(Vec::new(), RetryPolicy::default());
            (none, Some(error.kind()))
        }
        opened => (opened?, None),
    };
    warn_of_unavailable(&sources);
    let opened_store = open_store(&store, &session)?;
    let dir = match (&opened_store, store.layout()) {
        (Some(opened), _) => opened.store_dir().clone(),
        (None, Some(layout)) => layout.store_dir.clone(),
        (None, None) => settings.context.store_dir.clone().unwrap_or_default(),
    };
    let is_for = |source: &Arc<dyn Source>| source.is_for(&dir);
    if !sources.list.is_empty() && !sources.list.iter().any(is_for) {
        unusable = Some(ErrorKind::Usage);
    }
    let options = CopyOptions {
        trusted_keys: settings.trusted_keys(&args.trust)?,
        check_signatures: settings.check_signatures(&args.trust, &*store),
        closure_limit: settings.closure_limit(),
        cancel,
        ..CopyOptions::default()
    };
    let query = AvailabilityQuery {
        store: opened_store.as_deref(),
        layout: store.layout(),
        store_dir: &dir,
        sources: &sources,
        options: &options,
    };
    let specs = texts.iter().map(|text| PathSpec::parse(text, &dir));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let paths = specs.iter().map(|spec| query.find_path(spec));
    let paths: Vec<StorePath> = match (paths.collect::<Result<_, _>>(), unusable) {
        (Err(error), Some(kind)) => return Err(exit::failures(&error.to_string(), 1, kind)),
        (paths, _) => paths?,
    };
    let explanation = Explanation {
        found: query.run(&paths)?,
        paths,
        dir: &dir,
        sources: &sources,
        unusable,
        store: (&*store, &store.to_string()),
        trust: &Trust {
            settings: &settings,
            args: &args.trust,
            keys: &options.trusted_keys,
        },
        roots: OnceCell::new(),
    };
    if args.json {
        json::print_json(&explanation)?;
    } else {
        text::print_text(&explanation)?;
    }
    explanation.result()
}

/// All that is known about some paths.
pub(super) struct Explanation<'a> {
    paths: Vec<StorePath>,
    found: BTreeMap<StorePath, PathAvailability>,
    dir: &'a StoreDir,
    sources: &'a Sources,
    /// Why none of the caches can be used.
    unusable: Option<ErrorKind>,
    /// The store, and its URI.
    store: (&'a dyn StoreConfig, &'a str),
    trust: &'a Trust<'a>,
    /// The roots of a local store, and the paths that they keep.
    roots: OnceCell<(Vec<Root>, ReferenceGraph)>,
}

/// A root that keeps a path, with the chain from one to the other.
pub(super) struct Keeper {
    root: Root,
    chain: Vec<StorePath>,
}

impl Explanation<'_> {
    /// Returns the roots that keep a valid path of a local store; `None` of another store.
    fn keepers(&self, path: &StorePath) -> anyhow::Result<Option<Vec<Keeper>>> {
        let (store, _) = self.store;
        let Some(layout) = store.layout() else {
            return Ok(None);
        };
        let (roots, graph) = match self.roots.get() {
            Some(known) => known,
            None => {
                let reader = StoreReader::open(layout.clone())?;
                let found = reader.find_roots(store.facts().runtime_roots)?;
                warn_of_unreadable(&found.unreadable);
                let targets = found.roots.iter().map(|root| root.path.clone());
                let graph = reader.reference_graph(&targets.collect::<Vec<_>>())?;
                self.roots.get_or_init(|| (found.roots, graph))
            }
        };
        let keepers = roots.iter().filter_map(|root| {
            let chain = graph.chain(&root.path, path)?;
            let chain = chain.into_iter().cloned().collect();
            let root = root.clone();
            Some(Keeper { root, chain })
        });
        Ok(Some(keepers.collect()))
    }

    /// Succeeds if an install of all paths would. The kind of the error is that of the install.
    fn result(&self) -> anyhow::Result<()> {
        let closures = self
            .paths
            .iter()
            .map(|path| InstallClosure::of(path, &self.found));
        let closures: Vec<InstallClosure<'_>> = closures.collect();
        let missing = closures.iter().flat_map(|closure| &closure.missing);
        let count = missing.map(|(path, _)| path).collect::<BTreeSet<_>>().len();
        if count == 0 {
            return Ok(());
        }
        let blocking = closures.iter().flat_map(|closure| &closure.blocking);
        let kinds = blocking.map(|path| {
            let mut replies = path.replies.iter();
            let refusal = replies.find_map(|reply| match &reply.result {
                SourceResult::Refused(Error::StoreDirMismatch { .. }) => None,
                SourceResult::Refused(error) => Some(error.kind()),
                SourceResult::Usable | SourceResult::Absent => None,
            });
            refusal.unwrap_or(ErrorKind::Failed)
        });
        let kind = self.unusable.or_else(|| kinds.max());
        let paths = counted(count, "path");
        let message = format!("an install would fail: {paths} cannot be fetched");
        Err(exit::failures(
            &message,
            count,
            kind.unwrap_or(ErrorKind::Failed),
        ))
    }
}

/// Returns the texts of the paths, as an install finds them.
fn requested(
    args: &WhyArgs,
    settings: &Settings,
    (store, sources): (&dyn StoreConfig, &[Arc<dyn StoreConfig>]),
) -> anyhow::Result<Vec<String>> {
    let paths = settings.follow_links(&args.paths, &[store])?;
    let store_dir = store.layout().map(|layout| &layout.store_dir);
    let mut packages = PackageNames::new(settings, &args.names, (store_dir, args.refresh))?;
    if !args.from.is_empty() {
        packages.set_caches(sources);
    }
    Ok(packages
        .resolve(&args.paths, path_names::as_files(paths))?
        .texts)
}

/// Opens the store for queries. Returns `None` if it does not exist yet.
fn open_store(
    store: &Arc<dyn StoreConfig>,
    session: &Session,
) -> anyhow::Result<Option<Arc<dyn Source>>> {
    if store.is_new() {
        return Ok(None);
    }
    // An install makes the database or its tables.
    if let Some(layout) = store.layout()
        && let Err(StoreError::NoStore { .. } | StoreError::NoTables { .. }) =
            StoreReader::open(layout.clone())
    {
        return Ok(None);
    }
    let opened = Sources::open(std::slice::from_ref(store), SourceOrder::AsListed, session)?;
    Ok(opened.list.into_iter().next())
}
