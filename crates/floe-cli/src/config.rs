//! The configuration that floe shares with Nix: nix.conf and its kin, read as Nix reads them, into
//! settings that have a type and know where their values come from. docs/configuration.md is its
//! reference.

mod environment;
mod error;
mod files;
mod network;
mod setting;
mod value;

use std::path::PathBuf;

use floe_engine::Proxies;

pub(crate) use environment::Environment;
use environment::{NIX_IGNORE_SYMLINK_STORE, NIX_REMOTE};
pub(crate) use error::ConfigError;
use files::ConfReader;
pub(crate) use network::setting_note;
pub(crate) use setting::{AnySetting, Origin, Setting};
use value::{FileList, OptionalFile, PublicKeys, Text, UrlList, UrlSet};

/// The settings that floe knows. Fields have Nix's names.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) allow_symlinked_store: Setting<bool>,
    pub(crate) auto_optimise_store: Setting<bool>,
    pub(crate) build_users_group: Setting<Text>,
    /// In seconds; 0 is no limit.
    pub(crate) connect_timeout: Setting<u64>,
    pub(crate) download_attempts: Setting<u32>,
    pub(crate) fsync_metadata: Setting<bool>,
    /// 0 is no limit.
    pub(crate) http_connections: Setting<u64>,
    pub(crate) http2: Setting<bool>,
    /// In seconds.
    pub(crate) narinfo_cache_meta_ttl: Setting<u32>,
    /// In seconds.
    pub(crate) narinfo_cache_negative_ttl: Setting<u32>,
    /// In seconds.
    pub(crate) narinfo_cache_positive_ttl: Setting<u32>,
    pub(crate) netrc_file: Setting<FileList>,
    pub(crate) require_sigs: Setting<bool>,
    pub(crate) ssl_cert_file: Setting<OptionalFile>,
    /// In seconds; 0 is no limit.
    pub(crate) stalled_download_timeout: Setting<u64>,
    /// What `auto` stands for.
    pub(crate) store: Setting<Text>,
    pub(crate) substituters: Setting<UrlList>,
    pub(crate) trusted_public_keys: Setting<PublicKeys>,
    pub(crate) trusted_substituters: Setting<UrlSet>,
    pub(crate) use_sqlite_wal: Setting<bool>,
    pub(crate) user_agent_suffix: Setting<Text>,
    /// Where the answers of caches are kept, if there is such a place.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Through whom caches are asked, which no setting says.
    pub(crate) proxies: Proxies,
    /// What was passed over, as Nix does in silence: files that cannot be read.
    pub(crate) unreadable_files: Vec<String>,
    /// Names given to `--option` that are no settings of floe.
    pub(crate) unknown_options: Vec<String>,
}

/// A setting with its names.
pub(crate) struct SettingEntry<'a> {
    pub(crate) name: &'static str,
    /// Names that it had in the past, or has in other versions of Nix.
    pub(crate) aliases: &'static [&'static str],
    pub(crate) setting: &'a mut dyn AnySetting,
}

impl Config {
    /// What files, environment and `--option NAME VALUE` say, the later over the earlier: system
    /// file, user files, `NIX_CONFIG`, options.
    ///
    /// Errors: [`ConfigError`]. A file that is not there or cannot be read is none.
    pub(crate) fn load(
        environment: &Environment,
        options: &[(&str, &str)],
    ) -> Result<Config, ConfigError> {
        let mut reader = ConfReader::default();
        reader.file(&environment.conf_dir.join("nix.conf"))?;
        for file in environment.user_files.iter().rev() {
            reader.file(file)?;
        }
        reader.variable(environment.nix_config.as_deref().unwrap_or_default())?;
        let mut config = Config::defaults(environment);
        if let Some((variable, path)) = &environment.certificates {
            let path = OptionalFile(Some(path.clone()));
            config
                .ssl_cert_file
                .replace(path, Origin::variable(variable));
        }
        if environment.allow_symlinked_store {
            let source = Origin::variable(NIX_IGNORE_SYMLINK_STORE);
            config.allow_symlinked_store.replace(true, source);
        }
        if let Some(remote) = &environment.remote {
            let source = Origin::variable(NIX_REMOTE);
            config.store.replace(Text(remote.clone()), source);
        }
        for assignment in reader.assignments {
            config.assign(&assignment.name, &assignment.value, &assignment.source)?;
        }
        for (name, value) in options {
            if !config.assign(name, value.as_bytes(), &Origin::Flag("--option"))? {
                config.unknown_options.push((*name).to_owned());
            }
        }
        config.unreadable_files = reader.unreadable_files;
        Ok(config)
    }

    /// Nix's own defaults, of its newest version where they have changed.
    fn defaults(environment: &Environment) -> Config {
        let group = if environment.is_root { "nixbld" } else { "" };
        let netrc = environment.conf_dir.join("netrc");
        Config {
            allow_symlinked_store: Setting::new(false),
            auto_optimise_store: Setting::new(false),
            build_users_group: Setting::new(Text(group.into())),
            connect_timeout: Setting::new(15),
            download_attempts: Setting::new(5),
            fsync_metadata: Setting::new(true),
            http_connections: Setting::new(25),
            http2: Setting::new(true),
            narinfo_cache_meta_ttl: Setting::new(7 * 24 * 3600),
            narinfo_cache_negative_ttl: Setting::new(3600),
            narinfo_cache_positive_ttl: Setting::new(30 * 24 * 3600),
            netrc_file: Setting::new(FileList(vec![netrc])),
            require_sigs: Setting::new(true),
            ssl_cert_file: Setting::new(OptionalFile(environment.default_certificates.clone())),
            stalled_download_timeout: Setting::new(300),
            store: Setting::new(Text("auto".into())),
            substituters: Setting::new(UrlList(vec!["https://cache.nixos.org/".into()])),
            trusted_public_keys: Setting::new(PublicKeys::nix_default()),
            trusted_substituters: Setting::new(UrlSet::default()),
            use_sqlite_wal: Setting::new(true),
            user_agent_suffix: Setting::new(Text::default()),
            cache_dir: environment.cache_dir.clone(),
            proxies: environment.proxies.clone(),
            unreadable_files: Vec::new(),
            unknown_options: Vec::new(),
        }
    }

    /// Every setting, by name.
    #[rustfmt::skip]
    pub(crate) fn entries(&mut self) -> Vec<SettingEntry<'_>> {
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
            entry("download-attempts", &["filetransfer-retry-attempts"],
                &mut self.download_attempts),
            entry("fsync-metadata", &[], &mut self.fsync_metadata),
            entry("http-connections", &["binary-caches-parallel-connections"],
                &mut self.http_connections),
            entry("http2", &[], &mut self.http2),
            entry("narinfo-cache-meta-ttl", &[], &mut self.narinfo_cache_meta_ttl),
            entry("narinfo-cache-negative-ttl", &[], &mut self.narinfo_cache_negative_ttl),
            entry("narinfo-cache-positive-ttl", &[], &mut self.narinfo_cache_positive_ttl),
            entry("netrc-file", &[], &mut self.netrc_file),
            entry("require-sigs", &[], &mut self.require_sigs),
            entry("ssl-cert-file", &[], &mut self.ssl_cert_file),
            entry("stalled-download-timeout", &[], &mut self.stalled_download_timeout),
            entry("store", &[], &mut self.store),
            entry("substituters", &["binary-caches"], &mut self.substituters),
            entry("trusted-public-keys", &["binary-cache-public-keys"],
                &mut self.trusted_public_keys),
            entry("trusted-substituters", &["trusted-binary-caches"],
                &mut self.trusted_substituters),
            entry("use-sqlite-wal", &[], &mut self.use_sqlite_wal),
            entry("user-agent-suffix", &[], &mut self.user_agent_suffix),
        ]
    }

    /// Sets or extends the setting of that name, if floe knows it. Only lists can be extended: for
    /// others, Nix knows no name that begins with `extra-`.
    fn assign(&mut self, name: &str, value: &[u8], source: &Origin) -> Result<bool, ConfigError> {
        for SettingEntry {
            name: own,
            aliases,
            setting,
        } in self.entries()
        {
            let is_own = |name: &str| name == own || aliases.contains(&name);
            let set = if is_own(name) {
                setting.set(value, source)
            } else if name.strip_prefix("extra-").is_some_and(is_own) && setting.is_list() {
                setting.append(value, source)
            } else {
                continue;
            };
            return match set {
                Ok(()) => Ok(true),
                Err(invalid) => Err(ConfigError::Value {
                    at: source.clone(),
                    name: name.to_owned(),
                    value: invalid.shown,
                    allowed: invalid.allowed,
                }),
            };
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
