//! Which store is meant, from store URIs, flags, configuration and environment.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_copy::{check_root, local_store, resolve_auto_target, resolve_store_uri};
use floe_format::StoreDir;
use floe_store::StoreLayout;
use floe_transfer::{Error, IgnoredParameter, StoreConfig, UriContext, redact_credentials};

use crate::config::Config;
use crate::environment::{Environment, NIX_STORE_DIR};
use crate::error::ConfigError;

impl Environment {
    /// Returns the defaults for store URIs. `store_dir` is the value of `--store-dir`, which
    /// overrides `NIX_STORE_DIR`.
    ///
    /// As in Nix, `NIX_STORE_DIR` does not move the state directory.
    ///
    /// Errors: [`ConfigError::StoreDir`], [`ConfigError::NotUtf8`].
    pub fn uri_context(&self, store_dir: Option<&str>) -> Result<UriContext, ConfigError> {
        let by_variable = match store_dir {
            Some(_) => None,
            None => self.store_dir()?,
        };
        let system_state = by_variable.map(|_| StoreLayout::system().state_dir);
        let (given, text) = match by_variable {
            Some(_) => (NIX_STORE_DIR, by_variable),
            None => ("--store-dir", store_dir),
        };
        let store_dir = text.map(StoreDir::new).transpose();
        Ok(UriContext {
            store_dir: store_dir.map_err(|error| ConfigError::StoreDir {
                given,
                reason: error.to_string(),
            })?,
            state_dir: self.state_dir().or(system_state),
            data_home: self.data_home(),
            home: self.home().map(Path::to_owned),
            daemon_socket: self.daemon_socket(),
            ssh_options: self.ssh_options()?.unwrap_or_default().to_owned(),
            temporary_dir: self.temporary_dir(),
            ..UriContext::default()
        })
    }
}

/// Which store a command means: the one of `--root`, or that of a store URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreChoice<'a> {
    /// The local store below this directory.
    Root(&'a Path),
    /// The store of this URI.
    Uri(&'a str),
}

/// The use of a store by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAccess {
    /// floe reads the store itself, also the one behind a daemon on this machine.
    Read,
    /// floe writes through the daemon if this user may not write to the local store.
    Write,
}

impl<'a> StoreChoice<'a> {
    /// The URI of the configured store.
    pub const AUTO: StoreChoice<'static> = StoreChoice::Uri("auto");

    /// Returns the choice of `--root` and `--store`; without both, the configured store.
    pub fn of_flags(root: Option<&'a Path>, store: Option<&'a str>) -> StoreChoice<'a> {
        match (root, store) {
            (Some(root), _) => StoreChoice::Root(root),
            (None, Some(uri)) => StoreChoice::Uri(uri),
            (None, None) => StoreChoice::AUTO,
        }
    }

    /// Returns the store that does not depend on the configuration. `auto` is the store of this
    /// machine or user.
    ///
    /// Errors: [`ConfigError::StoreUri`], [`ConfigError::RootDir`], [`ConfigError::RootArgument`].
    pub fn resolve(self, context: &UriContext) -> Result<Arc<dyn StoreConfig>, ConfigError> {
        let root = match self {
            StoreChoice::Uri(uri) => return Ok(resolve_store_uri(uri, context)?),
            StoreChoice::Root(root) => root,
        };
        let root = if root.to_str().is_some_and(|text| text.contains("://")) {
            root.to_owned()
        } else {
            std::path::absolute(root).map_err(ConfigError::RootDir)?
        };
        check_root(&root).map_err(|reason| ConfigError::RootArgument {
            root: root.clone(),
            reason,
        })?;
        let dir = context.store_dir.clone().unwrap_or_default();
        Ok(local_store(StoreLayout::in_root(&root, dir)))
    }
}

impl Config {
    /// Returns the store of a choice, where `auto` is the configured store, as for Nix.
    ///
    /// Errors: those of [`StoreChoice::resolve`], [`ConfigError::ConfiguredStore`].
    pub fn resolve_store(
        &self,
        choice: StoreChoice<'_>,
        access: StoreAccess,
        context: &UriContext,
    ) -> Result<Arc<dyn StoreConfig>, ConfigError> {
        if choice != StoreChoice::AUTO {
            return choice.resolve(context);
        }
        let configured: &str = self.store.get();
        let socket = daemon_socket(configured);
        match (access, configured) {
            (StoreAccess::Write, "" | "auto") => Ok(resolve_auto_target("daemon", context)?),
            (StoreAccess::Write, daemon) if socket.is_some() => {
                Ok(resolve_auto_target(daemon, context)?)
            }
            (StoreAccess::Read, configured)
                if matches!(configured, "" | "auto") || socket.is_some() =>
            {
                choice.resolve(context)
            }
            _ => resolve_store_uri(configured, context).map_err(|error| {
                ConfigError::ConfiguredStore {
                    error: Box::new(error),
                    origin: self.store.source().clone(),
                }
            }),
        }
    }

    /// Returns the configured substituters, each of them once, and the errors of those that floe
    /// cannot use. Nix ignores such substituters as well.
    pub fn substituters(&self, context: &UriContext) -> (Vec<Arc<dyn StoreConfig>>, Vec<Error>) {
        let (mut stores, mut errors): (Vec<Arc<dyn StoreConfig>>, _) = (Vec::new(), Vec::new());
        for text in &self.substituters.get().0 {
            match resolve_store_uri(text, context) {
                Ok(store) => {
                    let is_known = |known: &Arc<dyn StoreConfig>| known.equals(&*store);
                    if !stores.iter().any(is_known) {
                        stores.push(store);
                    }
                }
                Err(error) => errors.push(error),
            }
        }
        (stores, errors)
    }
}

/// The flags that name the store to serve.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreFlags<'a> {
    /// `--root`.
    pub root: Option<&'a Path>,
    /// `--store`.
    pub store: Option<&'a str>,
    /// `--store-dir`.
    pub store_dir: Option<&'a str>,
}

/// A store to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedStore {
    /// The directories of the store.
    pub layout: StoreLayout,
    /// The directory of its build logs.
    pub log_dir: PathBuf,
    /// The parameters of its URI without effect that the user should know of.
    pub ignored_parameters: Vec<IgnoredParameter>,
    /// Whether it accepts only paths that a trusted key has signed, if its URI says so.
    pub requires_signatures: Option<bool>,
}

/// Returns the store to serve: that of the flags, else that of the environment.
///
/// Errors: variants of [`ConfigError`] about stores.
pub fn served_store(
    flags: &StoreFlags<'_>,
    environment: &Environment,
) -> Result<ServedStore, ConfigError> {
    let context = environment.uri_context(flags.store_dir)?;
    let text = match flags.store {
        Some(store) => store,
        None => environment.remote()?.unwrap_or("auto"),
    };
    let direct = direct_store_uri(text);
    let location = match flags.root {
        Some(root) => StoreChoice::Root(root).resolve(&context)?,
        None => StoreChoice::Uri(&direct?).resolve(&context)?,
    };
    let Some(layout) = location.layout().cloned() else {
        return Err(ConfigError::NotServable(redact_credentials(text)));
    };
    let flags = StoreFlags {
        store: Some(text),
        ..*flags
    };
    Ok(ServedStore {
        log_dir: build_log_dir(&layout, &flags, environment)?,
        layout,
        ignored_parameters: location.facts().ignored_parameters.to_vec(),
        requires_signatures: location.facts().requires_signatures,
    })
}

/// Returns the directory with the build logs of the local store that the flags name.
///
/// Errors: [`ConfigError::LogParameter`], and those about the environment.
pub fn build_log_dir(
    layout: &StoreLayout,
    flags: &StoreFlags<'_>,
    environment: &Environment,
) -> Result<PathBuf, ConfigError> {
    // As in Nix, NIX_LOG_DIR concerns the store of the system, not one below a root. Its default
    // does not follow NIX_STORE_DIR either.
    let has_root = layout.real_store_dir != Path::new(layout.store_dir.as_str());
    let by_environment = flags.store_dir.is_none() && environment.store_dir()?.is_some();
    let parameter = log_parameter(flags)?;
    Ok(match (parameter, environment.log_dir()) {
        (Some(dir), _) => dir,
        (None, Some(dir)) if !has_root => dir,
        (None, None) if !has_root && by_environment => StoreLayout::system().log_dir(),
        (None, _) => layout.log_dir(),
    })
}

/// The socket that a store URI names as a daemon's; empty for the usual daemon.
fn daemon_socket(text: &str) -> Option<&str> {
    match text {
        "daemon" => Some(""),
        _ => text.strip_prefix("unix://"),
    }
}

/// Replaces the URI of a daemon by that of the store behind it, whose database floe reads itself.
fn direct_store_uri(text: &str) -> Result<String, ConfigError> {
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    if base == "auto" && query.split('&').all(is_cache_parameter) {
        return Ok("auto".into());
    }
    let Some(socket) = daemon_socket(base) else {
        return Ok(text.into());
    };
    let mut parameters = match (socket, socket.strip_suffix("/daemon-socket/socket")) {
        ("" | "/nix/var/nix/daemon-socket/socket", _) => String::new(),
        (_, Some(state)) => {
            let state = state.replace('%', "%25").replace('&', "%26");
            format!("state={state}&")
        }
        (socket, None) => return Err(ConfigError::UnknownSocket(socket.to_owned())),
    };
    parameters.push_str(query);
    Ok(format!("local?{parameters}"))
}

/// Whether a parameter sets a cache that floe does not have. nix-serve's wrapper turns it off so.
fn is_cache_parameter(parameter: &str) -> bool {
    parameter.is_empty() || parameter.starts_with("path-info-cache-size=")
}

/// The parameter `log=` of the store URI.
fn log_parameter(flags: &StoreFlags<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let text = flags.store.filter(|_| flags.root.is_none());
    let query = text.and_then(|text| text.split_once('?'));
    let query = query.map_or("", |(_, query)| query);
    let Some(value) = query.split('&').find_map(|part| part.strip_prefix("log=")) else {
        return Ok(None);
    };
    if value.contains('%') {
        Err(ConfigError::LogParameter(value.into()))
    } else {
        Ok(Some(PathBuf::from(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::tests::environment;

    fn try_served(
        flags: &StoreFlags<'_>,
        variables: &[(&str, &str)],
    ) -> Result<ServedStore, ConfigError> {
        served_store(flags, &environment(variables))
    }

    fn served(store: &str, variables: &[(&str, &str)]) -> (StoreLayout, PathBuf) {
        let flags = StoreFlags {
            store: Some(store),
            ..StoreFlags::default()
        };
        let served = try_served(&flags, variables).unwrap();
        (served.layout, served.log_dir)
    }

    #[test]
    fn substituter_in_other_spelling_is_the_same() {
        let environment = environment(&[]);
        let uris = "https://c?trusted=1&priority=3 https://c/?priority=3&trusted=true \
                    https://c/?trusted=1&priority=3&parallel-compression=true https://c \
                    /mnt local?root=/mnt gs://bucket";
        let config = Config::load(&environment, &[("substituters", uris)]).unwrap();
        let (stores, errors) = config.substituters(&UriContext::default());
        let names: Vec<String> = stores.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["https://c", "https://c", "/mnt/nix/store"]);
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn state_variable_is_default_of_store_without_root() {
        let variables = [("NIX_STATE_DIR", "/srv//state/"), ("HOME", "/home/u")];
        let context = environment(&variables).uri_context(None).unwrap();
        for (text, state) in [
            ("auto", "/srv/state"),
            ("local", "/srv/state"),
            ("local?store=/gnu/store", "/srv/state"),
            ("local?state=/mine", "/mine"),
            ("local?root=/mnt", "/mnt/nix/var/nix"),
            ("/mnt", "/mnt/nix/var/nix"),
        ] {
            let store = resolve_store_uri(text, &context).unwrap();
            let state_dir = &store.layout().unwrap().state_dir;
            assert_eq!(state_dir, Path::new(state), "{text}");
        }
    }

    #[test]
    fn daemon_and_its_socket_mean_the_store_behind_it() {
        for text in [
            "local",
            "daemon",
            "unix://",
            "unix:///nix/var/nix/daemon-socket/socket",
            "daemon?path-info-cache-size=0",
        ] {
            let (layout, log) = served(text, &[]);
            assert_eq!(layout, StoreLayout::system(), "{text}");
            assert_eq!(log, Path::new("/nix/var/log/nix"), "{text}");
        }
    }

    #[test]
    fn other_socket_names_its_state_directory_or_is_refused() {
        let (layout, _) = served("unix:///x%&/daemon-socket/socket", &[]);
        assert_eq!(layout.state_dir, Path::new("/x%&"));
        let message = direct_store_uri("unix:///run/nix.sock").unwrap_err();
        let message = message.to_string();
        assert!(
            message.contains("/run/nix.sock") && message.contains("--store"),
            "{message}"
        );
    }

    #[test]
    fn nix_remote_of_nix_serves_wrapper_means_auto() {
        let (layout, log_dir) = served("auto", &[]);
        let remote = [("NIX_REMOTE", "auto?path-info-cache-size=0")];
        let served = try_served(&StoreFlags::default(), &remote).unwrap();
        assert_eq!((served.layout, served.log_dir), (layout, log_dir));
        assert_eq!(served.ignored_parameters, []);
    }

    #[test]
    fn state_and_log_variables_concern_the_system_store_only() {
        let variables = [
            ("NIX_STORE_DIR", "/gnu/store"),
            ("NIX_STATE_DIR", "/srv/state"),
            ("NIX_LOG_DIR", "/srv/log"),
        ];
        let (layout, log) = served("local", &variables);
        assert_eq!(layout.store_dir.as_str(), "/gnu/store");
        assert_eq!(layout.real_store_dir, Path::new("/gnu/store"));
        assert_eq!(layout.state_dir, Path::new("/srv/state"));
        assert_eq!(log, Path::new("/srv/log"));
        for text in ["/mnt", "local?root=/mnt"] {
            let (layout, log) = served(text, &variables);
            assert_eq!(layout.state_dir, Path::new("/mnt/nix/var/nix"), "{text}");
            assert_eq!(log, Path::new("/mnt/nix/var/log/nix"), "{text}");
        }
        let (layout, log) = served("local?state=/mine&log=/logs", &variables);
        assert_eq!(layout.state_dir, Path::new("/mine"));
        assert_eq!(log, Path::new("/logs"));
    }

    #[test]
    fn nix_store_dir_moves_neither_state_nor_logs() {
        let variables = [("NIX_STORE_DIR", "/gnu/store")];
        let (layout, log) = served("auto", &variables);
        assert_eq!(layout.real_store_dir, Path::new("/gnu/store"));
        assert_eq!(layout.state_dir, Path::new("/nix/var/nix"));
        assert_eq!(log, Path::new("/nix/var/log/nix"));
        let flags = StoreFlags {
            store_dir: Some("/gnu/store"),
            ..StoreFlags::default()
        };
        let served = try_served(&flags, &variables).unwrap();
        assert_eq!(served.layout.state_dir, Path::new("/gnu/var/nix"));
        assert_eq!(served.log_dir, Path::new("/gnu/var/log/nix"));
    }

    #[test]
    fn flags_win_over_the_environment() {
        let variables = [
            ("NIX_REMOTE", "/elsewhere"),
            ("NIX_STORE_DIR", "/gnu/store"),
        ];
        let flags = StoreFlags {
            root: Some(Path::new("/mnt")),
            store_dir: Some("/nix/store"),
            store: None,
        };
        let served = try_served(&flags, &variables).unwrap();
        assert_eq!(
            served.layout,
            StoreLayout::in_root(Path::new("/mnt"), StoreDir::default())
        );
    }

    #[test]
    fn binary_cache_cannot_be_served() {
        let flags = StoreFlags {
            store: Some("https://cache.example.org"),
            ..StoreFlags::default()
        };
        let message = try_served(&flags, &[]).unwrap_err().to_string();
        assert!(message.contains("https://cache.example.org"), "{message}");
    }
}
