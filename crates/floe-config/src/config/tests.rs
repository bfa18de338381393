//! Tests of precedence and errors. floe-cli's tests/it/configuration.rs compares with the real Nix.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use floe_cache::{NarInfoDiskCacheOptions, NetworkOptions};
use floe_transfer::RetryPolicy;

use super::*;
use crate::environment::SYSTEM_CERTIFICATES;
use crate::environment::tests::environment;
use crate::network::setting_note;

/// A directory with a system file and, if it is not empty, a user's file.
struct Machine(tempfile::TempDir);

fn machine(system: &str, user: &str) -> Machine {
    let machine = Machine(tempfile::tempdir().unwrap());
    machine.write("nix.conf", system);
    if !user.is_empty() {
        machine.write("user.conf", user);
    }
    machine
}

impl Machine {
    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn environment(&self) -> Environment {
        self.environment_with(&[])
    }

    /// An environment that names this directory, with further variables.
    fn environment_with(&self, variables: &[(&str, &str)]) -> Environment {
        let (dir, user) = (self.path(""), self.path("user.conf"));
        let mut all = vec![
            ("NIX_CONF_DIR", &*dir),
            ("NIX_USER_CONF_FILES", &*user),
            ("XDG_CACHE_HOME", "/cache"),
        ];
        all.retain(|(name, _)| variables.iter().all(|(own, _)| own != name));
        all.extend(variables);
        environment(&all)
    }

    fn load(&self) -> Config {
        Config::load(&self.environment(), &[]).unwrap()
    }

    fn refusal(&self) -> String {
        let error = Config::load(&self.environment(), &[]).unwrap_err();
        error.to_string().replace(&self.path(""), "")
    }
}

fn origin(config: &mut Config, name: &str) -> String {
    let setting = config
        .entries()
        .into_iter()
        .find(|entry| entry.name == name);
    setting.unwrap().setting.origin()
}

#[test]
fn unset_settings_have_nixs_defaults() {
    let machine = machine("", "");
    let mut config = machine.load();
    assert_eq!(config.substituters.get().0, ["https://cache.nixos.org/"]);
    assert_eq!(config.trusted_public_keys.text(), CACHE_NIXOS_ORG_KEY);
    assert_eq!(
        config.netrc_file.get().0,
        [Path::new(&machine.path("netrc"))]
    );
    assert!(config.require_sigs.is_default());
    for entry in config.entries() {
        assert_eq!(entry.setting.origin(), "default", "{}", entry.name);
    }
}

#[test]
fn setting_that_floe_reads_is_not_ignored() {
    for entry in machine("", "").load().entries() {
        for name in [&[entry.name], entry.aliases].concat() {
            assert!(!is_ignored_setting(name), "{name} is used and ignored");
        }
    }
}

#[test]
fn later_origins_override_earlier_ones() {
    let text = |value: &str| format!("user-agent-suffix = {value}\n");
    let machine = machine(&text("system"), &text("user"));
    let files = [machine.path("user.conf"), machine.path("second.conf")].join(":");
    let files = ("NIX_USER_CONF_FILES", &*files);
    let mut environment = machine.environment_with(&[files]);
    let options = [("user-agent-suffix", "a"), ("user-agent-suffix", "b")];
    let load = |environment: &Environment, options: &[(&str, &str)]| {
        let mut config = Config::load(environment, options).unwrap();
        let value = config.user_agent_suffix.get().clone();
        let origin = origin(&mut config, "user-agent-suffix");
        [value, origin.replace(&machine.path(""), "")]
    };
    assert_eq!(load(&environment, &[]), ["user", "user.conf:1"]);
    machine.write("second.conf", &text("second"));
    assert_eq!(load(&environment, &[]), ["user", "user.conf:1"]);
    fs::remove_file(machine.path("user.conf")).unwrap();
    assert_eq!(load(&environment, &[]), ["second", "second.conf:1"]);
    fs::remove_file(machine.path("second.conf")).unwrap();
    assert_eq!(load(&environment, &[]), ["system", "nix.conf:1"]);
    let nix_config = ("NIX_CONFIG", "\nuser-agent-suffix = config");
    environment = machine.environment_with(&[files, nix_config]);
    assert_eq!(load(&environment, &[]), ["config", "NIX_CONFIG:2"]);
    assert_eq!(load(&environment, &options), ["b", "--option"]);
}

#[test]
fn extra_appends_and_a_later_value_replaces_all() {
    let machine = machine(
        "extra-substituters = file:///gone\nbinary-caches = file:///a file:///b\n",
        "extra-substituters = file:///c\nextra-binary-caches = file:///a\n",
    );
    let mut config = machine.load();
    let urls = ["file:///a", "file:///b", "file:///c", "file:///a"];
    assert_eq!(config.substituters.get().0, urls);
    assert!(!config.substituters.is_default());
    assert_eq!(
        origin(&mut config, "substituters").replace(&machine.path(""), ""),
        "nix.conf:2 and user.conf:1 and user.conf:2"
    );
}

#[test]
fn extra_works_for_lists_only_and_unknown_names_are_noted() {
    let machine = machine(
        "extra-http2 = false\nmax-jobs = x\nhttp = 1\nhttp = 2\n",
        "",
    );
    let mut config = machine.load();
    assert!(*config.http2.get());
    let options = [("max-jobs", "4"), ("no-such-thing", "1"), ("http2", "no")];
    config = Config::load(&machine.environment(), &options).unwrap();
    assert!(!*config.http2.get());
    let unknown = config.unknown_settings.iter();
    let unknown: Vec<_> = unknown
        .map(|it| {
            (
                &*it.name,
                it.origin.to_string().replace(&machine.path(""), ""),
                it.nearest,
            )
        })
        .collect();
    assert_eq!(
        unknown,
        [
            ("extra-http2", "nix.conf:1".into(), None),
            ("http", "nix.conf:3".into(), Some("http2")),
            ("no-such-thing", "--option".into(), None),
        ]
    );
}

#[test]
fn certificates_in_files_override_the_environment() {
    let machine = machine("", "");
    let environment = machine.environment_with(&[("SSL_CERT_FILE", "/env")]);
    let mut config = Config::load(&environment, &[]).unwrap();
    assert_eq!(config.network().certificates, Some("/env".into()));
    assert_eq!(origin(&mut config, "ssl-cert-file"), "SSL_CERT_FILE");
    machine.write("nix.conf", "ssl-cert-file = /file\n");
    let config = Config::load(&environment, &[]).unwrap();
    assert_eq!(config.network().certificates, Some("/file".into()));
}

#[test]
fn error_names_the_place_and_the_allowed_values() {
    let refusal = |text: &str| machine(&format!("\n{text}\n"), "").refusal();
    for (line, parts) in [
        (
            "http2 = maybe",
            ["cannot set http2 to \"maybe\"", "true or false"],
        ),
        ("http2 =", ["cannot set http2 to \"\"", "true or false"]),
        ("connect-timeout = 5s", ["\"5s\"", "a whole number from 0"]),
        ("download-attempts = 4G", ["\"4G\"", "to 4294967295"]),
        ("netrc-file = ~/.netrc", ["\"~/.netrc\"", "absolute paths"]),
        (
            "extra-netrc-file = a",
            ["cannot set extra-netrc-file to", "absolute paths"],
        ),
        (
            "ssl-cert-file = a",
            ["\"a\"", "an absolute path, or nothing"],
        ),
        ("trusted-public-keys = k:AA", ["\"k:…\"", "NAME:BASE64"]),
        (
            "http2=true",
            ["\"http2\" is not followed by =", "NAME = VALUE"],
        ),
        (
            "include a b",
            ["include is followed by 2 words", "one path"],
        ),
        ("include absent", ["absent: it does not exist", "!include"]),
    ] {
        let error = refusal(line);
        assert!(error.starts_with("nix.conf:2: "), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let machine = machine("", "");
    let environment = machine.environment_with(&[("NIX_CONFIG", "include x")]);
    let error = Config::load(&environment, &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("NIX_CONFIG:1: ") && error.contains("absolute"),
        "{error}"
    );
    let option = [("http-connections", "many")];
    let error = Config::load(&machine.environment(), &option).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("--option: cannot set http-connections to \"many\"")
    );
}

#[test]
fn includes_are_relative_to_their_file_and_read_in_place() {
    let machine = machine(
        "http-connections = 1\ninclude d/a.conf\n!include absent\n",
        "",
    );
    fs::create_dir(machine.path("d")).unwrap();
    machine.write(
        "d/a.conf",
        "# a comment\nhttp-connections = 2\ninclude ../b.conf\n",
    );
    machine.write("b.conf", "download-attempts = 3\n");
    let mut config = machine.load();
    assert_eq!(*config.http_connections.get(), 2);
    assert_eq!(
        origin(&mut config, "http-connections"),
        machine.path("d/a.conf:2")
    );
    assert_eq!(
        origin(&mut config, "filetransfer-retry-attempts"),
        machine.path("b.conf:1")
    );
    machine.write("nix.conf", "include d/a.conf\nhttp-connections = 1\n");
    assert_eq!(*machine.load().http_connections.get(), 1);
}

#[test]
fn recursive_or_too_many_includes_are_an_error() {
    let error = machine("include nix.conf\n", "").refusal();
    assert!(
        error.starts_with("nix.conf:1: ") && error.contains("16 deep (INCLUDE_DEPTH_MAX)"),
        "{error}"
    );
    let many = machine("include 1\n", "");
    for depth in 1..=15 {
        many.write(
            &depth.to_string(),
            &format!("include {0}\ninclude {0}\n", depth + 1),
        );
    }
    many.write("16", "");
    assert!(many.refusal().contains("256 files (INCLUDES_MAX)"));
    let few = machine("include 1\n", "");
    for depth in 1..=15 {
        few.write(&depth.to_string(), &format!("include {}\n", depth + 1));
    }
    few.write("16", "http2 = false\n");
    assert!(!*few.load().http2.get(), "16 files deep is not too deep");
}

#[test]
fn unreadable_file_is_ignored_and_noted() {
    let machine = machine("include d\nhttp2 = false\n", "");
    fs::create_dir(machine.path("d")).unwrap();
    let config = machine.load();
    assert!(!*config.http2.get());
    assert_eq!(config.unreadable_files.len(), 1);
    assert!(
        config.unreadable_files[0].starts_with(&machine.path("d: ")),
        "{:?}",
        config.unreadable_files
    );
}

#[test]
fn endless_file_is_an_error() {
    let machine = machine("include /dev/zero\n", "");
    assert!(machine.refusal().starts_with("/dev/zero: "));
}

#[test]
fn non_utf8_bytes_are_an_error_only_in_known_settings() {
    let machine = machine("", "");
    fs::write(machine.path("nix.conf"), b"x\xff = \xff # \xff\n").unwrap();
    machine.load();
    fs::write(machine.path("nix.conf"), b"substituters = \xff\n").unwrap();
    assert!(machine.refusal().contains("text in UTF-8"));
}

#[test]
fn network_options_follow_the_settings() {
    let machine = machine("", "");
    let network = machine.load().network();
    assert_eq!(
        network,
        // The defaults of the settings are those of libfloe.
        NetworkOptions {
            netrc: vec![machine.path("netrc").into()],
            services: network.services.clone(),
            narinfo_disk_cache: Some(NarInfoDiskCacheOptions {
                file: "/cache/floe/narinfos.sqlite".into(),
                positive_ttl: Duration::from_secs(2_592_000),
                negative_ttl: Duration::from_secs(3600),
                meta_ttl: Duration::from_secs(7 * 24 * 3600),
                refresh: false,
            }),
            ..NetworkOptions::default()
        }
    );
    machine.write(
        "nix.conf",
        "http-connections = 0\nconnect-timeout = 0\nstalled-download-timeout = 0\n\
         download-attempts = 0\nfiletransfer-retry-delay = 7\n\
         filetransfer-retry-delay-rate-limited = 8\nfiletransfer-retry-max-delay = 9\n\
         filetransfer-retry-jitter = false\nhttp2 = 0\n\
         network-threads = 3\nuser-agent-suffix = x y\nnetrc-file = /a /b\n\
         narinfo-cache-positive-ttl = 0\nnarinfo-cache-negative-ttl = 0\nssl-cert-file = /c\n",
    );
    let network = machine.load().network();
    let year = Duration::from_secs(365 * 24 * 3600);
    assert_eq!(
        network,
        NetworkOptions {
            certificates: Some("/c".into()),
            netrc: vec!["/a".into(), "/b".into()],
            connections: 512,
            connect_timeout: None,
            stall_timeout: year,
            retry: RetryPolicy {
                attempts: 1,
                // The number of attempts counts alone.
                outage_timeout: Duration::ZERO,
                delay: Duration::from_millis(7),
                rate_limited_delay: Duration::from_millis(8),
                delays_unavailable: true,
                max_delay: Duration::from_millis(9),
                jitter: false,
            },
            workers: 16,
            threads: NonZeroUsize::new(3),
            http2: false,
            user_agent_suffix: "x y".into(),
            proxies: Proxies::default(),
            services: network.services.clone(),
            narinfo_disk_cache: None,
            tells_certificates: false,
        }
    );
    assert_eq!(
        setting_note(&network, "narinfo-cache-negative-ttl").as_deref(),
        Some("not kept")
    );
    machine.write(
        "nix.conf",
        "connect-timeout = 16777215T\nnarinfo-cache-negative-ttl = 0\n",
    );
    let network = machine.load().network();
    assert_eq!(network.connect_timeout, Some(year));
    assert_eq!(
        setting_note(&network, "narinfo-cache-negative-ttl").as_deref(),
        Some("not kept")
    );
    let kept = setting_note(&network, "narinfo-cache-positive-ttl");
    assert_eq!(kept.as_deref(), Some("kept in /cache/floe/narinfos.sqlite"));
}

#[test]
fn default_certificates_mean_all_of_the_system() {
    let machine = machine("", "");
    let certificates = |variables: &[(&str, &str)], default: &str| {
        let mut environment = machine.environment_with(variables);
        environment.default_certificates = Some(default.into());
        let config = Config::load(&environment, &[]).unwrap();
        config.network().certificates
    };
    let system = Some(SYSTEM_CERTIFICATES.into());
    assert_eq!(certificates(&[], SYSTEM_CERTIFICATES), None);
    let profile = Some("/nix/bundle.crt".into());
    assert_eq!(certificates(&[], "/nix/bundle.crt"), profile);
    let named = [("SSL_CERT_FILE", SYSTEM_CERTIFICATES)];
    assert_eq!(certificates(&named, SYSTEM_CERTIFICATES), system);
    // An empty NIX_SSL_CERT_FILE overrules the other variable, which the TLS library would read.
    let empty = [("NIX_SSL_CERT_FILE", ""), ("SSL_CERT_FILE", "/env")];
    assert_eq!(certificates(&empty, SYSTEM_CERTIFICATES), system);
    assert_eq!(certificates(&empty, "/nix/bundle.crt"), profile);
}
