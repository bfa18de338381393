//! A local store by its URI.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StoreDir;
use floe_store::{LockWait, RuntimeRoots, StoreError, StoreLayout, StoreReader, StoreWriter};
use floe_transfer::store_uri::{absolute, parse_bool, parse_number};
use floe_transfer::{
    Error, Event, EventSink as _, IgnoredParameter, OpenTarget, Session, Source, SourceContext,
    StoreConfig, StoreFacts, StoreUri, TargetContext, UriContext, UriParameters,
};

use super::dry_run::ReadOnlyStore;
use super::source::LocalSource;
use super::target::LocalTarget;
use super::vanished_trees::VanishedTrees;

/// A local store with the parameters of its URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalStoreUri {
    pub(crate) layout: StoreLayout,
    /// Sources with lower numbers are queried first (`priority`).
    pub(crate) priority: i32,
    /// Whether paths of the store need no signature (`trusted`).
    pub(crate) trusted: bool,
    /// Whether paths into the store need a signature (`require-sigs`).
    require_sigs: Option<bool>,
    /// Whether the store must not be written (`read-only`).
    read_only: bool,
    /// Where a collection finds the paths that processes use (`use-roots-daemon`).
    runtime_roots: RuntimeRoots,
    /// The parameters without effect that the user should know of.
    ignored: Vec<IgnoredParameter>,
}

/// Returns a local store without parameters.
pub fn local_store(layout: StoreLayout) -> Arc<dyn StoreConfig> {
    Arc::new(LocalStoreUri {
        layout,
        priority: 0,
        trusted: false,
        require_sigs: None,
        read_only: false,
        runtime_roots: RuntimeRoots::Proc,
        ignored: Vec::new(),
    })
}

/// Parses `auto`, `local?…`, `local://ROOT` and a directory, with Nix's parameters.
pub(crate) fn parse_local(
    uri: &StoreUri,
    context: &UriContext,
) -> Result<Arc<dyn StoreConfig>, String> {
    if uri.scheme == "auto" && !uri.address.is_empty() {
        return Err("auto takes no address; use a directory or local?root=DIR".into());
    }
    let has_directories = context.store_dir.is_some() || context.state_dir.is_some();
    if uri.scheme == "auto" && uri.parameters.is_empty() && !has_directories {
        return Ok(local_store(StoreLayout::auto(context.data_home.as_deref())));
    }
    let root = Some(&*uri.address).filter(|root| !root.is_empty());
    let mut root = root
        .map(|root| directory(root, context.home.as_deref()))
        .transpose()?;
    let mut store_dir = context.store_dir.clone().unwrap_or_default();
    let (mut state, mut real) = (None, None);
    let (mut priority, mut trusted, mut read_only) = (0, false, false);
    let (mut require_sigs, mut ignored) = (None, Vec::new());
    let mut runtime_roots = RuntimeRoots::Proc;
    for (name, value) in &uri.parameters {
        match name.as_str() {
            "root" => root = Some(absolute(value)?),
            "store" => store_dir = StoreDir::new(value).map_err(|error| error.to_string())?,
            "state" => state = Some(absolute(value)?),
            "real" => real = Some(absolute(value)?),
            "priority" => priority = parse_number(name, value)?,
            "trusted" => trusted = parse_bool(name, value)?,
            "require-sigs" => require_sigs = Some(parse_bool(name, value)?),
            "read-only" => read_only = parse_bool(name, value)?,
            "use-roots-daemon" => {
                runtime_roots = if parse_bool(name, value)? {
                    RuntimeRoots::Daemon
                } else {
                    RuntimeRoots::Proc
                }
            }
            other => ignored.extend(PARAMETERS.ignored(uri, other)),
        }
    }
    let mut layout = match root {
        Some(root) => {
            check_root(&root)?;
            StoreLayout::in_root(&root, store_dir)
        }
        None => without_root(store_dir, context),
    };
    layout.state_dir = state.unwrap_or(layout.state_dir);
    layout.real_store_dir = real.unwrap_or(layout.real_store_dir);
    Ok(Arc::new(LocalStoreUri {
        layout,
        priority,
        trusted,
        require_sigs,
        read_only,
        runtime_roots,
        ignored,
    }))
}

/// Returns the layout of a store without a root directory. As in Nix, the state directory of the
/// context does not depend on the store directory.
fn without_root(store_dir: StoreDir, context: &UriContext) -> StoreLayout {
    let mut layout = StoreLayout::without_root(store_dir);
    if let Some(state_dir) = &context.state_dir {
        layout.state_dir.clone_from(state_dir);
    }
    layout
}

/// Refuses a root directory that is a part of a store, a binary cache, or the URI of a store.
///
/// Errors: the text says what to use instead.
pub fn check_root(root: &Path) -> Result<(), String> {
    let outer = if root.ends_with("nix/store") {
        root.parent().and_then(Path::parent)
    } else if root.ends_with("nix") && root.join("store").is_dir() {
        root.parent()
    } else {
        None
    };
    match (outer, root.to_string_lossy().contains(":/")) {
        (Some(outer), _) => Err(format!(
            "it is a part of the store below {0}; use {0}",
            outer.display()
        )),
        (None, true) => Err("it is a URI and not a directory; name stores with --store".into()),
        (None, false) if is_only_cache(root) => Err(format!(
            "it is a binary cache; use file://{} for the cache, or another directory for a store",
            root.display()
        )),
        (None, false) => Ok(()),
    }
}

/// Whether a directory is a binary cache, and has no store besides.
fn is_only_cache(root: &Path) -> bool {
    root.join("nix-cache-info").exists() && !root.join("nix/var/nix/db").exists()
}

/// Refuses a store whose URI forbids changes.
///
/// Errors: [`Error::InvalidStoreUri`].
pub fn check_writable(store: &dyn StoreConfig) -> Result<(), Error> {
    if !store.facts().is_read_only {
        return Ok(());
    }
    Err(Error::InvalidStoreUri {
        text: store.to_string(),
        reason: "it must not be written; leave out read-only=true".into(),
    })
}

/// Makes a directory absolute. `~` is the user's home directory.
pub(crate) fn directory(text: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let Some(below) = text
        .strip_prefix('~')
        .filter(|it| it.is_empty() || it.starts_with('/'))
    else {
        return absolute(text);
    };
    let home = home.ok_or("the home directory is not known; give the whole path")?;
    Ok(home.join(below.trim_start_matches('/')))
}

/// The parameters of a local store.
const PARAMETERS: UriParameters = UriParameters {
    used: &[
        "priority",
        "read-only",
        "real",
        "require-sigs",
        "root",
        "state",
        "store",
        "trusted",
        "use-roots-daemon",
    ],
    irrelevant: &[
        "build-dir",
        "ignore-gc-delete-failure",
        "log",
        "path-info-cache-size",
        "system-features",
        "want-mass-query",
    ],
    unsupported: &[],
};

impl fmt::Display for LocalStoreUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layout.real_store_dir.display().fmt(f)
    }
}

impl StoreConfig for LocalStoreUri {
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts {
            layout: Some(&self.layout),
            root_layout: Some(&self.layout),
            runtime_roots: self.runtime_roots,
            daemon_socket: None,
            can_substitute: false,
            is_read_only: self.read_only,
            is_trusted: self.trusted,
            server_may_sign: false,
            requires_signatures: self.require_sigs,
            secret_key_files: &[],
            ignored_parameters: &self.ignored,
        }
    }

    fn is_new(&self) -> bool {
        !self.layout.database_dir().join("schema").exists()
    }

    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let Session { cancel, events, .. } = context.session;
        let waiting = events.clone();
        let report = move |what: &_| waiting.event(Event::WaitingForDatabase { what });
        let lock_wait = LockWait::new(cancel.flag(), report);
        let reader = StoreReader::open_with(self.layout.clone(), lock_wait);
        Ok(Arc::new(LocalSource {
            reader: Arc::new(reader?),
            priority: self.priority,
            is_trusted: self.trusted,
            events: events.clone(),
        }))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        check_writable(self)?;
        let layout = self.layout.clone();
        if context.dry_run {
            let lock_wait = &context.write.lock_wait;
            let reader = match StoreReader::open_with(layout.clone(), lock_wait.clone()) {
                // An install creates the tables.
                Err(StoreError::NoStore { .. } | StoreError::NoTables { .. }) => None,
                reader => Some(reader?),
            };
            let damaged = reader.as_ref().map(|it| it.query_damaged(lock_wait));
            let target = ReadOnlyStore {
                layout,
                damaged: damaged.transpose()?.unwrap_or_default().into(),
                vanished_trees: VanishedTrees::default(),
                reader,
            };
            return Ok(OpenTarget {
                target: Arc::new(target),
                local_store: None,
            });
        }
        let store = Arc::new(StoreWriter::open_with(layout, context.write)?);
        Ok(OpenTarget {
            target: Arc::new(LocalTarget::new(store.clone())),
            local_store: Some(store),
        })
    }
}
