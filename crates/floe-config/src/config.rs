//! The settings that floe shares with Nix.
//!
//! Nix's files and variables are read as Nix reads them. docs/configuration.md describes them for
//! users.

use std::path::PathBuf;

use floe_cache::{Proxies, ServiceEnvironment};
use floe_format::signature::CACHE_NIXOS_ORG_KEY;
use floe_format::{PublicKey, TrustedKeys};
use floe_store::WriteOptions;
use floe_transfer::nearest_name;
use nix::unistd::Gid;

use crate::accounts;
use crate::conf_reader::ConfReader;
use crate::environment::{Environment, NIX_IGNORE_SYMLINK_STORE, NIX_REMOTE};
use crate::error::ConfigError;
use crate::nix_settings::is_ignored_setting;
use crate::origin::Origin;
use crate::setting::{AnySetting, Assignment, Setting};
use crate::value::{FileList, List, PublicKeys, UrlList, UrlSet};

/// The settings that floe knows. Fields have Nix's names, and Nix's manual describes them.
#[derive(Clone, Debug)]
pub struct Config {
    /// `allow-symlinked-store`
    pub allow_symlinked_store: Setting<bool>,
    /// `auto-optimise-store`
    pub auto_optimise_store: Setting<bool>,
    /// `build-users-group`; empty for none
    pub build_users_group: Setting<String>,
    /// `connect-timeout`, in seconds; 0 for no limit
    pub connect_timeout: Setting<u64>,
    /// `filetransfer-retry-attempts`; 0 for 1
    pub filetransfer_retry_attempts: Setting<u32>,
    /// `filetransfer-retry-delay`, in milliseconds
    pub filetransfer_retry_delay: Setting<u32>,
    /// `filetransfer-retry-delay-rate-limited`, in milliseconds
    pub filetransfer_retry_delay_rate_limited: Setting<u32>,
    /// `filetransfer-retry-jitter`
    pub filetransfer_retry_jitter: Setting<bool>,
    /// `filetransfer-retry-max-delay`, in milliseconds
    pub filetransfer_retry_max_delay: Setting<u32>,
    /// `fsync-metadata`
    pub fsync_metadata: Setting<bool>,
    /// `fsync-store-paths`
    pub fsync_store_paths: Setting<bool>,
    /// `http-connections`; 0 for no limit
    pub http_connections: Setting<u64>,
    /// `http2`
    pub http2: Setting<bool>,
    /// `keep-derivations`
    pub keep_derivations: Setting<bool>,
    /// `keep-outputs`
    pub keep_outputs: Setting<bool>,
    /// `narinfo-cache-meta-ttl`, in seconds
    pub narinfo_cache_meta_ttl: Setting<u32>,
    /// `narinfo-cache-negative-ttl`, in seconds
    pub narinfo_cache_negative_ttl: Setting<u32>,
    /// `narinfo-cache-positive-ttl`, in seconds
    pub narinfo_cache_positive_ttl: Setting<u32>,
    /// `netrc-file`
    pub netrc_file: Setting<FileList>,
    /// `push-to`: the cache of `floe push`, a setting that only floe reads; empty for none
    pub push_to: Setting<String>,
    /// `require-sigs`
    pub require_sigs: Setting<bool>,
    /// `secret-key-files`
    pub secret_key_files: Setting<FileList>,
    /// `ssl-cert-file`
    pub ssl_cert_file: Setting<Option<PathBuf>>,
    /// `stalled-download-timeout`, in seconds; 0 for no limit
    pub stalled_download_timeout: Setting<u64>,
    /// `store`: the store that `auto` means
    pub store: Setting<String>,
    /// `substituters`
    pub substituters: Setting<UrlList>,
    /// `sync-before-registering`
    pub sync_before_registering: Setting<bool>,
    /// `trusted-public-keys`
    pub trusted_public_keys: Setting<PublicKeys>,
    /// `trusted-substituters`
    pub trusted_substituters: Setting<UrlSet>,
    /// `use-sqlite-wal`
    pub use_sqlite_wal: Setting<bool>,
    /// `use-xdg-base-directories`
    pub use_xdg_base_directories: Setting<bool>,
    /// `user-agent-suffix`
    pub user_agent_suffix: Setting<String>,
    /// The directory of the narinfo disk cache, if the user has one.
    pub cache_dir: Option<PathBuf>,
    /// The proxies of the environment. No setting names a proxy.
    pub proxies: Proxies,
    /// The environment of the services that hold caches.
    pub services: ServiceEnvironment,
    /// The certificates for TLS where no setting and no variable names a file.
    pub(crate) certificates_by_default: Option<PathBuf>,
    /// Ignored files that cannot be read, each with the reason. Nix ignores them silently.
    pub unreadable_files: Vec<String>,
    /// The names that are settings of neither floe nor Nix.
    pub unknown_settings: Vec<UnknownSetting>,
}

/// A name that is not a setting, where it has its first value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSetting {
    /// The name.
    pub name: String,
    /// The place of its value.
    pub origin: Origin,
    /// The most similar setting of floe, if one is similar enough to be meant.
    pub nearest: Option<&'static str>,
}

/// A setting with its names.
pub struct SettingEntry<'a> {
    /// Its name in the newest Nix.
    pub name: &'static str,
    /// Its names in older versions of Nix.
    pub aliases: &'static [&'static str],
    /// The setting.
    pub setting: &'a mut dyn AnySetting,
}

impl Config {
    /// Reads the settings from, in this order: the system's file, the user's files, `NIX_CONFIG`,
    /// and `options` as pairs of name and value. Later values override earlier ones.
    ///
    /// Errors: [`ConfigError`]. A file that does not exist or cannot be read is not an error.
    pub fn load(
        environment: &Environment,
        options: &[(&str, &str)],
    ) -> Result<Config, ConfigError> {
        let mut reader = ConfReader::default();
        reader.file(&environment.conf_dir().join("nix.conf"))?;
        for file in environment.user_conf_files().iter().rev() {
            reader.file(file)?;
        }
        reader.variable(environment.nix_config())?;
        let mut config = Config::defaults(environment);
        if let Some((variable, path)) = environment.certificate_override() {
            let origin = Origin::Variable(variable);
            config.ssl_cert_file.replace(Some(path), origin);
        }
        if environment.allows_symlinked_store() {
            let origin = Origin::Variable(NIX_IGNORE_SYMLINK_STORE);
            config.allow_symlinked_store.replace(true, origin);
        }
        // A value that is not text names no store that floe or Nix could open.
        if let Ok(Some(remote)) = environment.remote() {
            let origin = Origin::Variable(NIX_REMOTE);
            config.store.replace(remote.to_owned(), origin);
        }
        let options = options.iter().map(|(name, value)| Assignment {
            name: (*name).to_owned(),
            value: value.as_bytes().to_vec(),
            source: Origin::Flag("--option"),
        });
        for assignment in reader.assignments.into_iter().chain(options) {
            if !config.assign(&assignment)? {
                config.add_unknown(assignment);
            }
        }
        config.unreadable_files = reader.unreadable_files;
        Ok(config)
    }

    /// The defaults of the newest Nix.
    fn defaults(environment: &Environment) -> Config {
        let group = if environment.is_root() { "nixbld" } else { "" };
        let netrc = environment.conf_dir().join("netrc");
        Config {
            allow_symlinked_store: Setting::new(false),
            auto_optimise_store: Setting::new(false),
            build_users_group: Setting::new(group.into()),
            connect_timeout: Setting::new(15),
            filetransfer_retry_attempts: Setting::new(5),
            filetransfer_retry_delay: Setting::new(100),
            filetransfer_retry_delay_rate_limited: Setting::new(5000),
            filetransfer_retry_jitter: Setting::new(true),
            filetransfer_retry_max_delay: Setting::new(60_000),
            fsync_metadata: Setting::new(true),
            fsync_store_paths: Setting::new(false),
            http_connections: Setting::new(25),
            http2: Setting::new(true),
            keep_derivations: Setting::new(true),
            keep_outputs: Setting::new(false),
            narinfo_cache_meta_ttl: Setting::new(7 * 24 * 3600),
            narinfo_cache_negative_ttl: Setting::new(3600),
            narinfo_cache_positive_ttl: Setting::new(30 * 24 * 3600),
            netrc_file: Setting::new(List(vec![netrc])),
            push_to: Setting::new(String::new()),
            require_sigs: Setting::new(true),
            secret_key_files: Setting::new(List::default()),
            ssl_cert_file: Setting::new(environment.default_certificates.clone()),
            stalled_download_timeout: Setting::new(300),
            store: Setting::new("auto".into()),
            substituters: Setting::new(List(vec!["https://cache.nixos.org/".into()])),
            sync_before_registering: Setting::new(false),
            trusted_public_keys: Setting::new(List(default_keys())),
            trusted_substituters: Setting::new(List::default()),
            use_sqlite_wal: Setting::new(true),
            use_xdg_base_directories: Setting::new(false),
            user_agent_suffix: Setting::new(String::new()),
            cache_dir: environment.cache_dir(),
            proxies: environment.proxies(),
            services: environment.services(),
            certificates_by_default: environment.certificates_by_default(),
            unreadable_files: Vec::new(),
            unknown_settings: Vec::new(),
        }
    }

    /// Returns the configured trusted keys together with `extra`.
    pub fn trusted_keys(&self, extra: TrustedKeys) -> TrustedKeys {
        let mut keys: TrustedKeys = self.trusted_public_keys.get().0.iter().cloned().collect();
        keys.extend(extra);
        keys
    }

    /// Returns the options for writing to a local store, and a warning for the user.
    ///
    /// There is no warning about a missing group that only Nix's default names: a machine without
    /// Nix has none.
    ///
    /// Errors: [`ConfigError::Account`].
    pub fn write_options(&self) -> Result<(WriteOptions, Option<String>), ConfigError> {
        let setting = &self.build_users_group;
        let name = setting.get();
        let group = match name.is_empty() {
            true => None,
            false => accounts::group_by_name(name).map_err(|source| {
                let name = name.clone();
                ConfigError::Account { name, source }
            })?,
        };
        let is_missing = group.is_none() && !name.is_empty() && !setting.is_default();
        let warning =
            is_missing.then(|| format!("ignoring build-users-group: there is no group {name}"));
        let options = WriteOptions {
            build_users_group: group.map(Gid::as_raw),
            allow_symlinked_store: *self.allow_symlinked_store.get(),
            use_sqlite_wal: *self.use_sqlite_wal.get(),
            fsync_metadata: *self.fsync_metadata.get(),
            fsync_store_paths: *self.fsync_store_paths.get(),
            sync_before_registering: *self.sync_before_registering.get(),
            ..WriteOptions::default()
        };
        Ok((options, warning))
    }

    /// All settings, sorted by name.
    #[rustfmt::skip]
    pub fn entries(&mut self) -> Vec<SettingEntry<'_>> {
        fn entry<'a>(
            name: &'static str,
            aliases: &'static [&'static str],
            setting: &'a mut dyn AnySetting,
        ) -> SettingEntry<'a> {
            SettingEntry { name, aliases, setting }
        }
        vec![
            entry("allow-symlinked-store", &[], &mut self.allow_symlinked_store),
            entry("auto-optimise-store", &[], &mut self.auto_optimise_store),
            entry("build-users-group", &[], &mut self.build_users_group),
            entry("connect-timeout", &[], &mut self.connect_timeout),
            entry("filetransfer-retry-attempts", &["download-attempts"],
                &mut self.filetransfer_retry_attempts),
            entry("filetransfer-retry-delay", &[], &mut self.filetransfer_retry_delay),
            entry("filetransfer-retry-delay-rate-limited", &[],
                &mut self.filetransfer_retry_delay_rate_limited),
            entry("filetransfer-retry-jitter", &[], &mut self.filetransfer_retry_jitter),
            entry("filetransfer-retry-max-delay", &[], &mut self.filetransfer_retry_max_delay),
            entry("fsync-metadata", &[], &mut self.fsync_metadata),
            entry("fsync-store-paths", &[], &mut self.fsync_store_paths),
            entry("http-connections", &["binary-caches-parallel-connections"],
                &mut self.http_connections),
            entry("http2", &[], &mut self.http2),
            entry("keep-derivations", &["gc-keep-derivations"], &mut self.keep_derivations),
            entry("keep-outputs", &["gc-keep-outputs"], &mut self.keep_outputs),
            entry("narinfo-cache-meta-ttl", &[], &mut self.narinfo_cache_meta_ttl),
            entry("narinfo-cache-negative-ttl", &[], &mut self.narinfo_cache_negative_ttl),
            entry("narinfo-cache-positive-ttl", &[], &mut self.narinfo_cache_positive_ttl),
            entry("netrc-file", &[], &mut self.netrc_file),
            entry("push-to", &[], &mut self.push_to),
            entry("require-sigs", &[], &mut self.require_sigs),
            entry("secret-key-files", &[], &mut self.secret_key_files),
            entry("ssl-cert-file", &[], &mut self.ssl_cert_file),
            entry("stalled-download-timeout", &[], &mut self.stalled_download_timeout),
            entry("store", &[], &mut self.store),
            entry("substituters", &["binary-caches"], &mut self.substituters),
            entry("sync-before-registering", &[], &mut self.sync_before_registering),
            entry("trusted-public-keys", &["binary-cache-public-keys"],
                &mut self.trusted_public_keys),
            entry("trusted-substituters", &["trusted-binary-caches"],
                &mut self.trusted_substituters),
            entry("use-sqlite-wal", &[], &mut self.use_sqlite_wal),
            entry("use-xdg-base-directories", &[], &mut self.use_xdg_base_directories),
            entry("user-agent-suffix", &[], &mut self.user_agent_suffix),
        ]
    }

    /// Notes a name that floe does not know, unless it is a setting of Nix or known to be unknown.
    fn add_unknown(&mut self, assignment: Assignment) {
        let Assignment { name, source, .. } = assignment;
        let is_noted = self.unknown_settings.iter().any(|it| it.name == name);
        if is_noted || is_ignored_setting(&name) {
            return;
        }
        let known: Vec<&str> = self.entries().iter().map(|entry| entry.name).collect();
        // A name without `extra-` would replace the value instead of extending it.
        let nearest = match name.starts_with("extra-") {
            true => None,
            false => nearest_name(&name, known),
        };
        self.unknown_settings.push(UnknownSetting {
            nearest,
            origin: source,
            name,
        });
    }

    /// Sets or extends a setting, and returns whether floe knows it.
    ///
    /// Only lists can be extended: Nix has names with `extra-` for lists only.
    fn assign(&mut self, assignment: &Assignment) -> Result<bool, ConfigError> {
        for entry in self.entries() {
            let is_own = |name: &str| name == entry.name || entry.aliases.contains(&name);
            let extended = assignment.name.strip_prefix("extra-");
            if is_own(&assignment.name) {
                entry.setting.set(assignment)?;
            } else if extended.is_some_and(is_own) && entry.setting.is_list() {
                entry.setting.append(assignment)?;
            } else {
                continue;
            }
            return Ok(true);
        }
        Ok(false)
    }
}

/// The key that Nix trusts without configuration.
fn default_keys() -> Vec<PublicKey> {
    PublicKey::parse(CACHE_NIXOS_ORG_KEY).into_iter().collect()
}

#[cfg(test)]
mod tests;
