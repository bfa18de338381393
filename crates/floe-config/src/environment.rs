//! The environment of a process, as far as floe's configuration depends on it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use floe_cache::{NetworkOptions, Proxies, ServiceEnvironment};
use floe_store::canon_path;
use nix::unistd::Uid;

use crate::accounts;
use crate::error::ConfigError;
use crate::origin::NIX_CONFIG;

/// The variables that floe's configuration depends on, and the user of the process.
///
/// A plain value: it is made once, and nothing below reads the environment again.
#[derive(Clone)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    user: ProcessUser,
    /// The certificates that Nix uses when no setting and no variable names any.
    pub(crate) default_certificates: Option<PathBuf>,
}

/// The users of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUser {
    /// The user that started the process.
    pub real: Uid,
    /// The user whose rights the process has.
    pub effective: Uid,
}

impl ProcessUser {
    /// Returns the users of this process.
    pub fn current() -> ProcessUser {
        ProcessUser {
            real: Uid::current(),
            effective: Uid::effective(),
        }
    }
}

impl Environment {
    /// Captures variables, and looks for the default certificates on disk.
    pub fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        user: ProcessUser,
    ) -> Environment {
        let variables = variables.into_iter();
        let mut default_certificates = CERTIFICATE_FILES.into_iter().map(Path::new);
        Environment {
            variables: variables
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
                .collect(),
            user,
            default_certificates: default_certificates
                .find(|path| fs::symlink_metadata(path).is_ok())
                .map(Path::to_owned),
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).map(OsString::as_os_str)
    }

    /// The variable, if it is set and not empty.
    fn non_empty(&self, name: &str) -> Option<&OsStr> {
        self.variable(name).filter(|value| !value.is_empty())
    }

    /// The path that a variable holds, if it is set and not empty.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.non_empty(name).map(PathBuf::from)
    }

    /// The directory that a variable names, in Nix's canonical form, if it is set and not empty.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        let named = self.path(name)?;
        Some(canon_path(&std::path::absolute(&named).unwrap_or(named)))
    }

    /// The text that a variable holds, if it is set and not empty.
    fn text(&self, name: &'static str) -> Result<Option<&str>, ConfigError> {
        let Some(value) = self.non_empty(name) else {
            return Ok(None);
        };
        value
            .to_str()
            .map(Some)
            .ok_or_else(|| ConfigError::NotUtf8 {
                variable: name,
                value: value.display().to_string(),
            })
    }

    /// The directory of the system's nix.conf and netrc.
    pub(crate) fn conf_dir(&self) -> PathBuf {
        let named = self.directory("NIX_CONF_DIR");
        named.unwrap_or_else(|| CONF_DIR.into())
    }

    /// The user's configuration files, the most important one first.
    pub(crate) fn user_conf_files(&self) -> Vec<PathBuf> {
        if let Some(files) = self.variable("NIX_USER_CONF_FILES") {
            return split(files);
        }
        let own = self.path("NIX_CONFIG_HOME");
        let own = own.or_else(|| Some(self.below_home("XDG_CONFIG_HOME", ".config")?.join("nix")));
        let dirs = self.variable("XDG_CONFIG_DIRS");
        let dirs = split(dirs.unwrap_or(CONFIG_DIRS.as_ref())).into_iter();
        own.into_iter()
            .chain(dirs.map(|dir| dir.join("nix")))
            .map(|dir| dir.join("nix.conf"))
            .collect()
    }

    /// The text of `NIX_CONFIG`; empty if the variable is not set.
    pub(crate) fn nix_config(&self) -> &[u8] {
        self.variable(NIX_CONFIG).map_or(&[], OsStr::as_bytes)
    }

    /// The store URI that `NIX_REMOTE` holds.
    ///
    /// Errors: [`ConfigError::NotUtf8`].
    pub(crate) fn remote(&self) -> Result<Option<&str>, ConfigError> {
        self.text(NIX_REMOTE)
    }

    /// The socket of the daemon that `NIX_DAEMON_SOCKET_PATH` names.
    pub(crate) fn daemon_socket(&self) -> Option<PathBuf> {
        self.directory(NIX_DAEMON_SOCKET_PATH)
    }

    /// The directory for temporary files that `TMPDIR` names.
    pub(crate) fn temporary_dir(&self) -> Option<PathBuf> {
        self.directory(TMPDIR)
    }

    /// The options of ssh that `NIX_SSHOPTS` holds.
    ///
    /// Errors: [`ConfigError::NotUtf8`].
    pub(crate) fn ssh_options(&self) -> Result<Option<&str>, ConfigError> {
        self.text(NIX_SSHOPTS)
    }

    /// Whether `NIX_IGNORE_SYMLINK_STORE` allows a store below a symbolic link.
    pub(crate) fn allows_symlinked_store(&self) -> bool {
        self.variable(NIX_IGNORE_SYMLINK_STORE)
            .is_some_and(|value| value == "1")
    }

    /// The variable that names a file of certificates, and the file.
    ///
    /// The rule is that of Nix's `FileTransferSettings` (src/libstore/filetransfer.cc): the first
    /// variable that is set counts. If it is empty, it names no file, and the second variable does
    /// not count either.
    pub(crate) fn certificate_override(&self) -> Option<(&'static str, PathBuf)> {
        let set = |name| Some((name, self.variable(name)?));
        let (name, file) = set(NIX_SSL_CERT_FILE).or_else(|| set(SSL_CERT_FILE))?;
        (!file.is_empty()).then(|| (name, file.into()))
    }

    /// The certificates for TLS where no configuration file is read. `None` means all certificates
    /// of the system.
    pub fn certificates(&self) -> Option<PathBuf> {
        match self.certificate_override() {
            Some((_, file)) => Some(file),
            None => self.certificates_by_default(),
        }
    }

    /// The certificates for TLS where neither a setting nor a variable names a file. `None` means
    /// all certificates of the system, which contain Nix's first default.
    ///
    /// The TLS library reads `SSL_CERT_FILE` by itself when it looks for the certificates of the
    /// system. If `NIX_SSL_CERT_FILE` has overruled that variable, only a file keeps the library
    /// from reading it.
    pub(crate) fn certificates_by_default(&self) -> Option<PathBuf> {
        let has_all = self.variable(SSL_CERT_FILE).is_none();
        let file = self.default_certificates.clone();
        file.filter(|file| !(has_all && file == Path::new(SYSTEM_CERTIFICATES)))
    }

    /// The directory in which floe keeps replies of caches.
    pub(crate) fn cache_dir(&self) -> Option<PathBuf> {
        let dir = self.below_home("XDG_CACHE_HOME", ".cache")?;
        Some(dir.join("floe"))
    }

    /// The directory in which floe keeps what it must not forget: that of a systemd service, else
    /// `$XDG_STATE_HOME/floe` (`~/.local/state/floe`).
    pub(crate) fn own_state_dir(&self) -> Option<PathBuf> {
        // systemd separates several directories by colons.
        let of_service = self.variable("STATE_DIRECTORY").and_then(OsStr::to_str);
        let of_service = of_service.and_then(|paths| paths.split(':').next());
        let of_service = of_service
            .filter(|path| path.starts_with('/'))
            .map(PathBuf::from);
        of_service.or_else(|| {
            Some(
                self.below_home("XDG_STATE_HOME", ".local/state")?
                    .join("floe"),
            )
        })
    }

    /// The directory for a user's own store: `$XDG_DATA_HOME`, else `~/.local/share`.
    pub fn data_home(&self) -> Option<PathBuf> {
        let xdg = self.variable("XDG_DATA_HOME").map(PathBuf::from);
        let xdg = xdg.filter(|path| path.is_absolute());
        xdg.or_else(|| Some(self.home()?.join(".local/share")))
    }

    /// The profile that `NIX_PROFILE` names, as nix-env reads it.
    pub fn profile(&self) -> Option<PathBuf> {
        self.path("NIX_PROFILE")
    }

    /// The directory of the user's state of Nix: `$XDG_STATE_HOME/nix`, else `~/.local/state/nix`.
    pub fn nix_state_home(&self) -> Option<PathBuf> {
        let own = self.path("NIX_STATE_HOME");
        own.or_else(|| {
            Some(
                self.below_home("XDG_STATE_HOME", ".local/state")?
                    .join("nix"),
            )
        })
    }

    /// The home directory that the environment names.
    pub fn home(&self) -> Option<&Path> {
        self.variable("HOME").map(Path::new)
    }

    /// The proxies that curl would take from the environment.
    pub(crate) fn proxies(&self) -> Proxies {
        Proxies::from_env(|name| self.variable(name)?.to_str().map(str::to_owned))
    }

    /// The variables of the services that hold caches, and the home directory.
    pub(crate) fn services(&self) -> ServiceEnvironment {
        let variables = self.variables.iter();
        let texts = variables.filter_map(|(name, value)| Some((name.as_str(), value.to_str()?)));
        ServiceEnvironment::new(texts, self.home())
    }

    /// The options of the network for a command that reads no configuration file.
    pub fn network_options(&self) -> NetworkOptions {
        NetworkOptions {
            certificates: self.certificates(),
            services: self.services(),
            ..NetworkOptions::default()
        }
    }

    /// The store directory that `NIX_STORE_DIR` holds, as text.
    ///
    /// Errors: [`ConfigError::NotUtf8`].
    pub(crate) fn store_dir(&self) -> Result<Option<&str>, ConfigError> {
        self.text(NIX_STORE_DIR)
    }

    /// The directory of the database (`NIX_STATE_DIR`).
    pub(crate) fn state_dir(&self) -> Option<PathBuf> {
        self.directory(NIX_STATE_DIR)
    }

    /// The directory of the build logs (`NIX_LOG_DIR`).
    pub(crate) fn log_dir(&self) -> Option<PathBuf> {
        self.directory(NIX_LOG_DIR)
    }

    /// The variables for the directories of a served store, as far as they are set. `floe serve`
    /// has no settings with the same meaning.
    pub(crate) fn store_directories(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        [NIX_STORE_DIR, NIX_STATE_DIR, NIX_LOG_DIR]
            .into_iter()
            .filter_map(|name| Some((name, self.non_empty(name)?)))
    }

    /// The file of a secret key (`NIX_SECRET_KEY_FILE`).
    pub fn secret_key_file(&self) -> Option<PathBuf> {
        self.path(NIX_SECRET_KEY_FILE)
    }

    /// The files of secret keys for `floe serve`, each with its variable: `NIX_SECRET_KEY_FILE`,
    /// and those of harmonia.
    ///
    /// Errors: [`ConfigError::NotUtf8`].
    pub(crate) fn signing_key_files(&self) -> Result<Vec<(&'static str, PathBuf)>, ConfigError> {
        let own = self
            .secret_key_file()
            .map(|file| (NIX_SECRET_KEY_FILE, file));
        let single = self.path(SIGN_KEY_PATH).map(|file| (SIGN_KEY_PATH, file));
        let several = self.text(SIGN_KEY_PATHS)?.unwrap_or_default();
        let several = several.split_whitespace();
        let several = several.map(|file| (SIGN_KEY_PATHS, PathBuf::from(file)));
        Ok(own.into_iter().chain(single).chain(several).collect())
    }

    /// The directory of systemd's credentials.
    pub(crate) fn credentials_dir(&self) -> Option<PathBuf> {
        self.variable("CREDENTIALS_DIRECTORY").map(PathBuf::from)
    }

    /// Whether root has started the process.
    pub(crate) fn is_root(&self) -> bool {
        self.user.real.is_root()
    }

    fn below_home(&self, variable: &str, folder: &str) -> Option<PathBuf> {
        self.path(variable)
            .or_else(|| Some(home(self.path("HOME"), self.user.effective)?.join(folder)))
    }
}

/// The home of a user: `$HOME`, unless another user owns it. Then it is the one that the system
/// knows.
///
/// After `sudo` without `-H`, `$HOME` belongs to the calling user, whose files must not decide what
/// root trusts.
fn home(variable: Option<PathBuf>, user: Uid) -> Option<PathBuf> {
    let is_own =
        |home: &PathBuf| fs::metadata(home).map_or(true, |home| home.uid() == user.as_raw());
    variable
        .filter(is_own)
        .or_else(|| Some(accounts::user_by_uid(user).ok()??.home))
}

/// Splits a list at its colons. Empty parts name nothing.
fn split(list: &OsStr) -> Vec<PathBuf> {
    list.as_bytes()
        .split(|&byte| byte == b':')
        .filter(|part| !part.is_empty())
        .map(|part| OsStr::from_bytes(part).into())
        .collect()
}

/// Nix's default certificates, in Nix's order: those of most systems, and those of Nix's default
/// profile.
const CERTIFICATE_FILES: [&str; 2] = [
    SYSTEM_CERTIFICATES,
    "/nix/var/nix/profiles/default/etc/ssl/certs/ca-bundle.crt",
];

/// The certificates of the system. floe finds them without a name, and others of the system too.
pub(crate) const SYSTEM_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The first variable for certificates. Only Nix and floe read it.
const NIX_SSL_CERT_FILE: &str = "NIX_SSL_CERT_FILE";

/// The second variable for certificates. OpenSSL and floe's TLS library read it as well.
const SSL_CERT_FILE: &str = "SSL_CERT_FILE";

/// The variable that names the store if the configuration does not.
pub(crate) const NIX_REMOTE: &str = "NIX_REMOTE";

/// The variable that names the socket of the daemon.
const NIX_DAEMON_SOCKET_PATH: &str = "NIX_DAEMON_SOCKET_PATH";

/// The variable that holds options of ssh.
const NIX_SSHOPTS: &str = "NIX_SSHOPTS";

/// The variable that names the directory for temporary files.
const TMPDIR: &str = "TMPDIR";

/// The variable that names the store directory.
pub(crate) const NIX_STORE_DIR: &str = "NIX_STORE_DIR";

/// The variables that name the directories of the database and of the build logs.
const NIX_STATE_DIR: &str = "NIX_STATE_DIR";
const NIX_LOG_DIR: &str = "NIX_LOG_DIR";

/// The variable of nix-serve that names the file of a secret key.
const NIX_SECRET_KEY_FILE: &str = "NIX_SECRET_KEY_FILE";

/// The variables of harmonia that name files of secret keys: one file, and several.
const SIGN_KEY_PATH: &str = "SIGN_KEY_PATH";
const SIGN_KEY_PATHS: &str = "SIGN_KEY_PATHS";

/// The variable that Nix had before it had the setting `allow-symlinked-store`.
pub(crate) const NIX_IGNORE_SYMLINK_STORE: &str = "NIX_IGNORE_SYMLINK_STORE";

/// The directory of the configuration in every common build of Nix.
const CONF_DIR: &str = "/etc/nix";

/// The default of `XDG_CONFIG_DIRS` in the XDG base directory specification.
const CONFIG_DIRS: &str = "/etc/xdg";

#[cfg(test)]
pub(crate) mod tests;
