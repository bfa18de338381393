//! Copies into and out of stores behind real Nix daemons, on this machine and over SSH.

mod faults;
mod hostile_daemons;
mod interrupts;
mod nix_copy_closure;
mod verify;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{
    Corpus, Nix, Scratch, corpus, hide_nix_conf, nixes, run, scratch, setpriv_to_nobody, sshd,
};

use crate::support::floe;

/// A store of one Nix, and the ways to reach it.
struct Place<'a> {
    nix: &'a Nix,
    corpus: Corpus,
    scratch: Scratch,
}

impl Place<'_> {
    fn root(&self) -> PathBuf {
        self.scratch.join("behind")
    }

    /// The URI of the store behind a program: `nix-daemon` or, for `ssh`, `nix-store`.
    fn program_uri(&self, scheme: &str, authority: &str, settings: &str) -> String {
        let tool = match scheme {
            "ssh" => "nix-store",
            _ => "nix-daemon",
        };
        let conf = self.scratch.join("conf");
        let program = self.nix.remote_program(tool, &conf, settings);
        let store = self.root();
        let store = store.display();
        format!("{scheme}://{authority}?remote-program={program}&remote-store={store}")
    }

    /// The setting with which a daemon trusts the key of the corpus.
    fn key_setting(&self) -> String {
        format!("trusted-public-keys = {}", self.corpus.key)
    }

    /// Copies the closure into a remote store and out of it again, and checks both stores.
    fn check_both_ways(&self, uri: &str, environment: &[(&str, String)], options: &[&str]) {
        let Place { nix, corpus, .. } = self;
        let from = corpus.file_url("zstd");
        let copy = |from: &str, to: &str| {
            let mut command = floe(["copy", "--json", "--from", from, "--to", to, &corpus.root]);
            command
                .args(options)
                .args(["--trusted-public-keys", &corpus.key]);
            command.envs(environment.iter().cloned());
            run(&mut command).expect(0).json()
        };
        let there = copy(&from, uri);
        assert_eq!(there["copied"], corpus.paths.len());
        nix.verify(&self.root(), corpus.paths.len());
        assert_eq!(
            self.rows(&self.root()),
            self.rows(&self.copied_by_nix(&from))
        );
        // Everything is present.
        assert_eq!(copy(&from, uri)["copied"], 0);

        let back = self.scratch.join("back");
        let fetched = copy(uri, back.to_str().unwrap());
        assert_eq!(fetched["copied"], corpus.paths.len());
        nix.verify(&back, corpus.paths.len());
        assert_eq!(self.rows(&back), self.rows(&self.root()));
        for root in [self.root(), back] {
            floe_store::tree::remove_tree(&root).unwrap();
        }
    }

    fn rows(&self, root: &Path) -> Vec<serde_json::Value> {
        let infos = self
            .nix
            .path_infos(root.to_str().unwrap(), &self.corpus.root);
        assert_eq!(infos.len(), self.corpus.paths.len());
        infos
    }

    /// A store that Nix itself has filled from a cache.
    fn copied_by_nix(&self, from: &str) -> PathBuf {
        let root = self.scratch.join("by-nix");
        let args = ["copy", "--no-check-sigs", "--from", from, "--to"];
        let mut command = self.nix.command("nix", args);
        run(command.arg(&root).arg(&self.corpus.root)).expect(0);
        root
    }
}

fn with_places(check: impl Fn(&Place<'_>)) {
    for nix in &nixes() {
        let Some(corpus) = corpus("jq") else { return };
        check(&Place {
            nix,
            corpus,
            scratch: scratch(),
        });
    }
}

#[test]
fn closure_passes_through_a_daemon_both_ways() {
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), &place.key_setting());
        place.check_both_ways(&daemon.uri(), &[], &[]);
    });
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), "");
        let socket = daemon.socket().display().to_string();
        let environment = [("NIX_DAEMON_SOCKET_PATH", socket)];
        place.check_both_ways("daemon", &environment, &["--no-check-sigs"]);
    });
}

#[test]
fn closure_passes_through_ssh_both_ways() {
    let Some(server) = sshd() else { return };
    with_places(|place| {
        let uri = place.program_uri("ssh-ng", "localhost", &place.key_setting());
        place.check_both_ways(&uri, &[], &[]);
    });
    with_places(|place| {
        let uri = place.program_uri("ssh-ng", &server.address(), "");
        let environment = [("NIX_SSHOPTS", server.options())];
        place.check_both_ways(&uri, &environment, &["--no-check-sigs"]);
    });
}

#[test]
fn absent_path_behind_the_serve_protocol_is_named() {
    with_places(|place| {
        let uri = place.program_uri("ssh", "localhost", "");
        let absent = "/nix/store/00000000000000000000000000000000-absent";
        let to = place.scratch.join("target");
        let mut copy = floe(["copy", "--from", &uri, "--to"]);
        run(copy.arg(&to).arg(absent))
            .expect(1)
            .stderr_contains("cannot find 00000000000000000000000000000000-absent");
    });
}

#[test]
fn closure_passes_through_the_serve_protocol_both_ways() {
    let Some(server) = sshd() else { return };
    with_places(|place| {
        let uri = place.program_uri("ssh", "localhost", "");
        // The other side checks no signatures.
        place.check_both_ways(&uri, &[], &[]);
    });
    with_places(|place| {
        let uri = place.program_uri("ssh", &server.address(), "");
        let environment = [("NIX_SSHOPTS", server.options())];
        place.check_both_ways(&uri, &environment, &[]);
    });
}

#[test]
fn destination_substitutes_before_paths_are_sent() {
    with_places(|place| {
        let cache = place.corpus.file_url("zstd");
        let settings = format!("substituters = {cache}\n{}", place.key_setting());
        let daemon = place.nix.daemon(&place.root(), &settings);
        let mut command = floe(["copy", "--json", "--no-check-sigs", "-s", "--from"]);
        command
            .arg(place.corpus.store())
            .args(["--to", &daemon.uri()]);
        let copied = run(command.arg(&place.corpus.root)).expect(0).json();
        assert_eq!(copied["copied"], 0, "{copied}");
        place.nix.verify(&place.root(), place.corpus.paths.len());
    });
    let mut command = floe(["copy", "-s", "--to", "file:///nonexistent", "/nix/store/x"]);
    let refused = run(&mut command);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("no substituters of its own"),
        "{}",
        refused.stderr
    );
}

#[test]
fn machine_without_nix_is_explained() {
    let Some(server) = sshd() else { return };
    let uri = format!("ssh-ng://{}?remote-program=absent-daemon", server.address());
    let path = "/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello";
    let mut command = floe(["copy", "--from", &uri, "--to", "file:///nonexistent", path]);
    let ran = run(command.env("NIX_SSHOPTS", server.options()));
    assert_eq!(ran.code, Some(4));
    let advice = "the other side has no such program";
    assert!(ran.stderr.contains(advice), "{}", ran.stderr);
    assert!(ran.stderr.contains("install Nix there"), "{}", ran.stderr);
}

#[test]
fn ssh_uses_the_key_and_the_host_key_of_the_uri() {
    let Some(server) = sshd() else { return };
    with_places(|place| {
        let config = place.scratch.join("ssh_config");
        let (port, file) = (server.port(), config.display().to_string());
        let lines = format!("Host web1\nHostName 127.0.0.1\nPort {port}\n");
        fs::write(&config, lines).unwrap();
        let encode = |key: &str| floe_format::base64::encode(key.as_bytes()).replace('+', "%2B");
        let copy = |authority: &str, options: &str, host_key: &str| {
            let base = place.program_uri("ssh-ng", authority, "");
            let (key, host_key) = (server.key(), encode(host_key));
            let uri = format!("{base}&ssh-key={key}&base64-ssh-public-host-key={host_key}");
            let mut command = floe(["copy", "--no-check-sigs", "--to", &uri, "--from"]);
            command.arg(place.corpus.store()).arg(&place.corpus.root);
            command.env("NIX_SSHOPTS", format!("-F {options} -o BatchMode=yes"));
            run(&mut command)
        };
        let other = fs::read_to_string(format!("{}.pub", server.key())).unwrap();
        for (authority, options) in [(&*server.address(), "none"), ("web1", &*file)] {
            let refused = copy(authority, options, &other);
            assert_ne!(refused.code, Some(0));
            let said = "perhaps the host has another key than the one of base64-ssh-public";
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
            copy(authority, options, &server.host_key()).expect(0);
        }
        place.nix.verify(&place.root(), place.corpus.paths.len());
    });
}

/// The same command as another user.
fn as_user(user: &Command, command: &Command) -> Command {
    let mut changed = Command::new(user.get_program());
    changed.args(user.get_args()).arg(command.get_program());
    changed.args(command.get_args());
    changed
        .env("XDG_CACHE_HOME", "/dev/null")
        .env("HOME", "/nonexistent");
    hide_nix_conf(&mut changed);
    changed
}

#[test]
fn daemon_refuses_unsigned_paths_of_untrusted_users() {
    let Some(user) = setpriv_to_nobody() else {
        return;
    };
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), &place.key_setting());
        let copy_as_user = |options: &[&str]| {
            let from = place.corpus.file_url("zstd");
            let mut command = floe(["copy", "--from", &from, "--to", &daemon.uri()]);
            command.arg(&place.corpus.root).args(options);
            run(&mut as_user(&user, &command))
        };
        let valid = || {
            place
                .nix
                .store(&place.root(), ["--dump-db"])
                .lines()
                .count()
        };
        // Only daemons since Nix 2.15 say whom they trust.
        let refused = copy_as_user(&["--no-check-sigs"]);
        if !place.nix.is_2_8() {
            let advice = "does not trust this user";
            assert!(refused.stderr.contains(advice), "{}", refused.stderr);
            assert_ne!(refused.code, Some(0));
            assert_eq!(valid(), 0, "a path was sent");
        }
        copy_as_user(&["--trusted-public-keys", &place.corpus.key]).expect(0);
        place.nix.verify(&place.root(), place.corpus.paths.len());
    });
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), "");
        let mut command = floe(["copy", "--from", &place.corpus.file_url("zstd"), "--to"]);
        command.arg(daemon.uri()).arg(&place.corpus.root);
        // The setting of this machine does not concern the daemon.
        command.args(["--option", "require-sigs", "false"]);
        let refused = run(command.args(["--trusted-public-keys", &place.corpus.key]));
        assert_ne!(refused.code, Some(0));
        assert!(
            refused.stderr.contains("try --no-check-sigs"),
            "{}",
            refused.stderr
        );
        assert_eq!(place.nix.store(&place.root(), ["--dump-db"]), "");
    });
}

#[test]
fn out_link_becomes_a_root_of_the_daemon() {
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), "");
        let link = place.scratch.join("kept");
        let copy = |options: &[&str]| {
            let mut command = floe(["copy", "--no-check-sigs", "--from"]);
            command
                .arg(place.corpus.store())
                .args(["--to", &daemon.uri()]);
            run(command.arg(&place.corpus.root).args(options))
        };
        copy(&["--out-link", link.to_str().unwrap()]).expect(0);
        assert_eq!(fs::read_link(&link).unwrap(), Path::new(&place.corpus.root));
        place.nix.store(&place.root(), ["--gc"]);
        place.nix.verify(&place.root(), place.corpus.paths.len());
        let refused = copy(&["--profile", place.scratch.join("profile").to_str().unwrap()]);
        assert_eq!(refused.code, Some(2));
        assert!(
            refused.stderr.contains("use --out-link"),
            "{}",
            refused.stderr
        );
    });
}

#[test]
fn auto_is_the_daemon_for_users_who_may_not_write() {
    let Some(user) = setpriv_to_nobody() else {
        return;
    };
    with_places(|place| {
        let daemon = place.nix.daemon(&place.root(), &place.key_setting());
        let state = place.root().join("nix/var/nix");
        let (from, key) = (place.corpus.file_url("zstd"), &place.corpus.key);
        let arguments = ["install", "--from", &from, "--trusted-public-keys", key];
        let mut command = as_user(&user, floe(arguments).arg(&place.corpus.root));
        command.env("NIX_STATE_DIR", &state);
        command.env("NIX_DAEMON_SOCKET_PATH", daemon.socket());
        let installed = run(&mut command).expect(0);
        let mut config = as_user(&user, &floe(["config", "store"]));
        config.env("NIX_STATE_DIR", &state);
        config.env("NIX_DAEMON_SOCKET_PATH", daemon.socket());
        let shown = run(&mut config).expect(0).stdout;
        assert!(shown.contains("so floe writes through daemon"), "{shown}");
        assert!(
            installed.stderr.contains("into daemon"),
            "{}",
            installed.stderr
        );
        place.nix.verify(&place.root(), place.corpus.paths.len());
    });
}

/// The lines of a program that then serves, as `ssh` warns of a new host key.
#[test]
fn lines_before_a_connection_are_shown_once() {
    with_places(|place| {
        let script = place.scratch.join("daemon");
        let text = "#!/bin/sh\necho 'a warning' >&2\nexec \"$@\"\n";
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let uri = place.program_uri("ssh-ng", "localhost", &place.key_setting());
        let program = format!("remote-program={}%20", script.display());
        let uri = uri.replacen("remote-program=", &program, 1);
        let mut copy = floe(["copy", "--no-check-sigs", "--to", &uri, "--from"]);
        let ran = run(copy.arg(place.corpus.store()).arg(&place.corpus.paths[0])).expect(0);
        let count = ran.stderr.matches("a warning").count();
        assert_eq!(count, 1, "{}", ran.stderr);
    });
}

#[test]
fn unreachable_stores_are_explained() {
    let scratch = scratch();
    let path = "/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello";
    let missing = format!("unix://{}", scratch.join("socket").display());
    let banner = "ssh-ng://localhost?remote-program=echo%20Welcome%20to%20this%20host";
    for (uri, expected) in [
        (&*missing, "there is no socket"),
        (
            "ssh-ng://localhost?remote-program=/absent/nix-daemon",
            "there is no program /absent",
        ),
        (banner, "its first bytes are \"Welcome to this host"),
        (banner, "probably the shell there printed them: remove"),
        (
            "ssh-ng://localhost?remote-program=true",
            "(exit status: 0); perhaps a start file",
        ),
        (
            "ssh-ng://none.invalid",
            "ssh has failed: ssh: Could not resolve",
        ),
        (
            "ssh-ng://localhost?remote-program=sh%20-c%20%22exit%20127%22",
            "install Nix there",
        ),
        ("ssh-ng://localhost?remote-program=false", "exit status: 1"),
        ("ssh-ng://-oProxyCommand=x", "a user and a host follow"),
        ("ssh-ng://host/store", "?remote-store="),
    ] {
        for direction in ["--to", "--from"] {
            let other = if direction == "--to" {
                "--from"
            } else {
                "--to"
            };
            let cache = scratch.join("other");
            fs::create_dir_all(&cache).unwrap();
            fs::write(cache.join("nix-cache-info"), "StoreDir: /nix/store\n").unwrap();
            let cache = format!("file://{}", cache.display());
            let ran = run(&mut floe(["copy", direction, uri, other, &cache, path]));
            assert_ne!(ran.code, Some(0), "{uri}");
            assert!(
                ran.stderr.contains(expected),
                "{uri} {direction}: {}",
                ran.stderr
            );
            // The words of ssh are in the error alone.
            let count = ran.stderr.matches("Could not resolve").count();
            assert!(count < 2, "{uri} {direction}: {}", ran.stderr);
        }
    }
}
