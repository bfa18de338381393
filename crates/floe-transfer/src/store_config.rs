//! A store or binary cache that is named and not open yet.

use std::any::Any;
use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use floe_format::{Compression, StoreDir};
use floe_store::{RuntimeRoots, StoreLayout, StoreWriter, WriteOptions};

use crate::error::Error;
use crate::named_objects::NamedObjects;
use crate::session::Session;
use crate::source::Source;
use crate::target::Target;
use crate::uri_parameters::IgnoredParameter;

/// A store or binary cache as its URI describes it; Nix's class of that name.
///
/// `Display` prints the URI without parameters and credentials. A new kind of store implements this
/// trait, [`Source`] and, if floe writes to it, [`Target`], and adds one line to the registry of
/// floe-copy.
pub trait StoreConfig: Equals + Debug + Display + Send + Sync {
    /// Returns the plain facts about the store.
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts::default()
    }

    /// Returns the address under which facts of the store are remembered: the text of `Display` and
    /// the parameters that make another store of it.
    fn address(&self) -> String {
        self.to_string()
    }

    /// Whether [`StoreConfig::open_target`] would create the store.
    fn is_new(&self) -> bool {
        false
    }

    /// Opens the store for reading, or begins to: see [`Source::open_result`].
    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error>;

    /// Opens the store for writing. Creates it if it does not exist, unless it is a dry run.
    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error>;

    /// Returns the interface to small objects beside the paths; `None` if the store has none. Sends
    /// nothing yet.
    fn open_objects(&self, _session: &Session) -> Result<Option<Arc<dyn NamedObjects>>, Error> {
        Ok(None)
    }
}

/// The plain facts about a store, by its kind and its URI.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFacts<'a> {
    /// The directories of a local store; `None` for every other kind.
    pub layout: Option<&'a StoreLayout>,
    /// The directories by which links on this machine are checked that become GC roots of the
    /// store; `None` if the store takes no such roots.
    pub root_layout: Option<&'a StoreLayout>,
    /// Where a collection in a local store finds the paths that processes use.
    pub runtime_roots: RuntimeRoots,
    /// The socket of the daemon of this machine behind which the store is; `None` for every other
    /// kind.
    pub daemon_socket: Option<&'a Path>,
    /// Whether the store has substituters of its own. It fetches paths from them on request.
    pub can_substitute: bool,
    /// Whether the URI forbids changes (`read-only`).
    pub is_read_only: bool,
    /// Whether paths of this store need no signature (`trusted`).
    pub is_trusted: bool,
    /// Whether paths into this store need a signature, if its URI says so (`require-sigs`). It then
    /// overrides the setting.
    pub requires_signatures: Option<bool>,
    /// Whether the store is behind a server, which may sign what it receives.
    pub server_may_sign: bool,
    /// The files of the secret keys that sign what is written.
    pub secret_key_files: &'a [PathBuf],
    /// The parameters of the URI without effect that the user should know of.
    pub ignored_parameters: &'a [IgnoredParameter],
}

impl dyn StoreConfig + '_ {
    /// Returns the directories of a local store; `None` for every other kind.
    pub fn layout(&self) -> Option<&StoreLayout> {
        self.facts().layout
    }
}

/// Compares stores of any kinds.
pub trait Equals: Any {
    /// Whether two URIs mean the same store, with the same parameters.
    fn equals(&self, other: &dyn StoreConfig) -> bool;
}

impl<T: Any + PartialEq> Equals for T {
    fn equals(&self, other: &dyn StoreConfig) -> bool {
        let other: &dyn Any = other;
        other.downcast_ref() == Some(self)
    }
}

/// The defaults for parts that a store URI leaves out.
#[derive(Clone, Debug, Default)]
pub struct UriContext {
    /// The store directory of a local store.
    pub store_dir: Option<StoreDir>,
    /// The state directory of a local store without a root directory.
    pub state_dir: Option<PathBuf>,
    /// The directory of the user's data, for `auto`.
    pub data_home: Option<PathBuf>,
    /// The user's home directory, for directories that begin with `~/`.
    pub home: Option<PathBuf>,
    /// The socket of the Nix daemon, if it is not at its usual place.
    pub daemon_socket: Option<PathBuf>,
    /// Further options of ssh, as a shell would split them.
    pub ssh_options: String,
    /// The longest time until ssh is connected (`connect-timeout`), if there is a limit.
    pub connect_timeout: Option<Duration>,
    /// The directory for temporary files, if it is not `/tmp`.
    pub temporary_dir: Option<PathBuf>,
    /// The compression of NARs in a binary cache, if it is not Nix's default.
    pub compression: Option<Compression>,
    /// The files of the keys that sign what is written to a binary cache whose URI names no keys.
    pub secret_keys: Vec<PathBuf>,
    /// The files of keys that sign in addition to those of the URI.
    pub further_secret_keys: Vec<PathBuf>,
    /// Whether a binary cache as a target reads the narinfo of each path that it has.
    pub check_present: bool,
}

/// The options for opening a source.
#[derive(Debug)]
pub struct SourceContext<'a> {
    /// The things that all stores of the copy share.
    pub session: &'a Session,
    /// Whether the sources are the configured substituters, and the user has not named them.
    pub are_substituters: bool,
    /// Receives a message when a source that was still opening can be used, or cannot.
    pub opened: mpsc::Sender<()>,
}

/// The options for opening a target.
#[derive(Clone, Debug)]
pub struct TargetContext<'a> {
    /// The things that all stores of the copy share.
    pub session: &'a Session,
    /// The store directory of a new binary cache.
    pub store_dir: Option<StoreDir>,
    /// The options of a local store.
    pub write: &'a WriteOptions,
    /// Whether the target must not be created or changed.
    pub dry_run: bool,
    /// Whether the target itself first fetches missing paths from its substituters, if it can
    /// ([`StoreFacts::can_substitute`]).
    pub substitutes: bool,
    /// The directory with the build logs of the source, such as `/nix/var/log/nix`, if a binary
    /// cache as the target shall receive the logs of its new paths.
    pub build_logs: Option<PathBuf>,
}

/// An open target.
#[derive(Clone, Debug)]
pub struct OpenTarget {
    /// The target.
    pub target: Arc<dyn Target>,
    /// The local store behind it, for GC roots and profiles. Absent in a dry run.
    pub local_store: Option<Arc<StoreWriter>>,
}
