//! The settings that floe shares with Nix.
//!
//! Nix's files and variables are read as Nix reads them. docs/configuration.md describes them for
//! users.

use std::path::PathBuf;

use floe_cache::{Proxies, ServiceEnvironment};
use floe_format::signature::CACHE_NIXOS_ORG_KEY;
use floe_format::{PublicKey, TrustedKeys};
use floe_store::WriteOptions;
use floe_transfer::{CLOSURE_MAX, OUTAGE_TIMEOUT, nearest_name};
use nix::unistd::Gid;

use crate::accounts;
use crate::conf_reader::ConfReader;
use crate::environment::{Environment, NIX_IGNORE_SYMLINK_STORE, NIX_REMOTE};
use crate::error::ConfigError;
use crate::nix_settings::is_ignored_setting;
use crate::origin::Origin;
use crate::setting::{AnySetting, Assignment, Setting};
use crate::value::{FileList, List, OptionalFile, PublicKeys, UriText, UrlList, UrlSet};

/// Declares [`Config`]. A row of the settings has the name in the newest Nix, the names in older
/// versions, the field, the type and the default; the other fields have their first value.
macro_rules! settings {
    (
        $environment:ident;
        $($(#[$note:meta])* $name:literal $(| $alias:literal)*
            => $field:ident: $type:ty = $default:expr;)+
        others:
        $($(#[$doc:meta])+ $visibility:vis $other:ident: $other_type:ty = $first:expr;)+
    ) => {
        /// The settings that floe knows. Fields have Nix's names, and Nix's manual describes them.
        #[derive(Clone, Debug)]
        pub struct Config {
            $(
                #[doc = concat!("`", $name, "`\n\n")]
                $(#[$note])*
                pub $field: Setting<$type>,
            )+
            $($(#[$doc])+ $visibility $other: $other_type,)+
        }

        impl Config {
            /// The defaults of the newest Nix.
            fn defaults($environment: &Environment) -> Config {
                Config {
                    $($field: Setting::new($default),)+
                    $($other: $first,)+
                }
            }

            /// All settings, sorted by name.
            pub fn entries(&mut self) -> Vec<SettingEntry<'_>> {
                vec![$(SettingEntry {
                    name: $name,
                    aliases: &[$($alias),*],
                    setting: &mut self.$field,
                }),+]
            }
        }
    };
}

settings! {
    environment;
    "allow-symlinked-store" => allow_symlinked_store: bool = false;
    /// The users who may use the daemon: names, `@GROUP` or `*`.
    "allowed-users" => allowed_users: UrlList = List(vec!["*".into()]);
    "auto-optimise-store" => auto_optimise_store: bool = false;
    /// Empty for none.
    "build-users-group" => build_users_group: String = default_group(environment);
    /// In seconds; 0 for no limit.
    "connect-timeout" => connect_timeout: u64 = 15;
    /// 0 for 1.
    "filetransfer-retry-attempts" | "download-attempts" => filetransfer_retry_attempts: u32 = 5;
    /// In milliseconds.
    "filetransfer-retry-delay" => filetransfer_retry_delay: u32 = 100;
    /// In milliseconds.
    "filetransfer-retry-delay-rate-limited" => filetransfer_retry_delay_rate_limited: u32 = 5000;
    "filetransfer-retry-jitter" => filetransfer_retry_jitter: bool = true;
    /// In milliseconds.
    "filetransfer-retry-max-delay" => filetransfer_retry_max_delay: u32 = 60_000;
    "fsync-metadata" => fsync_metadata: bool = true;
    "fsync-store-paths" => fsync_store_paths: bool = false;
    /// 0 for no limit.
    "http-connections" | "binary-caches-parallel-connections" => http_connections: u64 = 25;
    "http2" => http2: bool = true;
    "keep-derivations" | "gc-keep-derivations" => keep_derivations: bool = true;
    "keep-outputs" | "gc-keep-outputs" => keep_outputs: bool = false;
    /// A setting that only floe reads.
    "max-closure-paths" => max_closure_paths: u64 = CLOSURE_MAX as u64;
    /// In seconds, a setting that only floe reads. Zero means no limit.
    "max-pin-age" => max_pin_age: u32 = 0;
    /// The name sources, a setting that only floe reads.
    "names" => names: UrlList = List(NIXPKGS_NAMES.map(Into::into).into());
    /// In seconds, a setting that only floe reads.
    "names-ttl" => names_ttl: u32 = 3600;
    /// In seconds.
    "narinfo-cache-meta-ttl" => narinfo_cache_meta_ttl: u32 = 7 * 24 * 3600;
    /// In seconds.
    "narinfo-cache-negative-ttl" => narinfo_cache_negative_ttl: u32 = 3600;
    /// In seconds.
    "narinfo-cache-positive-ttl" => narinfo_cache_positive_ttl: u32 = 30 * 24 * 3600;
    "netrc-file" => netrc_file: FileList = List(vec![environment.conf_dir().join("netrc")]);
    /// The threads that do network work, a setting that only floe reads; 0 for as many as suit the
    /// machine.
    "network-threads" => network_threads: u64 = 0;
    /// In seconds, a setting that only floe reads; 0 for no wait.
    "outage-timeout" => outage_timeout: u64 = OUTAGE_TIMEOUT.as_secs();
    /// The cache of `floe push`, a setting that only floe reads; empty for none.
    "push-to" => push_to: UriText = UriText::default();
    "require-sigs" => require_sigs: bool = true;
    "secret-key-files" => secret_key_files: FileList = List::default();
    "ssl-cert-file"
        => ssl_cert_file: OptionalFile = OptionalFile(environment.default_certificates.clone());
    /// In seconds; 0 for no limit.
    "stalled-download-timeout" => stalled_download_timeout: u64 = 300;
    /// The store that `auto` means.
    "store" => store: UriText = "auto".into();
    "substituters" | "binary-caches"
        => substituters: UrlList = List(vec!["https://cache.nixos.org/".into()]);
    "sync-before-registering" => sync_before_registering: bool = false;
    "trusted-public-keys" | "binary-cache-public-keys"
        => trusted_public_keys: PublicKeys = List(default_keys());
    "trusted-substituters" | "trusted-binary-caches"
        => trusted_substituters: UrlSet = List::default();
    /// The users whose paths need no signature in the daemon: names, `@GROUP` or `*`.
    "trusted-users" => trusted_users: UrlList = List(vec!["root".into()]);
    "use-sqlite-wal" => use_sqlite_wal: bool = true;
    "use-xdg-base-directories" => use_xdg_base_directories: bool = false;
    "user-agent-suffix" => user_agent_suffix: String = String::new();
    others:
    /// The directory of the narinfo disk cache, if the user has one.
    pub cache_dir: Option<PathBuf> = environment.cache_dir();
    /// The directory of what floe must not forget, if the user has one.
    pub state_dir: Option<PathBuf> = environment.own_state_dir();
    /// The proxies of the environment. No setting names a proxy.
    pub proxies: Proxies = environment.proxies();
    /// The environment of the services that hold caches.
    pub services: ServiceEnvironment = environment.services();
    /// The certificates for TLS where no setting and no variable names a file.
    pub(crate) certificates_by_default: Option<PathBuf> = environment.certificates_by_default();
    /// Ignored files that cannot be read, each with the reason. Nix ignores them silently.
    pub unreadable_files: Vec<String> = Vec::new();
    /// The names that are settings of neither floe nor Nix.
    pub unknown_settings: Vec<UnknownSetting> = Vec::new();
    /// The values of files without effect, because another file sets another value.
    pub overridden: Vec<OverriddenValue> = Vec::new();
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

/// A value that another file overrides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverriddenValue {
    /// The setting.
    pub name: &'static str,
    /// The place of the value without effect.
    pub earlier: Origin,
    /// The place of the value that counts.
    pub later: Origin,
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
            config
                .ssl_cert_file
                .replace(OptionalFile(Some(path)), origin);
        }
        if environment.allows_symlinked_store() {
            let origin = Origin::Variable(NIX_IGNORE_SYMLINK_STORE);
            config.allow_symlinked_store.replace(true, origin);
        }
        // A value that is not text names no store that floe or Nix could open.
        if let Ok(Some(remote)) = environment.remote() {
            let origin = Origin::Variable(NIX_REMOTE);
            config.store.replace(remote.into(), origin);
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
        let group = if name.is_empty() {
            None
        } else {
            accounts::group_by_name(name).map_err(|source| {
                let name = name.clone();
                ConfigError::Account { name, source }
            })?
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

    /// Notes a name that floe does not know, unless it is a setting of Nix or known to be unknown.
    fn add_unknown(&mut self, assignment: Assignment) {
        let Assignment { name, source, .. } = assignment;
        let is_noted = self.unknown_settings.iter().any(|it| it.name == name);
        if is_noted || is_ignored_setting(&name) {
            return;
        }
        let known: Vec<&str> = self.entries().iter().map(|entry| entry.name).collect();
        // A name without `extra-` would replace the value instead of extending it.
        let nearest = if name.starts_with("extra-") {
            None
        } else {
            nearest_name(&name, known)
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
        let is_own = |entry: &SettingEntry<'_>, name: &str| {
            name == entry.name || entry.aliases.contains(&name)
        };
        let extended = assignment.name.strip_prefix("extra-");
        let mut entries = self.entries().into_iter();
        let found = entries.find_map(|entry| {
            if is_own(&entry, &assignment.name) {
                Some(entry.replace(assignment))
            } else if extended.is_some_and(|name| is_own(&entry, name)) && entry.setting.is_list() {
                Some(entry.setting.append(assignment).map(|()| None))
            } else {
                None
            }
        });
        let Some(overridden) = found.transpose()? else {
            return Ok(false);
        };
        self.overridden.extend(overridden);
        Ok(true)
    }
}

impl SettingEntry<'_> {
    /// Sets the value. Returns the value of another file that has no effect any more.
    fn replace(self, assignment: &Assignment) -> Result<Option<OverriddenValue>, ConfigError> {
        let SettingEntry { name, setting, .. } = self;
        let later = &assignment.source;
        let earlier = setting.all_origins().first().cloned();
        let earlier = earlier.filter(|earlier| earlier.is_other_file(later));
        let text = setting.text();
        setting.set(assignment)?;
        let earlier = earlier.filter(|_| setting.text() != text);
        Ok(earlier.map(|earlier| OverriddenValue {
            name,
            earlier,
            later: later.clone(),
        }))
    }
}

/// The name sources without configuration: the newest builds for the channel nixos-unstable, and
/// its list, which can be searched.
const NIXPKGS_NAMES: [&str; 2] = [
    "nixpkgs=hydra+https://hydra.nixos.org/nixos/unstable?prefix=nixpkgs.",
    "channel=list+https://channels.nixos.org/nixos-unstable/store-paths.xz",
];

/// Nix's default of `build-users-group`.
fn default_group(environment: &Environment) -> String {
    if environment.is_root() {
        "nixbld".into()
    } else {
        String::new()
    }
}

/// The key that Nix trusts without configuration.
fn default_keys() -> Vec<PublicKey> {
    PublicKey::parse(CACHE_NIXOS_ORG_KEY).into_iter().collect()
}

#[cfg(test)]
mod tests;
