//! Tests of the variables, by Nix's rules.

use std::os::unix::fs::chown;

use super::*;

/// An environment of a user that the system does not know.
pub(crate) fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter();
    let user = Uid::from_raw(u32::MAX - 1);
    let mut environment = Environment::new(
        variables.map(|(name, value)| (name.into(), value.into())),
        ProcessUser {
            real: user,
            effective: user,
        },
    );
    environment.default_certificates = None;
    environment
}

fn user_conf_files(variables: &[(&str, &str)]) -> Vec<String> {
    let files = environment(variables).user_conf_files().into_iter();
    files.map(|file| file.display().to_string()).collect()
}

#[test]
fn conf_dir_and_user_files_are_those_of_nix() {
    let home = ("HOME", "/home/me");
    let conf_dir = |variables: &[(&str, &str)]| environment(variables).conf_dir();
    assert_eq!(conf_dir(&[]), Path::new("/etc/nix"));
    assert_eq!(conf_dir(&[("NIX_CONF_DIR", "")]), Path::new("/etc/nix"));
    assert_eq!(conf_dir(&[("NIX_CONF_DIR", "/a/../b/")]), Path::new("/b"));
    assert_eq!(
        user_conf_files(&[home]),
        ["/home/me/.config/nix/nix.conf", "/etc/xdg/nix/nix.conf"]
    );
    let dirs = [
        home,
        ("XDG_CONFIG_HOME", "/x"),
        ("XDG_CONFIG_DIRS", "/y:/z"),
    ];
    assert_eq!(
        user_conf_files(&dirs),
        ["/x/nix/nix.conf", "/y/nix/nix.conf", "/z/nix/nix.conf"]
    );
    let own = [home, ("NIX_CONFIG_HOME", "/n"), ("XDG_CONFIG_DIRS", "")];
    assert_eq!(user_conf_files(&own), ["/n/nix.conf"]);
    assert_eq!(user_conf_files(&[]), ["/etc/xdg/nix/nix.conf"]);
}

#[test]
fn nix_user_conf_files_replaces_all_even_if_empty() {
    let files = |list| user_conf_files(&[("HOME", "/home/me"), ("NIX_USER_CONF_FILES", list)]);
    assert_eq!(files("/a:b:"), ["/a", "b"]);
    assert_eq!(files(""), [""; 0]);
}

#[test]
fn symlinked_store_is_allowed_only_by_1() {
    let allows = |variables: &[(&str, &str)]| environment(variables).allows_symlinked_store();
    assert!(allows(&[(NIX_IGNORE_SYMLINK_STORE, "1")]));
    assert!(!allows(&[(NIX_IGNORE_SYMLINK_STORE, "")]));
    assert!(!allows(&[(NIX_IGNORE_SYMLINK_STORE, "true")]));
    assert!(!allows(&[]));
}

#[test]
fn data_home_is_absolute_or_below_home() {
    let data_home = |variables: &[(&str, &str)]| environment(variables).data_home();
    let home = ("HOME", "/home/me");
    let own = Some(PathBuf::from("/home/me/.local/share"));
    assert_eq!(data_home(&[home]), own);
    assert_eq!(data_home(&[home, ("XDG_DATA_HOME", "relative")]), own);
    assert_eq!(
        data_home(&[home, ("XDG_DATA_HOME", "/data")]),
        Some("/data".into())
    );
    assert_eq!(data_home(&[]), None);
}

#[test]
fn first_set_certificate_variable_counts_even_if_empty() {
    let file = |variables: &[(&str, &str)]| environment(variables).certificate_override();
    let (nix, ssl) = (NIX_SSL_CERT_FILE, SSL_CERT_FILE);
    assert_eq!(file(&[(nix, "/a"), (ssl, "/b")]), Some((nix, "/a".into())));
    assert_eq!(file(&[(ssl, "/b")]), Some((ssl, "/b".into())));
    assert_eq!(file(&[(nix, ""), (ssl, "/b")]), None);
    assert_eq!(file(&[]), None);
}

#[test]
fn certificates_without_configuration_follow_the_same_rule() {
    let certificates = |variables: &[(&str, &str)], default: Option<&str>| {
        let mut environment = environment(variables);
        environment.default_certificates = default.map(PathBuf::from);
        environment.network_options().certificates
    };
    let (nix, ssl) = (NIX_SSL_CERT_FILE, SSL_CERT_FILE);
    let system = Some(SYSTEM_CERTIFICATES);
    let file = |path: &str| Some(PathBuf::from(path));
    assert_eq!(certificates(&[(ssl, "/b")], system), file("/b"));
    assert_eq!(certificates(&[], system), None);
    assert_eq!(certificates(&[], Some("/profile")), file("/profile"));
    assert_eq!(certificates(&[], None), None);
    // The empty variable overrules the other one.
    let empty = [(nix, ""), (ssl, "/b")];
    assert_eq!(certificates(&empty, Some("/profile")), file("/profile"));
    // `None` would let the TLS library read SSL_CERT_FILE.
    assert_eq!(certificates(&empty, system), file(SYSTEM_CERTIFICATES));
}

#[test]
fn home_of_another_user_is_ignored() {
    let user = Uid::effective();
    let own = tempfile::tempdir().unwrap();
    // Root can give a directory away. For other users, root's directory belongs to another user.
    let foreign = if user.is_root() {
        own.path().join("foreign")
    } else {
        PathBuf::from("/")
    };
    if user.is_root() {
        fs::create_dir(&foreign).unwrap();
        chown(&foreign, Some(1), None).unwrap();
    }
    assert_ne!(home(Some(foreign.clone()), user), Some(foreign));
    let own = own.path().to_owned();
    assert_eq!(home(Some(own.clone()), user), Some(own.clone()));
    let absent = own.join("absent");
    assert_eq!(home(Some(absent.clone()), user), Some(absent));
}

#[test]
fn variable_that_must_be_text_is_an_error_if_not_utf8() {
    use std::os::unix::ffi::OsStringExt as _;
    let user = ProcessUser::current();
    let variables = [(NIX_REMOTE.into(), OsString::from_vec(vec![0xff]))];
    let error = Environment::new(variables, user).remote().unwrap_err();
    assert!(error.to_string().contains("NIX_REMOTE"), "{error}");
}
