//! Where the configuration of this process is: what its environment, its user and the disk say.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use floe_engine::Proxies;
use floe_store::canon_path;
use nix::unistd::Uid;

use super::files::NIX_CONFIG;
use crate::accounts;

/// Where the configuration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    /// The directory of the system's nix.conf and netrc.
    pub(crate) conf_dir: PathBuf,
    /// The user's files, the most important one first.
    pub(crate) user_files: Vec<PathBuf>,
    /// The text of `NIX_CONFIG`.
    pub(crate) nix_config: Option<Vec<u8>>,
    /// The store that `NIX_REMOTE` names.
    pub(crate) remote: Option<String>,
    /// Whether `NIX_IGNORE_SYMLINK_STORE` allows a store below a symbolic link.
    pub(crate) allow_symlinked_store: bool,
    /// The variable that names certificates, and the file that it names.
    pub(crate) certificates: Option<(&'static str, PathBuf)>,
    /// The certificates that Nix uses when nobody names any.
    pub(crate) default_certificates: Option<PathBuf>,
    /// Where the answers of caches may be kept.
    pub(crate) cache_dir: Option<PathBuf>,
    /// Through whom caches are asked.
    pub(crate) proxies: Proxies,
    /// Whether the process may write to a store that belongs to root.
    pub(crate) is_root: bool,
}

impl Environment {
    /// Those of this process.
    pub(crate) fn from_process() -> Environment {
        let default_certificates = CERTIFICATE_FILES.into_iter().map(Path::new);
        Environment {
            default_certificates: default_certificates
                .filter(|path| fs::symlink_metadata(path).is_ok())
                .map(Path::to_owned)
                .next(),
            is_root: Uid::current().is_root(),
            ..Environment::from_variables(&|name| std::env::var_os(name), home)
        }
    }

    /// Those that the environment names. `home` is asked only for what no variable says.
    fn from_variables(
        variable: &dyn Fn(&str) -> Option<OsString>,
        home: fn(Option<OsString>) -> Option<PathBuf>,
    ) -> Environment {
        let filled = |name: &str| variable(name).filter(|value| !value.is_empty());
        let below_home = |name: &str, folder: &str| {
            let named = filled(name).map(PathBuf::from);
            named.or_else(|| Some(home(filled("HOME"))?.join(folder)))
        };
        let conf_dir = filled("NIX_CONF_DIR").map_or_else(|| CONF_DIR.into(), PathBuf::from);
        let conf_dir = canon_path(&std::path::absolute(&conf_dir).unwrap_or(conf_dir));
        let user_files = match variable("NIX_USER_CONF_FILES") {
            Some(files) => split(&files),
            None => {
                let own = filled("NIX_CONFIG_HOME")
                    .map(PathBuf::from)
                    .or_else(|| Some(below_home("XDG_CONFIG_HOME", ".config")?.join("nix")));
                let dirs = variable("XDG_CONFIG_DIRS").unwrap_or_else(|| CONFIG_DIRS.into());
                let dirs = split(&dirs).into_iter().map(|dir| dir.join("nix"));
                own.into_iter()
                    .chain(dirs)
                    .map(|dir| dir.join("nix.conf"))
                    .collect()
            }
        };
        // An empty NIX_SSL_CERT_FILE is a statement: the other variable does not count then.
        let certificates = ["NIX_SSL_CERT_FILE", "SSL_CERT_FILE"]
            .into_iter()
            .find_map(|name| Some((name, variable(name)?)))
            .filter(|(_, file)| !file.is_empty())
            .map(|(name, file)| (name, file.into()));
        Environment {
            conf_dir,
            user_files,
            nix_config: variable(NIX_CONFIG).map(OsString::into_vec),
            // One that is not text names no store that floe could open, or Nix.
            remote: filled(NIX_REMOTE).and_then(|store| store.into_string().ok()),
            allow_symlinked_store: filled(NIX_IGNORE_SYMLINK_STORE)
                .is_some_and(|value| value == "1"),
            certificates,
            default_certificates: None,
            cache_dir: below_home("XDG_CACHE_HOME", ".cache").map(|dir| dir.join("floe")),
            proxies: Proxies::from_env(|name| variable(name)?.into_string().ok()),
            is_root: false,
        }
    }
}

/// The home of the user: `$HOME` unless somebody else owns it, as after `sudo` without `-H`, whose
/// files must not decide what root trusts; then that of the system's list of users.
fn home(named: Option<OsString>) -> Option<PathBuf> {
    let user = Uid::effective();
    let named = named
        .map(PathBuf::from)
        .filter(|home| fs::metadata(home).map_or(true, |home| home.uid() == user.as_raw()));
    named.or_else(|| Some(accounts::user_by_uid(user).ok()??.home))
}

/// The parts between colons; empty ones name nothing.
fn split(list: &OsStr) -> Vec<PathBuf> {
    list.as_bytes()
        .split(|&byte| byte == b':')
        .filter(|part| !part.is_empty())
        .map(|part| OsStr::from_bytes(part).into())
        .collect()
}

/// Where Nix looks for certificates: those of most systems, and those that came with Nix.
const CERTIFICATE_FILES: [&str; 2] = [
    SYSTEM_CERTIFICATES,
    "/nix/var/nix/profiles/default/etc/ssl/certs/ca-bundle.crt",
];

/// Certificates that floe finds by itself too, and with them others of the system.
pub(super) const SYSTEM_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The variable that names the store, where the configuration does not.
pub(super) const NIX_REMOTE: &str = "NIX_REMOTE";

/// The variable that Nix had for `allow-symlinked-store` before it had the setting.
pub(super) const NIX_IGNORE_SYMLINK_STORE: &str = "NIX_IGNORE_SYMLINK_STORE";

/// Where Nix has its configuration, as everybody builds it.
const CONF_DIR: &str = "/etc/nix";

/// What the XDG base directory specification says for an unset `XDG_CONFIG_DIRS`.
const CONFIG_DIRS: &str = "/etc/xdg";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        let find = |name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Environment::from_variables(&find, |home| home.map(PathBuf::from))
    }

    fn user_files(variables: &[(&str, &str)]) -> Vec<String> {
        let files = of(variables).user_files.into_iter();
        files.map(|file| file.display().to_string()).collect()
    }

    #[test]
    fn the_places_are_those_of_nix() {
        let home = ("HOME", "/home/me");
        assert_eq!(of(&[]).conf_dir, Path::new("/etc/nix"));
        assert_eq!(of(&[("NIX_CONF_DIR", "")]).conf_dir, Path::new("/etc/nix"));
        assert_eq!(
            of(&[("NIX_CONF_DIR", "/a/../b/")]).conf_dir,
            Path::new("/b")
        );
        assert_eq!(
            user_files(&[home]),
            ["/home/me/.config/nix/nix.conf", "/etc/xdg/nix/nix.conf"]
        );
        let dirs = [
            home,
            ("XDG_CONFIG_HOME", "/x"),
            ("XDG_CONFIG_DIRS", "/y:/z"),
        ];
        assert_eq!(
            user_files(&dirs),
            ["/x/nix/nix.conf", "/y/nix/nix.conf", "/z/nix/nix.conf"]
        );
        let own = [home, ("NIX_CONFIG_HOME", "/n"), ("XDG_CONFIG_DIRS", "")];
        assert_eq!(user_files(&own), ["/n/nix.conf"]);
        assert_eq!(user_files(&[]), ["/etc/xdg/nix/nix.conf"]);
    }

    #[test]
    fn a_list_of_files_takes_the_place_of_all_others_even_if_empty() {
        let files = |list| user_files(&[("HOME", "/home/me"), ("NIX_USER_CONF_FILES", list)]);
        assert_eq!(files("/a:b:"), ["/a", "b"]);
        assert_eq!(files(""), [""; 0]);
    }

    #[test]
    fn a_store_below_a_symbolic_link_is_allowed_by_a_1_alone() {
        let allows = |value| of(&[(NIX_IGNORE_SYMLINK_STORE, value)]).allow_symlinked_store;
        assert!(allows("1"));
        assert!(!allows("") && !allows("true") && !of(&[]).allow_symlinked_store);
    }

    #[test]
    fn the_first_variable_for_certificates_counts_even_if_empty() {
        let file = |variables: &[(&str, &str)]| of(variables).certificates;
        let (nix, ssl) = ("NIX_SSL_CERT_FILE", "SSL_CERT_FILE");
        assert_eq!(file(&[(nix, "/a"), (ssl, "/b")]), Some((nix, "/a".into())));
        assert_eq!(file(&[(ssl, "/b")]), Some((ssl, "/b".into())));
        assert_eq!(file(&[(nix, ""), (ssl, "/b")]), None);
        assert_eq!(file(&[]), None);
    }

    #[test]
    fn a_home_of_somebody_else_is_not_believed() {
        let own = tempfile::tempdir().unwrap();
        // Root can give a directory away; for others, that of all files is somebody else's.
        let stranger = match Uid::effective().is_root() {
            true => own.path().join("stranger"),
            false => PathBuf::from("/"),
        };
        if Uid::effective().is_root() {
            fs::create_dir(&stranger).unwrap();
            chown(&stranger, Some(1), None).unwrap();
        }
        assert_ne!(home(Some(stranger.clone().into())), Some(stranger));
        assert_eq!(home(Some(own.path().into())), Some(own.path().into()));
        let absent = own.path().join("absent");
        assert_eq!(home(Some(absent.clone().into())), Some(absent));
    }
}
