//! The keys of harmonia, with their meaning in harmonia.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use floe_format::StoreDir;
use floe_server::{Compress, Listen};
use floe_store::StoreLayout;

use super::setting::AnyServeSetting;
use super::toml_value::IgnoredTable;
use super::{Entry, KeyKind, ServeSetting, ServeSettings};
use crate::error::ConfigError;
use crate::origin::Origin;

/// The keys of harmonia that floe has under other names, or not at all.
#[derive(Clone, Debug, Default)]
pub(super) struct HarmoniaKeys {
    bind: ServeSetting<Listen>,
    workers: ServeSetting<NonZeroUsize>,
    max_connection_rate: ServeSetting<usize>,
    max_connections: ServeSetting<usize>,
    pub(super) enable_compression: ServeSetting<bool>,
    zstd: ServeSetting<IgnoredTable>,
    pub(super) virtual_nix_store: ServeSetting<String>,
    pub(super) real_nix_store: ServeSetting<PathBuf>,
    pub(super) nix_db_path: ServeSetting<PathBuf>,
    pub(super) sign_key_paths: ServeSetting<Vec<PathBuf>>,
    sign_key_path: ServeSetting<PathBuf>,
    tls_cert_path: ServeSetting<PathBuf>,
    tls_key_path: ServeSetting<PathBuf>,
}

impl HarmoniaKeys {
    pub(super) fn entries(&mut self) -> Vec<Entry<'_>> {
        fn entry<'a>(key: &'static str, setting: &'a mut dyn AnyServeSetting) -> Entry<'a> {
            Entry::new(key, KeyKind::Harmonia, setting)
        }
        vec![
            entry("bind", &mut self.bind).excluding(&["listen", "host", "port"]),
            entry("workers", &mut self.workers).excluding(&["threads"]),
            entry("max_connection_rate", &mut self.max_connection_rate),
            entry("max_connections", &mut self.max_connections)
                .excluding(&["max_connections_total"]),
            entry("enable_compression", &mut self.enable_compression).excluding(&["compress"]),
            entry("zstd", &mut self.zstd),
            entry("virtual_nix_store", &mut self.virtual_nix_store).excluding(&[
                "store_dir",
                "store",
                "root",
            ]),
            entry("real_nix_store", &mut self.real_nix_store).excluding(&["store", "root"]),
            entry("nix_db_path", &mut self.nix_db_path).excluding(&["store", "root"]),
            entry("sign_key_paths", &mut self.sign_key_paths).excluding(&["secret_key_file"]),
            entry("sign_key_path", &mut self.sign_key_path).excluding(&["secret_key_file"]),
            entry("tls_cert_path", &mut self.tls_cert_path).excluding(&["tls_cert"]),
            entry("tls_key_path", &mut self.tls_key_path).excluding(&["tls_key"]),
        ]
    }

    /// Whether the keys name a store.
    pub(super) fn names_store(&self) -> bool {
        self.virtual_nix_store.is_set() || self.real_nix_store.is_set() || self.nix_db_path.is_set()
    }
}

impl ServeSettings {
    /// Replaces the keys of harmonia by those of floe with the same meaning, and adds warnings
    /// about keys without effect and deprecated ones.
    ///
    /// Errors: [`ConfigError::ServeFile`].
    pub(super) fn translate_harmonia_keys(&mut self) -> Result<(), ConfigError> {
        self.warn_of_ignored_keys();
        let keys = &mut self.harmonia;
        self.listen.move_from(&mut keys.bind, |listen| {
            vec![match listen {
                // In harmonia, `[::]` accepts IPv4 as well.
                Listen::Tcp { host, port } if host == "::" => Listen::Tcp {
                    host: "*".into(),
                    port,
                },
                listen => listen,
            }]
        });
        self.tls_cert
            .move_from(&mut keys.tls_cert_path, |file| vec![file]);
        self.tls_key
            .move_from(&mut keys.tls_key_path, |file| vec![file]);
        self.threads.move_from(&mut keys.workers, |workers| workers);
        if keys.enable_compression.get() == Some(&false) {
            let off = |_| Compress::Off;
            self.compress.move_from(&mut keys.enable_compression, off);
        }
        if let (Some(path), origins) = keys.sign_key_path.take() {
            let warning = |origin: &Origin| {
                format!(
                    "reading the deprecated sign_key_path in {origin}; write sign_key_paths = \
                     [\"FILE\"]"
                )
            };
            self.warnings.extend(origins.iter().map(warning));
            keys.sign_key_paths.append(path, origins);
        }
        self.translate_max_connections();
        Ok(())
    }

    /// Translates `max_connections`, the limit of each worker. 0 means unset.
    fn translate_max_connections(&mut self) {
        let setting = &mut self.harmonia.max_connections;
        let Some(per_worker) = setting.get().copied().and_then(NonZeroUsize::new) else {
            setting.take();
            return;
        };
        let workers = self.threads.get().copied();
        let total = per_worker.saturating_mul(workers.unwrap_or(DEFAULT_WORKERS));
        // A reader of the list of flags may take the key for that of --max-connections.
        if let ([origin], None) = (setting.origins(), workers) {
            self.warnings.push(format!(
                "reading max_connections in {origin} as harmonia's limit for each of \
                 {DEFAULT_WORKERS} workers; write max_connections_total = {total}"
            ));
        }
        self.max_connections_total.move_from(setting, |_| total);
    }

    fn warn_of_ignored_keys(&mut self) {
        let rate = self.harmonia.max_connection_rate.take().1;
        let zstd = self.harmonia.zstd.take().1;
        let rate_cause = "floe accepts connections at any rate, up to max_connections";
        let zstd_cause = "floe chooses the level by itself";
        for (name, origins, cause) in [
            ("max_connection_rate", rate, rate_cause),
            ("[zstd]", zstd, zstd_cause),
        ] {
            let warning = |origin: &Origin| format!("ignoring {name} in {origin}: {cause}");
            self.warnings.extend(origins.iter().map(warning));
        }
    }

    /// Returns the store that harmonia's keys name.
    ///
    /// Errors: [`ConfigError::ServeFile`], [`ConfigError::StoreDir`].
    pub(super) fn harmonia_store(&self) -> Result<Option<StoreLayout>, ConfigError> {
        let keys = &self.harmonia;
        if !keys.names_store() {
            return Ok(None);
        }
        let mut layout = StoreLayout::without_root(match keys.virtual_nix_store.get() {
            Some(text) => StoreDir::new(text)
                .map_err(|error| invalid("virtual_nix_store", &keys.virtual_nix_store, error))?,
            None => StoreDir::default(),
        });
        if let Some(real) = keys.real_nix_store.get() {
            let real = absolute(real)
                .map_err(|reason| invalid("real_nix_store", &keys.real_nix_store, reason))?;
            let prefix = real.parent().unwrap_or(Path::new("/"));
            layout.state_dir = prefix.join("var/nix");
            layout.real_store_dir = real;
        }
        if let Some(database) = keys.nix_db_path.get() {
            layout.state_dir = state_dir_of_database(database)
                .map_err(|reason| invalid("nix_db_path", &keys.nix_db_path, reason))?;
        }
        Ok(Some(layout))
    }
}

/// Returns the state directory of a database. Nix keeps more files there, so the path of the
/// database alone is not enough.
fn state_dir_of_database(database: &Path) -> Result<PathBuf, String> {
    let path = absolute(database)?;
    match path.parent().and_then(Path::parent) {
        Some(state) if path.ends_with("db/db.sqlite") => Ok(state.to_owned()),
        _ => Err(format!(
            "{} does not end in db/db.sqlite, as Nix's databases do; give such a path, or the \
             store with --store",
            database.display()
        )),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the error for a value that cannot be used, with its origin.
fn invalid<T>(key: &str, setting: &ServeSetting<T>, reason: impl Display) -> ConfigError {
    match setting.origins().first() {
        Some(Origin::Flag(given) | Origin::Variable(given)) => ConfigError::StoreDir {
            given,
            reason: reason.to_string(),
        },
        origin => ConfigError::ServeFile {
            at: origin.unwrap_or(&Origin::Default).to_string(),
            reason: format!("{key}: {reason}"),
        },
    }
}

/// harmonia's default.
const DEFAULT_WORKERS: NonZeroUsize = NonZeroUsize::new(4).expect("4 is not 0");
