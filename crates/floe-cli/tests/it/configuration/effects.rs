//! How commands use the configuration, and which commands ignore it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};

use floe_testkit::{corpus, nixes, run, skip};
use serde_json::Value;

use super::cases::{Case, EMPTY, UNSET};
use super::{Machine, machine, machine_with_nix_conf};

#[test]
fn install_uses_configured_substituters_and_keys() {
    let Some(corpus) = corpus("jq") else { return };
    let (cache, key) = (corpus.file_url("zstd"), &corpus.key);
    let other_key = "x-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let install = |conf: &str, flags: &[&str]| {
        let machine = machine_with_nix_conf(&conf.replace("CACHE", &cache).replace("KEY", key));
        let root = machine.expand("{}/root");
        let args = ["install", "--root", &root, &corpus.root];
        machine.floe(&[&args, flags].concat())
    };
    let both = "substituters = CACHE\ntrusted-public-keys = KEY\n";
    let ran = install(both, &[]).expect(0);
    assert_eq!(ran.stdout.trim(), corpus.root);
    install(
        "substituters = CACHE\nextra-trusted-public-keys = KEY\n",
        &[],
    )
    .expect(0);
    install("substituters = CACHE\nrequire-sigs = false\n", &[]).expect(0);
    install(
        "substituters = CACHE\n",
        &["--option", "trusted-public-keys", key],
    )
    .expect(0);
    install("", &["--from", &cache, "--trusted-public-keys", key]).expect(0);
    // Without a setting, only the key of cache.nixos.org is trusted. An empty list trusts no key.
    install("substituters = CACHE\n", &[]).expect(3);
    install("substituters = CACHE\ntrusted-public-keys =\n", &[]).expect(3);
    // Command-line flags override the file.
    install(both, &["--trusted-public-keys", other_key]).expect(3);
    install(both, &["--extra-trusted-public-keys", other_key]).expect(0);
    install(both, &["--option", "trusted-public-keys", other_key]).expect(3);
    install(
        "substituters = file:///absent\nrequire-sigs = no\n",
        &["--from", &cache],
    )
    .expect(0);
    // Unsupported substituters are skipped.
    let unknown = "substituters = gs://bucket CACHE CACHE\nrequire-sigs = false\n";
    install(unknown, &[])
        .expect(0)
        .stderr_contains("gs://bucket");
    install("substituters = gs://bucket\n", &[])
        .expect(2)
        .stderr_contains("--from");
    install("substituters =\n", &[])
        .expect(2)
        .stderr_contains("--from");
}

#[test]
fn default_store_comes_from_nix_conf_or_nix_remote() {
    let Some(corpus) = corpus("jq") else { return };
    let check = |case: Case, says: &str| {
        let machine = machine(&case);
        let from = corpus.file_url("zstd");
        let install = ["install", "--no-check-sigs", "--from", &from, &corpus.root];
        let (named, other) = (machine.scratch.join("named"), machine.scratch.join("other"));
        // The setting does not affect a store that the user names.
        let elsewhere = machine.expand("{}/elsewhere");
        let args = [&install[..], &["--root", &elsewhere]].concat();
        machine.floe(&args).expect(0);
        assert!(!named.exists() && !other.exists(), "{says}");
        machine.floe(&install).expect(0);
        assert!(named.exists() && !other.exists(), "{says}");
        machine.floe(&["info", &corpus.root]).expect(0);
        let verified = machine.floe(&["verify", "--json"]).expect(0).json();
        assert_eq!(verified["paths"], corpus.paths.len());
        for nix in nixes() {
            nix.verify(&named, corpus.paths.len());
            let mut query = nix.command("nix-store", ["--query", "--hash", &corpus.root]);
            // Nix uses the same store.
            run(machine.configure(&mut query)).expect(0);
        }
        let refused = machine.floe(&["install", "--option", "store", "gs://x", &corpus.root]);
        refused
            .expect(2)
            .stderr_contains("configured store (--option)");
    };
    check(
        Case {
            variables: &[("NIX_REMOTE", "{}/named")],
            ..EMPTY
        },
        "NIX_REMOTE",
    );
    check(
        Case {
            system: "store = {}/named\n",
            variables: &[("NIX_REMOTE", "{}/other")],
            ..EMPTY
        },
        "store",
    );
}

#[test]
fn copy_uses_configured_keys() {
    let Some(corpus) = corpus("jq") else { return };
    let machine = machine_with_nix_conf(&format!("trusted-public-keys = {}\n", corpus.key));
    let (from, root) = (corpus.file_url("none"), machine.expand("{}/root"));
    let args = ["copy", "--from", &from, "--to", &root, &corpus.root];
    let none = ["--option", "trusted-public-keys", ""];
    machine.floe(&[&args[..], &none].concat()).expect(3);
    machine.floe(&args).expect(0);
}

#[test]
fn serve_and_verify_ignore_nix_conf() {
    let Some(corpus) = corpus("jq") else { return };
    let machine = machine_with_nix_conf("this is not a configuration");
    machine.floe(&["config"]).expect(2);
    let store = corpus.store().display().to_string();
    let args = [
        "serve",
        "--check",
        "--listen",
        "127.0.0.1:0",
        "--root",
        &store,
    ];
    machine.floe(&args).expect(0);
    machine.floe(&["verify", "--root", &store]).expect(0);
}

#[test]
fn home_of_another_user_is_ignored() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip(
            "another user's home",
            "only root may change the owner of a directory",
        );
        return;
    }
    let machine = machine(&Case {
        files: &[("home/.config/nix/nix.conf", "http-connections = 77\n")],
        variables: &[("NIX_USER_CONF_FILES", UNSET), ("XDG_CONFIG_DIRS", "")],
        ..EMPTY
    });
    let value = |machine: &Machine| -> Value {
        let ran = machine.floe(&["config", "--json"]).expect(0);
        ran.json()["http-connections"]["value"].clone()
    };
    assert_eq!(value(&machine), 77);
    chown(machine.scratch.join("home"), Some(1), None).unwrap();
    let floe_config = value(&machine);
    assert_ne!(floe_config, 77);
    for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
        let nix_config = machine.nix(nix).expect(0).json();
        assert_eq!(
            nix_config["http-connections"]["value"], floe_config,
            "{}",
            nix.version
        );
    }
}

/// Names of these versions of Nix that floe knows as other names of a setting.
const ALIASES: [&str; 1] = ["download-attempts"];

#[test]
fn name_that_nix_does_not_know_gives_one_warning() {
    let conf = "max-jobs = 4\nsubsituters = x\nextra-platforms = y\nsubsituters = z\n";
    let machine = machine_with_nix_conf(conf);
    let ran = machine
        .floe(&["config", "--option", "colour", "red"])
        .expect(0);
    let warnings: Vec<&str> = ran.stderr.lines().collect();
    let [file, option] = warnings[..] else {
        panic!("{warnings:?}");
    };
    let place = machine.expand("floe: warning: ignoring subsituters ({}/etc/nix.conf:2)");
    assert!(
        file.starts_with(&place) && file.ends_with("use substituters"),
        "{file}"
    );
    assert!(option.contains("ignoring colour (--option)"), "{option}");

    let own = machine_with_nix_conf("")
        .floe(&["config", "--json"])
        .expect(0)
        .json();
    for nix in nixes() {
        let all = machine_with_nix_conf("").nix(&nix).expect(0).json();
        let names = all.as_object().unwrap().keys();
        let is_known = |name: &str| own.get(name).is_some() || ALIASES.contains(&name);
        let others = names.filter(|name| !is_known(name));
        let text: String = others.map(|name| format!("{name} = x\n")).collect();
        assert!(text.contains("max-jobs"), "{text}");
        let ran = machine_with_nix_conf(&text).floe(&["config"]).expect(0);
        assert_eq!(ran.stderr, "", "{}", nix.version);
    }
}
