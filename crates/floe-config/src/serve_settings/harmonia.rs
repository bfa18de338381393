//! The keys of harmonia, with their meaning in harmonia.

use std::fmt::Display;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use floe_format::StoreDir;
use floe_server::{Compress, Listen};
use floe_store::StoreLayout;

use super::ServeSettings;
use super::option::{KeyKind, ServeEntry, ServeOption};
use crate::error::ConfigError;
use crate::origin::Origin;
use crate::setting::{AnySetting, Setting};
use crate::value::IgnoredTable;

/// The keys of harmonia that floe has under other names, or not at all.
#[derive(Clone, Debug, Default)]
pub(super) struct HarmoniaKeys {
    bind: Setting<Option<Listen>>,
    workers: Setting<Option<NonZeroUsize>>,
    max_connection_rate: Setting<Option<usize>>,
    max_connections: Setting<Option<usize>>,
    pub(super) enable_compression: Setting<Option<bool>>,
    zstd: Setting<Option<IgnoredTable>>,
    pub(super) virtual_nix_store: Setting<Option<String>>,
    pub(super) real_nix_store: Setting<Option<PathBuf>>,
    pub(super) nix_db_path: Setting<Option<PathBuf>>,
    pub(super) sign_key_paths: Setting<Option<Vec<PathBuf>>>,
    sign_key_path: Setting<Option<PathBuf>>,
    tls_cert_path: Setting<Option<PathBuf>>,
    tls_key_path: Setting<Option<PathBuf>>,
}

impl HarmoniaKeys {
    #[rustfmt::skip]
    pub(super) fn entries(&mut self) -> Vec<ServeEntry<'_>> {
        let entries: [(_, _, &mut dyn AnySetting); 13] = [
            ("bind", &["listen", "host", "port"][..], &mut self.bind),
            ("workers", &["threads"], &mut self.workers),
            ("max_connection_rate", &[], &mut self.max_connection_rate),
            ("max_connections", &["max_connections_total"], &mut self.max_connections),
            ("enable_compression", &["compress"], &mut self.enable_compression),
            ("zstd", &[], &mut self.zstd),
            ("virtual_nix_store", &["store_dir", "store", "root"], &mut self.virtual_nix_store),
            ("real_nix_store", &["store", "root"], &mut self.real_nix_store),
            ("nix_db_path", &["store", "root"], &mut self.nix_db_path),
            ("sign_key_paths", &["secret_key_file"], &mut self.sign_key_paths),
            ("sign_key_path", &["secret_key_file"], &mut self.sign_key_path),
            ("tls_cert_path", &["tls_cert"], &mut self.tls_cert_path),
            ("tls_key_path", &["tls_key"], &mut self.tls_key_path),
        ];
        let entries = entries.into_iter().map(|(key, excludes, setting)| ServeEntry {
            key,
            help: &[],
            option: ServeOption::new("").kind(KeyKind::Harmonia).excluding(excludes),
            setting,
        });
        entries.collect()
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
        if keys.enable_compression.value() == Some(&false) {
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
            keys.sign_key_paths.push(path, origins);
        }
        self.translate_max_connections();
        Ok(())
    }

    /// Translates `max_connections`, the limit of each worker. 0 means unset.
    fn translate_max_connections(&mut self) {
        let setting = &mut self.harmonia.max_connections;
        let Some(per_worker) = setting.value().copied().and_then(NonZeroUsize::new) else {
            setting.take();
            return;
        };
        let workers = self.threads.value().copied();
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
        let mut layout = StoreLayout::without_root(match keys.virtual_nix_store.value() {
            Some(text) => StoreDir::new(text)
                .map_err(|error| invalid("virtual_nix_store", &keys.virtual_nix_store, error))?,
            None => StoreDir::default(),
        });
        if let Some(real) = keys.real_nix_store.value() {
            let real = absolute(real)
                .map_err(|reason| invalid("real_nix_store", &keys.real_nix_store, reason))?;
            let prefix = real.parent().unwrap_or(Path::new("/"));
            layout.state_dir = prefix.join("var/nix");
            layout.real_store_dir = real;
        }
        if let Some(database) = keys.nix_db_path.value() {
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
fn invalid<T>(key: &str, setting: &Setting<Option<T>>, reason: impl Display) -> ConfigError {
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
