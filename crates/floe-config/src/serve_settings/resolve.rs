//! The effective settings of `floe serve`: the file, overridden by the environment, overridden by
//! flags, and defaults for what is not set.

use std::path::PathBuf;
use std::time::Duration;

use floe_server::{Compress, Config, Listen, address, config};
use floe_store::StoreLayout;

use super::{AccessLogFormat, ByteSize, ServeSettings, StderrFormat};
use crate::environment::{Environment, NIX_REMOTE, NIX_STORE_DIR};
use crate::error::ConfigError;
use crate::origin::Origin;
use crate::store_uri::{ServedStore, StoreFlags, served_store};

impl ServeSettings {
    /// Returns the effective settings. The present ones are those of the file, and those of the
    /// flags over them.
    ///
    /// Errors: [`ConfigError::NotUtf8`], [`ConfigError::NoCompressedCache`].
    pub fn resolve(mut self, environment: &Environment) -> Result<ServeSettings, ConfigError> {
        self.resolve_addresses();
        self.resolve_store(environment)?;
        self.resolve_secret_keys(environment)?;
        self.resolve_compression()?;
        let log = if self.access_log.is_set() {
            AccessLogFormat::default()
        } else {
            AccessLogFormat::Quiet
        };
        self.access_log_format.set_default(log);
        self.log_format.set_default(StderrFormat::default());
        self.receive_max_size.set_default(RECEIVED_SIZE);
        self.receive_keep.set_default(RECEIVED_TIME);
        let defaults = Config::new(StoreLayout::system(), Vec::new());
        self.set_server_defaults(&defaults);
        self.max_encoders.set_default(defaults.threads);
        Ok(self)
    }

    /// Returns the store to serve.
    ///
    /// Errors: variants of [`ConfigError`] about stores.
    pub fn served_store(&self, environment: &Environment) -> Result<ServedStore, ConfigError> {
        if let Some(layout) = self.harmonia_store()? {
            let log_dir = environment.log_dir();
            return Ok(ServedStore {
                log_dir: log_dir.unwrap_or_else(|| layout.log_dir()),
                layout,
                ignored_parameters: Vec::new(),
                requires_signatures: None,
            });
        }
        let flags = StoreFlags {
            root: self.root.value().map(PathBuf::as_path),
            store: self.store.value().map(String::as_str),
            store_dir: self.store_dir.value().map(String::as_str),
        };
        served_store(&flags, environment).map_err(|error| self.in_file(error))
    }

    /// Adds the line of the file to an error about its store.
    fn in_file(&self, error: ConfigError) -> ConfigError {
        let origins = match error {
            ConfigError::StoreDir { .. } => self.store_dir.origins(),
            ConfigError::RootArgument { .. } => self.root.origins(),
            _ => self.store.origins(),
        };
        match origins.first() {
            Some(at @ Origin::File { .. }) => ConfigError::ServeFile {
                at: at.to_string(),
                reason: error.to_string(),
            },
            _ => error,
        }
    }

    /// Returns the files of the secret keys.
    pub fn secret_key_files(&self) -> Vec<PathBuf> {
        let keys = [&self.secret_key_file, &self.harmonia.sign_key_paths];
        let keys = keys.into_iter().filter_map(|setting| setting.value());
        keys.flatten().cloned().collect()
    }

    /// Gathers all addresses in `listen`. An address on the command line replaces those of the
    /// file, but `--host` and `--port` change only one part of the address in the file.
    fn resolve_addresses(&mut self) {
        let by_part = self.host.is_by_flag() || self.port.is_by_flag();
        if by_part || self.listen.is_by_flag() || self.socket.is_by_flag() {
            self.listen.keep_flag_only();
            self.socket.keep_flag_only();
            if !by_part {
                self.host.take();
                self.port.take();
            }
        }
        let ((host, hosts), (port, ports)) = (self.host.take(), self.port.take());
        if let (Some(path), origins) = self.socket.take() {
            self.listen.push(Listen::Unix(path), origins);
        }
        let has_address = self.listen.value().is_some_and(|it| !it.is_empty());
        if has_address && host.is_none() && port.is_none() {
            return;
        }
        // A variable that is not set must not let every machine connect.
        let host = host.filter(|host| !host.is_empty());
        let host_origins = match host {
            Some(_) => hosts,
            None => vec![Origin::Default],
        };
        let listen = Listen::Tcp {
            host: address::parse_host(host.as_deref().unwrap_or(config::HOST)),
            port: port.unwrap_or(config::PORT),
        };
        let origins = ports.into_iter().chain(host_origins);
        self.listen.push(listen, origins);
    }

    /// Chooses the store. harmonia's keys win over `NIX_REMOTE`, which harmonia does not read and
    /// many systems set for all users.
    fn resolve_store(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        let by_flag = self.store.is_by_flag() || self.root.is_by_flag();
        let harmonia = &mut self.harmonia;
        if by_flag {
            self.store.keep_flag_only();
            self.root.keep_flag_only();
            harmonia.virtual_nix_store.take();
            harmonia.real_nix_store.take();
            harmonia.nix_db_path.take();
        }
        let variable = if self.store_dir.is_by_flag() {
            None
        } else {
            environment.store_dir()?
        };
        if let Some(store_dir) = variable {
            self.store_dir.take();
            if harmonia.names_store() {
                let origin = Origin::Variable(NIX_STORE_DIR);
                let store_dir = store_dir.to_owned();
                harmonia.virtual_nix_store.replace(Some(store_dir), origin);
            }
        }
        if harmonia.names_store() {
            let virtual_nix_store = &mut harmonia.virtual_nix_store;
            virtual_nix_store.move_from(&mut self.store_dir, |store_dir| store_dir);
            return Ok(());
        }
        let remote = if by_flag { None } else { environment.remote()? };
        if let Some(remote) = remote {
            self.root.take();
            let origin = Origin::Variable(NIX_REMOTE);
            self.store.replace(Some(remote.to_owned()), origin);
        }
        if !self.root.is_set() {
            self.store.set_default("auto".into());
        }
        Ok(())
    }

    /// Chooses the key files: those of the flags, else those of the environment, else those of the
    /// file. The environment adds to harmonia's keys, as in harmonia.
    fn resolve_secret_keys(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        if self.secret_key_file.is_by_flag() {
            self.harmonia.sign_key_paths.take();
            return Ok(());
        }
        let files = environment.signing_key_files()?;
        let keys = if self.harmonia.sign_key_paths.is_set() {
            &mut self.harmonia.sign_key_paths
        } else {
            if !files.is_empty() {
                self.secret_key_file.take();
            }
            &mut self.secret_key_file
        };
        for (variable, file) in files {
            keys.push(file, [Origin::Variable(variable)]);
        }
        Ok(())
    }

    /// Decides about compression.
    ///
    /// harmonia's `enable_compression` compresses anew for each client. floe does so only for
    /// `always`.
    fn resolve_compression(&mut self) -> Result<(), ConfigError> {
        let has_cache = self.compressed_cache.is_set();
        let enabled = &mut self.harmonia.enable_compression;
        if self.compress.is_set() {
            enabled.take();
        }
        if enabled.is_set() && !has_cache {
            self.warnings.push(COMPRESSION_WITHOUT_CACHE.into());
        }
        let usual = if has_cache {
            Compress::Cached
        } else {
            Compress::Off
        };
        self.compress.move_from(enabled, |_| usual);
        self.compress.set_default(usual);
        if has_cache {
            self.compressed_cache_size.set_default(CACHE_SIZE);
            return Ok(());
        }
        if self.compress.value() == Some(&Compress::Cached) {
            let origins = self.compress.origins();
            return Err(needs_cache("compress", "cached", origins));
        }
        match self.compressed_cache_size.value() {
            Some(size) => {
                let origins = self.compressed_cache_size.origins();
                let size = size.to_string();
                Err(needs_cache("compressed_cache_size", &size, origins))
            }
            None => Ok(()),
        }
    }
}

/// Returns the error for a setting of a compressed NAR cache that does not exist.
fn needs_cache(key: &str, value: &str, origins: &[Origin]) -> ConfigError {
    ConfigError::NoCompressedCache(match origins.first() {
        Some(Origin::Flag(flag)) => format!("{flag} {value}"),
        Some(origin) => format!("{key} = {value:?} in {origin}"),
        None => key.to_owned(),
    })
}

/// How long a received path is kept, unless a setting says otherwise.
const RECEIVED_TIME: Duration = Duration::from_secs(86400);

/// The largest file of a NAR that is received, unless a setting says otherwise.
const RECEIVED_SIZE: ByteSize = ByteSize(16 << 30);

/// The default size of the compressed NAR cache: about six compressed desktop systems.
const CACHE_SIZE: ByteSize = ByteSize(10 << 30);

const COMPRESSION_WITHOUT_CACHE: &str =
    "ignoring enable_compression: there is no compressed NAR cache; add --compressed-cache DIR";
