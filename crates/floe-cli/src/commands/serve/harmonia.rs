//! The settings of harmonia, and what they mean to floe.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use floe_format::StoreDir;
use floe_server::{Listen, address};
use floe_store::StoreLayout;
use serde::Deserialize;

use crate::exit::UsageError;

/// The keys of the file, as harmonia names them. Another key is an error, there as here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct HarmoniaSettings {
    bind: Option<String>,
    workers: Option<usize>,
    max_connection_rate: Option<u64>,
    max_connections: Option<usize>,
    /// What `nix-cache-info` says.
    pub(crate) priority: Option<i32>,
    /// Whether NARs go out compressed to clients that ask for it.
    pub(crate) enable_compression: Option<bool>,
    zstd: Option<toml::Table>,
    virtual_nix_store: Option<String>,
    real_nix_store: Option<PathBuf>,
    nix_db_path: Option<PathBuf>,
    #[serde(default)]
    sign_key_paths: Vec<PathBuf>,
    sign_key_path: Option<PathBuf>,
    tls_cert_path: Option<PathBuf>,
    tls_key_path: Option<PathBuf>,
}

impl HarmoniaSettings {
    /// Reads a file. What is wrong with it is said with its name.
    pub(crate) fn read(file: &Path) -> anyhow::Result<HarmoniaSettings> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("reading the settings in {}", file.display()))?;
        let named = |UsageError(reason)| UsageError(format!("{}: {reason}", file.display()));
        Ok(HarmoniaSettings::parse(&text).map_err(named)?)
    }

    fn parse(text: &str) -> Result<HarmoniaSettings, UsageError> {
        let settings: HarmoniaSettings = toml::from_str(text)
            .map_err(|error| UsageError(error.to_string().trim().to_owned()))?;
        for (key, path) in [
            ("tls_cert_path", &settings.tls_cert_path),
            ("tls_key_path", &settings.tls_key_path),
        ] {
            if path.is_some() {
                return Err(address::tls_unsupported(key).into());
            }
        }
        if settings.workers == Some(0) {
            return Err(UsageError("workers must be greater than 0".into()));
        }
        // Even what a flag replaces must make sense.
        settings.listen()?;
        settings.store(None)?;
        Ok(settings)
    }

    /// What is accepted and does nothing, or something else than there.
    pub(crate) fn notes(&self) -> Vec<&'static str> {
        [
            (
                self.max_connection_rate.is_some(),
                "max_connection_rate has no effect: connections are taken as fast as they come, \
                 up to max_connections",
            ),
            (
                self.zstd.is_some(),
                "[zstd] has no effect: floe chooses the level by itself",
            ),
            (
                self.sign_key_path.is_some(),
                "sign_key_path is deprecated: write sign_key_paths = [\"FILE\"]",
            ),
        ]
        .into_iter()
        .filter_map(|(applies, note)| applies.then_some(note))
        .collect()
    }

    /// `bind`. There, `[::]` takes IPv4 as well.
    pub(crate) fn listen(&self) -> Result<Option<Listen>, UsageError> {
        let Some(text) = &self.bind else {
            return Ok(None);
        };
        let listen =
            address::parse(text).map_err(|error| UsageError(format!("bind: {}", error.0)))?;
        Ok(Some(match listen {
            Listen::Tcp { host, port } if host == "::" => Listen::Tcp {
                host: "*".into(),
                port,
            },
            listen => listen,
        }))
    }

    /// `workers` are the threads that answer.
    pub(crate) fn threads(&self) -> Option<NonZeroUsize> {
        self.workers.and_then(NonZeroUsize::new)
    }

    /// `max_connections` counts for each of the workers; 0 is no statement.
    pub(crate) fn connections(&self) -> Option<usize> {
        let per_worker = self
            .max_connections
            .filter(|connections| *connections > 0)?;
        Some(per_worker.saturating_mul(self.workers.unwrap_or(DEFAULT_WORKERS)))
    }

    /// The files of the keys.
    pub(crate) fn secret_key_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.sign_key_paths.iter().chain(&self.sign_key_path)
    }

    /// The store, if one of its keys is there. `store_dir` wins over `virtual_nix_store`.
    pub(crate) fn store(&self, store_dir: Option<&str>) -> Result<Option<StoreLayout>, UsageError> {
        let parts = (
            &self.virtual_nix_store,
            &self.real_nix_store,
            &self.nix_db_path,
        );
        if let (None, None, None) = parts {
            return Ok(None);
        }
        let text = store_dir.or(self.virtual_nix_store.as_deref());
        let store_dir = match text {
            Some(text) => StoreDir::new(text)
                .map_err(|error| UsageError(format!("virtual_nix_store {text:?}: {error}")))?,
            None => StoreDir::default(),
        };
        let mut layout = StoreLayout::without_root(store_dir);
        if let Some(real) = &self.real_nix_store {
            let real = absolute("real_nix_store", real)?;
            let prefix = real.parent().unwrap_or(Path::new("/"));
            layout.state_dir = prefix.join("var/nix");
            layout.real_store_dir = real;
        }
        if let Some(database) = &self.nix_db_path {
            layout.state_dir = state_dir_of_database(database)?;
        }
        Ok(Some(layout))
    }
}

/// Nix keeps more beside its database than the file itself, and always at the same place.
fn state_dir_of_database(database: &Path) -> Result<PathBuf, UsageError> {
    let path = absolute("nix_db_path", database)?;
    match path.parent().and_then(Path::parent) {
        Some(state) if path.ends_with("db/db.sqlite") => Ok(state.to_owned()),
        _ => Err(UsageError(format!(
            "nix_db_path {}: floe opens the database as Nix does, as STATE/db/db.sqlite; give a \
             path that ends so, or the whole store with --store",
            database.display()
        ))),
    }
}

fn absolute(key: &str, path: &Path) -> Result<PathBuf, UsageError> {
    std::path::absolute(path)
        .map_err(|error| UsageError(format!("{key} {}: {error}", path.display())))
}

/// harmonia's own.
const DEFAULT_WORKERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> HarmoniaSettings {
        HarmoniaSettings::parse(text).unwrap()
    }

    fn refusal(text: &str) -> String {
        HarmoniaSettings::parse(text).unwrap_err().0
    }

    #[test]
    fn a_file_with_every_key_is_understood() {
        let settings = parse(
            "bind = '[::]:6000'\nworkers = 3\nmax_connection_rate = 5\nmax_connections = 10\n\
             priority = 50\nenable_compression = false\nvirtual_nix_store = '/nix/store'\n\
             real_nix_store = '/mnt/nix/store'\nnix_db_path = '/mnt/nix/var/nix/db/db.sqlite'\n\
             sign_key_paths = ['/a', '/b']\nsign_key_path = '/c'\n\
             [zstd]\nlevel = 3\nlong_distance_matching = false\nwindow_log = 20\n\
             max_ldm_encoders_per_worker = 2\n",
        );
        let every = Listen::Tcp {
            host: "*".into(),
            port: 6000,
        };
        assert_eq!(settings.listen().unwrap(), Some(every));
        assert_eq!(settings.threads(), NonZeroUsize::new(3));
        assert_eq!(settings.connections(), Some(30));
        assert_eq!(settings.priority, Some(50));
        let keys: Vec<_> = settings.secret_key_files().collect();
        assert_eq!(keys, [Path::new("/a"), Path::new("/b"), Path::new("/c")]);
        assert_eq!(settings.notes().len(), 3);
        let layout = settings.store(None).unwrap().unwrap();
        assert_eq!(
            layout,
            StoreLayout::in_root(Path::new("/mnt"), StoreDir::default())
        );
    }

    #[test]
    fn an_empty_file_says_nothing() {
        let settings = parse("");
        assert_eq!(settings, HarmoniaSettings::default());
        assert_eq!(settings.listen().unwrap(), None);
        assert_eq!(settings.store(Some("/gnu/store")).unwrap(), None);
        assert_eq!(settings.notes(), [""; 0]);
    }

    #[test]
    fn a_unix_socket_is_bound_as_there() {
        let socket = Some(Listen::Unix("/run/harmonia/socket".into()));
        let settings = parse("bind = 'unix:/run/harmonia/socket'");
        assert_eq!(settings.listen().unwrap(), socket);
    }

    #[test]
    fn an_unknown_key_and_tls_and_no_workers_are_errors() {
        assert!(refusal("prioritty = 3").contains("prioritty"));
        assert!(refusal("tls_cert_path = '/x'").contains("proxy"));
        assert!(refusal("tls_key_path = '/x'").contains("tls_key_path"));
        assert!(refusal("workers = 0").contains("workers"));
    }

    #[test]
    fn the_database_lies_beside_the_store_unless_its_path_says_otherwise() {
        let real = parse("real_nix_store = '/mnt/nix/store'");
        let layout = real.store(Some("/gnu/store")).unwrap().unwrap();
        assert_eq!(layout.store_dir.as_str(), "/gnu/store");
        assert_eq!(layout.state_dir, Path::new("/mnt/nix/var/nix"));
        let database = parse("nix_db_path = '/else/where/db/db.sqlite'");
        let layout = database.store(None).unwrap().unwrap();
        assert_eq!(layout.state_dir, Path::new("/else/where"));
        assert_eq!(layout.real_store_dir, Path::new("/nix/store"));
        let message = refusal("nix_db_path = '/srv/copy.sqlite'");
        assert!(message.contains("/srv/copy.sqlite") && message.contains("db/db.sqlite"));
    }
}
