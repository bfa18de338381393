//! Snapshots of the most common messages of the libraries, as users see them.
//!
//! `UPDATE_EXPECT=1 cargo test -p floe-cli --bins messages` writes changed messages into this file.

use std::io;
use std::path::Path;

use anyhow::Context as _;
use expect_test::{Expect, expect};
use floe_cache::CacheError;
use floe_config::{Config, Environment, ProcessUser, StoreFlags, served_store};
use floe_copy::resolve_store_uri;
use floe_format::{NarInfo, SecretKey, StoreDir, StorePath};
use floe_server::{ServeError, address};
use floe_store::{StoreError, StoreLayout, StoreReader};
use floe_transfer::{Error, Resource, Shortage, UriContext};

use super::*;
use crate::exit::{self, UsageError};

mod options;
mod path_specs;
mod trust;

/// Compares an error with its snapshot.
#[track_caller]
fn check(error: impl Into<anyhow::Error>, expected: &Expect) {
    expected.assert_eq(&exit::message(&error.into()));
}

/// Compares another text with its snapshot.
#[track_caller]
fn check_text(text: impl Display, expected: &Expect) {
    expected.assert_eq(&text.to_string());
}

fn path(name: &str) -> StorePath {
    StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap()
}

fn os_error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables.iter();
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    Environment::new(variables, ProcessUser::current())
}

/// The error of a configuration that `NIX_CONFIG` holds.
fn config_error(text: &str) -> anyhow::Error {
    let variables = [
        ("NIX_CONF_DIR", "/nonexistent"),
        ("NIX_USER_CONF_FILES", ""),
        ("NIX_CONFIG", text),
    ];
    Config::load(&environment(&variables), &[])
        .unwrap_err()
        .into()
}

fn uri_error(uri: &str) -> Error {
    resolve_store_uri(uri, &UriContext::default()).unwrap_err()
}

fn shortage() -> Shortage {
    Shortage {
        directory: "/mnt/nix/store".into(),
        mount_point: "/mnt".into(),
        kind: Some("ext4"),
        resource: Resource::Bytes,
        wanted: 20 << 30,
        free: 5 << 30,
        is_certain: true,
    }
}

const ACCESS: i32 = 13;
const NO_SPACE: i32 = 28;
const READ_ONLY: i32 = 30;
const NO_FILE: i32 = 2;
const IN_USE: i32 = 98;

fn serve_error(uri: &str) -> anyhow::Error {
    let flags = StoreFlags {
        store: Some(uri),
        ..StoreFlags::default()
    };
    let served = served_store(&flags, &environment(&[]));
    served.unwrap_err().into()
}

fn io_failure() -> io::Result<()> {
    Err(os_error(NO_FILE))
}

#[test]
fn argument_errors_name_the_fix() {
    let key = SecretKey::from_seed("cache-1", [7; 32]).unwrap();
    check(
        environment(&[]).uri_context(Some("nix")).unwrap_err(),
        &expect![[
            r#"--store-dir: cannot use "nix" as a store directory: it must be an absolute path other than /"#
        ]],
    );
    check(
        floe_transfer::trusted_keys([key.to_text().as_str()]).unwrap_err(),
        &expect![[
            r#"cannot parse the public key that begins with "cache-1": it is a secret key; try its public key, which floe key public prints"#
        ]],
    );
    check(
        Error::from(CacheError::SecretKey {
            path: "/etc/nix/cache.key".into(),
            reason: SecretKey::parse(&key.public().to_string())
                .unwrap_err()
                .reason(),
        }),
        &expect![
            "cannot read the secret key in /etc/nix/cache.key: it is a public key; try the secret key of the pair"
        ],
    );
    check(
        floe_transfer::trusted_keys(["cache-1"]).unwrap_err(),
        &expect![[
            r#"cannot parse the public key that begins with "cache-1": it must look like NAME:BASE64; floe key public makes it from a secret key"#
        ]],
    );
    check(
        uri_error("gs://bucket"),
        &expect![[
            r#"cannot use "gs://bucket" as a store or binary cache: floe does not support this object store; use s3:// with its endpoint if it has one, or copy to file://DIR and upload that directory"#
        ]],
    );
    check(
        uri_error("file:///srv/cache?compression=rar"),
        &expect![[
            r#"cannot use "file:///srv/cache" as a store or binary cache: unknown compression method "rar""#
        ]],
    );
}

#[test]
fn configuration_messages_name_the_place() {
    check(
        config_error("http2 = maybe"),
        &expect![[
            r#"NIX_CONFIG:1: cannot set http2 to "maybe": it takes true or false, which may also be written yes and no or 1 and 0"#
        ]],
    );
    check(
        config_error("http2 true"),
        &expect![[
            r#"NIX_CONFIG:1: "http2" is not followed by = between spaces; write NAME = VALUE, or include PATH"#
        ]],
    );
    check(
        config_error("include /absent.conf"),
        &expect![
            "NIX_CONFIG:1: cannot include /absent.conf: it does not exist; write !include for a file that may be missing"
        ],
    );
}

#[test]
fn source_errors() {
    check(
        Error::Fetch {
            url: "https://cache.example.org/0.narinfo".into(),
            reason: "the server answered 503".into(),
            transient: true,
            status: None,
            retry_after: None,
        },
        &expect!["cannot fetch https://cache.example.org/0.narinfo: the server answered 503"],
    );
    check(
        Error::from(CacheError::NotACache {
            url: "https://example.org".into(),
            reason: "a web page came instead".into(),
        }),
        &expect![
            "cannot use https://example.org as a binary cache: it has no valid nix-cache-info (a web page came instead); check the URL"
        ],
    );
    check(
        Error::NotFound {
            path: path("hello-2.12").to_string(),
            sources: vec!["https://a.example".into(), "https://b.example".into()],
        },
        &expect![
            "cannot find 00000000000000000000000000000000-hello-2.12 in https://a.example, https://b.example"
        ],
    );
    check(
        Error::from(CacheError::NarInfo {
            url: "https://cache.example.org/0.narinfo".into(),
            source: Box::new(NarInfo::parse(b"<html>", &StoreDir::default()).unwrap_err()),
        }),
        &expect![
            "cannot use the narinfo https://cache.example.org/0.narinfo: cannot parse narinfo: a web page came instead"
        ],
    );
}

#[test]
fn copy_errors() {
    check(
        Error::MissingReferences {
            path: path("hello-2.12"),
            missing: [path("glibc-2.40")].into(),
        },
        &expect![
            "cannot copy 00000000000000000000000000000000-hello-2.12: its references are missing: 00000000000000000000000000000000-glibc-2.40"
        ],
    );
    check(
        Error::NoSpace(Box::new(shortage())),
        &expect![
            "cannot copy: it needs about 20 GiB in /mnt/nix/store, but /mnt (ext4) has 5.0 GiB free; nothing was installed; free some space, choose another target, or try --no-check-space"
        ],
    );
    check(
        Error::Cancelled,
        &expect!["interrupted; registered paths stay valid, and another run fetches the rest"],
    );
}

#[test]
fn store_errors() {
    check(
        StoreReader::open(StoreLayout::in_root(
            Path::new("/absent"),
            StoreDir::default(),
        ))
        .map(drop)
        .unwrap_err(),
        &expect![
            "cannot open the Nix store at /absent/nix/store: there is no store, because /absent/nix/var/nix/db/db.sqlite does not exist; try --root with the directory that holds nix/store, or floe install, which creates a store"
        ],
    );
    check(
        StoreError::Io {
            action: "create the directory",
            path: "/nix/store/x".into(),
            source: os_error(ACCESS),
        },
        &expect![
            "cannot create the directory /nix/store/x: Permission denied (os error 13); try running as the owner of the store, or a store of your own with --root DIR"
        ],
    );
    check(
        StoreError::Io {
            action: "write",
            path: "/nix/store/x".into(),
            source: os_error(NO_SPACE),
        },
        &expect![
            "cannot write /nix/store/x: No space left on device (os error 28); try making room (see `df -h` and `df -i`)"
        ],
    );
    check(
        StoreError::Io {
            action: "write",
            path: "/nix/store/x".into(),
            source: os_error(READ_ONLY),
        },
        &expect![
            "cannot write /nix/store/x: Read-only file system (os error 30); try a writable store with --root DIR"
        ],
    );
    check(
        StoreError::DaemonOwned("/nix/var/nix".into()),
        &expect![
            "cannot write to the store at /nix/var/nix: it belongs to the Nix daemon; try floe as root (sudo floe …), or a store of your own with --root DIR"
        ],
    );
}

#[test]
fn server_messages() {
    check(
        UsageError(address::parse("5000").unwrap_err().0),
        &expect![[
            r#"cannot listen on "5000": not an address; try HOST:PORT, :PORT, [IPV6]:PORT, or the path of a Unix socket with a slash in it"#
        ]],
    );
    check(
        UsageError(address::parse(":443:ssl").unwrap_err().0),
        &expect![
            "cannot listen on :443:ssl: the suffix :ssl is that of starman; try :443 with --tls-cert and --tls-key"
        ],
    );
    check(
        ServeError::Listen {
            address: "*:5000".into(),
            source: os_error(IN_USE),
        },
        &expect!["cannot listen on *:5000: another process uses this port; try another port"],
    );
    check(
        serve_error("https://cache.example.org"),
        &expect![
            "cannot serve https://cache.example.org: it is not a local store; give a directory, local, local?root=DIR or auto"
        ],
    );
    check(
        floe_config::read_secret_keys(&["/absent".into()], &environment(&[])).unwrap_err(),
        &expect!["cannot read the secret key /absent: No such file or directory (os error 2)"],
    );
    check_text(
        crate::commands::nix_serve::messages::ignored_option(
            "--workers",
            "floe has no worker processes",
        ),
        &expect!["ignoring --workers: floe has no worker processes"],
    );
    check(
        UsageError(crate::commands::nix_serve::messages::unknown_option(
            "--wrokers",
        )),
        &expect!["unknown option --wrokers; nix-serve --help lists all options"],
    );
    check(
        io_failure()
            .context(crate::commands::serve::messages::log_file(
                "access log",
                Path::new("/absent/log"),
            ))
            .unwrap_err(),
        &expect!["cannot open the access log /absent/log: No such file or directory (os error 2)"],
    );
}
