//! Which store is served, from flags and from what the environment tells every Nix program.

use std::env;
use std::path::{Path, PathBuf};

use floe_engine::{LocalStoreUri, StoreUri};
use floe_format::StoreDir;
use floe_store::StoreLayout;

use crate::exit::UsageError;
use crate::options;

/// What the command line says of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreFlags<'a> {
    /// `--root`.
    pub(crate) root: Option<&'a Path>,
    /// `--store`.
    pub(crate) store: Option<&'a str>,
    /// `--store-dir`.
    pub(crate) store_dir: Option<&'a str>,
}

/// What the environment says of the store. An empty variable says nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreEnvironment {
    /// `NIX_REMOTE`.
    pub(crate) remote: Option<String>,
    /// `NIX_STORE_DIR`.
    pub(crate) store_dir: Option<String>,
    /// `NIX_STATE_DIR`.
    pub(crate) state_dir: Option<PathBuf>,
    /// `NIX_LOG_DIR`.
    pub(crate) log_dir: Option<PathBuf>,
}

impl StoreEnvironment {
    /// Errors: a variable that should be text is not UTF-8.
    pub(crate) fn read() -> Result<StoreEnvironment, UsageError> {
        Ok(StoreEnvironment {
            remote: text("NIX_REMOTE")?,
            store_dir: text("NIX_STORE_DIR")?,
            state_dir: path("NIX_STATE_DIR"),
            log_dir: path("NIX_LOG_DIR"),
        })
    }
}

/// A variable that names a path. An empty one says nothing.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// A variable that is text. An empty one says nothing.
pub(crate) fn text(name: &str) -> Result<Option<String>, UsageError> {
    let value = env::var_os(name).filter(|value| !value.is_empty());
    let text = value.map(|value| value.into_string());
    text.transpose()
        .map_err(|value| UsageError(format!("{name}={}: it is not UTF-8", value.display())))
}

/// The places of the store, and the directory of its build logs.
pub(crate) fn served_store(
    flags: &StoreFlags<'_>,
    environment: &StoreEnvironment,
) -> anyhow::Result<(StoreLayout, PathBuf)> {
    let store_dir = store_dir(flags, environment)?;
    let named = flags.store.or(environment.remote.as_deref());
    let text = named.unwrap_or("auto");
    let location = match flags.root {
        Some(root) => options::store_in_root(root, store_dir.as_ref())?,
        None => options::parse_store_uri(&direct_store_uri(text)?, store_dir.as_ref())?,
    };
    let StoreUri::Local(LocalStoreUri { mut layout, .. }) = location else {
        let reason = "floe serves a store of this machine: a directory, local, local?root=DIR \
                      or auto";
        return Err(UsageError(format!("cannot serve {text}: {reason}")).into());
    };
    // As in Nix, these two are about the store of the system, not about one below a root. They do
    // not follow NIX_STORE_DIR either.
    let is_plain = layout == StoreLayout::without_root(layout.store_dir.clone());
    let has_root = layout.real_store_dir != Path::new(layout.store_dir.as_str());
    let by_environment = flags.store_dir.is_none() && environment.store_dir.is_some();
    let log_dir = match (log_parameter(flags, text)?, &environment.log_dir) {
        (Some(dir), _) => dir,
        (None, Some(dir)) if !has_root => dir.clone(),
        (None, None) if !has_root && by_environment => StoreLayout::system().log_dir(),
        (None, _) => layout.log_dir(),
    };
    match &environment.state_dir {
        Some(state) if is_plain => layout.state_dir.clone_from(state),
        None if is_plain && by_environment => layout.state_dir = StoreLayout::system().state_dir,
        _ => {}
    }
    Ok((layout, log_dir))
}

fn store_dir(
    flags: &StoreFlags<'_>,
    environment: &StoreEnvironment,
) -> anyhow::Result<Option<StoreDir>> {
    let Some(text) = environment.store_dir.as_deref() else {
        return options::store_dir(flags.store_dir);
    };
    match flags.store_dir {
        Some(_) => options::store_dir(flags.store_dir),
        None => StoreDir::new(text)
            .map(Some)
            .map_err(|error| UsageError(format!("NIX_STORE_DIR={text}: {error}")).into()),
    }
}

/// floe reads the database itself. Who names the daemon means the store behind it.
fn direct_store_uri(text: &str) -> Result<String, UsageError> {
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let socket = match base {
        "daemon" => "",
        "auto" if query.split('&').all(is_cache_parameter) => return Ok("auto".into()),
        _ => match base.strip_prefix("unix://") {
            Some(socket) => socket,
            None => return Ok(text.into()),
        },
    };
    let mut parameters = match (socket, socket.strip_suffix("/daemon-socket/socket")) {
        ("" | "/nix/var/nix/daemon-socket/socket", _) => String::new(),
        (_, Some(state)) => {
            let state = state.replace('%', "%25").replace('&', "%26");
            format!("state={state}&")
        }
        (socket, None) => {
            return Err(UsageError(format!(
                "cannot tell which store is behind the daemon at {socket}: give its directory \
                 with --store"
            )));
        }
    };
    parameters.push_str(query);
    Ok(format!("local?{parameters}"))
}

/// nix-serve's wrapper sets this to turn a cache off that floe does not have.
fn is_cache_parameter(parameter: &str) -> bool {
    parameter.is_empty() || parameter.starts_with("path-info-cache-size=")
}

/// The parameter `log=` of the store's address.
fn log_parameter(flags: &StoreFlags<'_>, text: &str) -> Result<Option<PathBuf>, UsageError> {
    let query = match flags.root {
        Some(_) => "",
        None => text.split_once('?').map_or("", |(_, query)| query),
    };
    let Some(value) = query.split('&').find_map(|part| part.strip_prefix("log=")) else {
        return Ok(None);
    };
    match value.contains('%') {
        true => Err(UsageError(format!(
            "the parameter log={value}: floe reads no percent signs here; set NIX_LOG_DIR instead"
        ))),
        false => Ok(Some(PathBuf::from(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(store: &str, environment: &StoreEnvironment) -> (StoreLayout, PathBuf) {
        let flags = StoreFlags {
            store: Some(store),
            ..StoreFlags::default()
        };
        served_store(&flags, environment).unwrap()
    }

    #[test]
    fn the_daemon_and_its_socket_mean_the_store_behind_it() {
        let plain = StoreEnvironment::default();
        for text in [
            "local",
            "daemon",
            "unix://",
            "unix:///nix/var/nix/daemon-socket/socket",
            "daemon?path-info-cache-size=0",
        ] {
            let (layout, log) = served(text, &plain);
            assert_eq!(layout, StoreLayout::system(), "{text}");
            assert_eq!(log, Path::new("/nix/var/log/nix"), "{text}");
        }
    }

    #[test]
    fn a_socket_elsewhere_names_the_state_beside_it_or_is_refused() {
        let (layout, _) = served(
            "unix:///x%&/daemon-socket/socket",
            &StoreEnvironment::default(),
        );
        assert_eq!(layout.state_dir, Path::new("/x%&"));
        let message = direct_store_uri("unix:///run/nix.sock").unwrap_err().0;
        assert!(
            message.contains("/run/nix.sock") && message.contains("--store"),
            "{message}"
        );
    }

    #[test]
    fn nix_serves_own_nix_remote_is_auto() {
        let auto = served("auto", &StoreEnvironment::default());
        let environment = StoreEnvironment {
            remote: Some("auto?path-info-cache-size=0".into()),
            ..StoreEnvironment::default()
        };
        assert_eq!(
            served_store(&StoreFlags::default(), &environment).unwrap(),
            auto
        );
    }

    #[test]
    fn the_directories_of_the_environment_count_for_the_systems_store_alone() {
        let environment = StoreEnvironment {
            remote: None,
            store_dir: Some("/gnu/store".into()),
            state_dir: Some("/srv/state".into()),
            log_dir: Some("/srv/log".into()),
        };
        let (layout, log) = served("local", &environment);
        assert_eq!(layout.store_dir.as_str(), "/gnu/store");
        assert_eq!(layout.real_store_dir, Path::new("/gnu/store"));
        assert_eq!(layout.state_dir, Path::new("/srv/state"));
        assert_eq!(log, Path::new("/srv/log"));
        for text in ["/mnt", "local?root=/mnt"] {
            let (layout, log) = served(text, &environment);
            assert_eq!(layout.state_dir, Path::new("/mnt/nix/var/nix"), "{text}");
            assert_eq!(log, Path::new("/mnt/nix/var/log/nix"), "{text}");
        }
        let (layout, log) = served("local?state=/mine&log=/logs", &environment);
        assert_eq!(layout.state_dir, Path::new("/mine"));
        assert_eq!(log, Path::new("/logs"));
    }

    #[test]
    fn the_store_directory_of_the_environment_moves_neither_state_nor_logs() {
        let environment = StoreEnvironment {
            store_dir: Some("/gnu/store".into()),
            ..StoreEnvironment::default()
        };
        let (layout, log) = served("auto", &environment);
        assert_eq!(layout.real_store_dir, Path::new("/gnu/store"));
        assert_eq!(layout.state_dir, Path::new("/nix/var/nix"));
        assert_eq!(log, Path::new("/nix/var/log/nix"));
        let flags = StoreFlags {
            store_dir: Some("/gnu/store"),
            ..StoreFlags::default()
        };
        let (layout, log) = served_store(&flags, &environment).unwrap();
        assert_eq!(layout.state_dir, Path::new("/gnu/var/nix"));
        assert_eq!(log, Path::new("/gnu/var/log/nix"));
    }

    #[test]
    fn a_flag_wins_over_the_environment() {
        let environment = StoreEnvironment {
            remote: Some("/elsewhere".into()),
            store_dir: Some("/gnu/store".into()),
            ..StoreEnvironment::default()
        };
        let flags = StoreFlags {
            root: Some(Path::new("/mnt")),
            store_dir: Some("/nix/store"),
            store: None,
        };
        let (layout, _) = served_store(&flags, &environment).unwrap();
        assert_eq!(
            layout,
            StoreLayout::in_root(Path::new("/mnt"), StoreDir::default())
        );
    }

    #[test]
    fn a_cache_cannot_be_served_and_is_named() {
        let flags = StoreFlags {
            store: Some("https://cache.example.org"),
            ..StoreFlags::default()
        };
        let message = served_store(&flags, &StoreEnvironment::default())
            .unwrap_err()
            .to_string();
        assert!(message.contains("https://cache.example.org"), "{message}");
    }
}
