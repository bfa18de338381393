//! The settings of harmonia, translated into those of `floe serve`.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use floe_format::StoreDir;
use floe_server::{Listen, address};
use floe_store::StoreLayout;
use serde::Deserialize;

use crate::error::ConfigError;

/// harmonia's settings, with its names. An unknown key is an error, as in harmonia.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct HarmoniaSettings {
    /// The file of the settings.
    #[serde(skip)]
    file: PathBuf,
    bind: Option<String>,
    workers: Option<usize>,
    max_connection_rate: Option<u64>,
    max_connections: Option<usize>,
    /// The priority in `nix-cache-info`.
    pub priority: Option<i32>,
    /// Whether to compress NARs for clients that accept it.
    pub enable_compression: Option<bool>,
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
    /// Reads a file.
    ///
    /// Errors: [`ConfigError::HarmoniaFile`], [`ConfigError::Harmonia`].
    pub fn read(file: &Path) -> Result<HarmoniaSettings, ConfigError> {
        let text = fs::read_to_string(file).map_err(|source| ConfigError::HarmoniaFile {
            file: file.to_owned(),
            source,
        })?;
        HarmoniaSettings::parse(file, &text)
    }

    fn parse(file: &Path, text: &str) -> Result<HarmoniaSettings, ConfigError> {
        let invalid = |reason: String| ConfigError::Harmonia {
            file: file.to_owned(),
            reason,
        };
        let settings: HarmoniaSettings =
            toml::from_str(text).map_err(|error| invalid(error.to_string().trim().to_owned()))?;
        let settings = HarmoniaSettings {
            file: file.to_owned(),
            ..settings
        };
        for (key, path) in [
            ("tls_cert_path", &settings.tls_cert_path),
            ("tls_key_path", &settings.tls_key_path),
        ] {
            if path.is_some() {
                return Err(invalid(address::tls_unsupported(key).0));
            }
        }
        if settings.workers == Some(0) {
            return Err(invalid("workers must be at least 1".into()));
        }
        // Report invalid values even if a flag will replace them.
        settings.listen()?;
        settings.store(None)?;
        Ok(settings)
    }

    /// Returns warnings about settings without effect, and about deprecated ones.
    pub fn warnings(&self) -> Vec<String> {
        let file = self.file.display();
        let ignored = |name, cause| format!("ignoring {name} in {file}: {cause}");
        let mut warnings = Vec::new();
        if self.max_connection_rate.is_some() {
            let cause = "floe accepts connections at any rate, up to max_connections";
            warnings.push(ignored("max_connection_rate", cause));
        }
        if self.zstd.is_some() {
            warnings.push(ignored("[zstd]", "floe chooses the level by itself"));
        }
        if self.sign_key_path.is_some() {
            warnings.push(format!(
                "reading the deprecated sign_key_path in {file}; write sign_key_paths = [\"FILE\"]"
            ));
        }
        warnings
    }

    /// The address to listen on (`bind`). In harmonia, `[::]` accepts IPv4 as well.
    ///
    /// Errors: [`ConfigError::Harmonia`].
    pub fn listen(&self) -> Result<Option<Listen>, ConfigError> {
        let Some(text) = &self.bind else {
            return Ok(None);
        };
        let listen =
            address::parse(text).map_err(|error| self.invalid(format!("bind: {}", error.0)))?;
        Ok(Some(match listen {
            Listen::Tcp { host, port } if host == "::" => Listen::Tcp {
                host: "*".into(),
                port,
            },
            listen => listen,
        }))
    }

    /// The number of threads that answer requests (`workers`).
    pub fn threads(&self) -> Option<NonZeroUsize> {
        self.workers.and_then(NonZeroUsize::new)
    }

    /// The limit of connections. harmonia's `max_connections` is per worker, and 0 means unset.
    pub fn connections(&self) -> Option<usize> {
        let per_worker = self
            .max_connections
            .filter(|connections| *connections > 0)?;
        Some(per_worker.saturating_mul(self.workers.unwrap_or(DEFAULT_WORKERS)))
    }

    /// The files of the secret keys.
    pub fn secret_key_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.sign_key_paths.iter().chain(&self.sign_key_path)
    }

    /// The store, if the settings name one. `store_dir` overrides `virtual_nix_store`.
    ///
    /// Errors: [`ConfigError::Harmonia`].
    pub(crate) fn store(
        &self,
        store_dir: Option<&str>,
    ) -> Result<Option<StoreLayout>, ConfigError> {
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
                .map_err(|error| self.invalid(format!("virtual_nix_store {text:?}: {error}")))?,
            None => StoreDir::default(),
        };
        let mut layout = StoreLayout::without_root(store_dir);
        if let Some(real) = &self.real_nix_store {
            let real = absolute("real_nix_store", real).map_err(|reason| self.invalid(reason))?;
            let prefix = real.parent().unwrap_or(Path::new("/"));
            layout.state_dir = prefix.join("var/nix");
            layout.real_store_dir = real;
        }
        if let Some(database) = &self.nix_db_path {
            let state = state_dir_of_database(database);
            layout.state_dir = state.map_err(|reason| self.invalid(reason))?;
        }
        Ok(Some(layout))
    }

    fn invalid(&self, reason: String) -> ConfigError {
        ConfigError::Harmonia {
            file: self.file.clone(),
            reason,
        }
    }
}

/// Returns the state directory of a database. Nix keeps more files there, so the path of the
/// database alone is not enough.
fn state_dir_of_database(database: &Path) -> Result<PathBuf, String> {
    let path = absolute("nix_db_path", database)?;
    match path.parent().and_then(Path::parent) {
        Some(state) if path.ends_with("db/db.sqlite") => Ok(state.to_owned()),
        _ => Err(format!(
            "nix_db_path {} does not end in db/db.sqlite, as Nix's databases do; give such a path, \
             or the store with --store",
            database.display()
        )),
    }
}

fn absolute(key: &str, path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{key} {}: {error}", path.display()))
}

/// harmonia's default.
const DEFAULT_WORKERS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> HarmoniaSettings {
        let settings = HarmoniaSettings::parse(Path::new(""), text);
        settings.unwrap()
    }

    fn refusal(text: &str) -> String {
        let settings = HarmoniaSettings::parse(Path::new("h.toml"), text);
        settings.unwrap_err().to_string()
    }

    #[test]
    fn file_with_every_key_is_read() {
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
        assert_eq!(settings.warnings().len(), 3);
        let layout = settings.store(None).unwrap().unwrap();
        assert_eq!(
            layout,
            StoreLayout::in_root(Path::new("/mnt"), StoreDir::default())
        );
    }

    #[test]
    fn empty_file_sets_nothing() {
        let settings = parse("");
        assert_eq!(settings, HarmoniaSettings::default());
        assert_eq!(settings.listen().unwrap(), None);
        assert_eq!(settings.store(Some("/gnu/store")).unwrap(), None);
        assert_eq!(settings.warnings(), [""; 0]);
    }

    #[test]
    fn unix_socket_is_read_as_by_harmonia() {
        let socket = Some(Listen::Unix("/run/harmonia/socket".into()));
        let settings = parse("bind = 'unix:/run/harmonia/socket'");
        assert_eq!(settings.listen().unwrap(), socket);
    }

    #[test]
    fn unknown_key_tls_and_zero_workers_are_errors() {
        assert!(refusal("prioritty = 3").contains("prioritty"));
        assert!(refusal("tls_cert_path = '/x'").contains("proxy"));
        assert!(refusal("tls_key_path = '/x'").contains("tls_key_path"));
        assert!(refusal("workers = 0").contains("workers"));
    }

    #[test]
    fn state_dir_follows_store_or_database_path() {
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
