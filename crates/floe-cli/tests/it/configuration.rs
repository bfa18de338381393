//! nix.conf, its variables and `--option`: values equal those of Nix, errors name their location.

mod cases;
mod effects;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use floe_testkit::{CommandOutput, Nix, Scratch, nixes, run, scratch};
use serde_json::json;

use crate::support::floe;
use cases::{CASES, Case, EMPTY, INVALID_CASES, UNSET, invalid_conf};

/// A directory that contains the files of a case.
struct Machine {
    scratch: Scratch,
    case: Case,
}

fn machine(case: &Case) -> Machine {
    let machine = Machine {
        scratch: scratch(),
        case: *case,
    };
    machine.write("etc/nix.conf", case.system);
    fs::create_dir(machine.scratch.join("home")).unwrap();
    for (name, text) in case.files {
        machine.write(name, text);
    }
    machine
}

impl Machine {
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let file = self.scratch.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, self.expand(text)).unwrap();
        file
    }

    fn expand(&self, text: &str) -> String {
        text.replace("{}", &self.scratch.path().display().to_string())
    }

    /// Makes a command use the configuration of the case and none of the machine.
    fn configure<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in CONFIG_VARIABLES {
            command.env_remove(name);
        }
        command
            .env("NIX_CONF_DIR", self.scratch.join("etc"))
            .env("NIX_USER_CONF_FILES", "")
            .env("HOME", self.scratch.join("home"));
        for (name, value) in self.case.variables {
            match *value {
                UNSET => command.env_remove(name),
                value => command.env(name, self.expand(value)),
            };
        }
        command
    }

    fn floe(&self, args: &[&str]) -> CommandOutput {
        run(self.configure(&mut floe(args)))
    }

    fn nix(&self, nix: &Nix) -> CommandOutput {
        let args: &[&str] = if nix.is_2_8() {
            &["show-config", "--json"]
        } else {
            &["config", "show", "--json"]
        };
        let mut command = nix.command("nix", ["--extra-experimental-features", "nix-command"]);
        run(self.configure(command.args(args).args(self.case.options)))
    }
}

/// Variables that affect the configuration.
const CONFIG_VARIABLES: [&str; 7] = [
    "NIX_CONFIG",
    "NIX_CONFIG_HOME",
    "NIX_REMOTE",
    "NIX_SSL_CERT_FILE",
    "SSL_CERT_FILE",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
];

#[test]
fn config_values_equal_those_of_nix() {
    let nixes = nixes();
    let mut compared = 0;
    for case in CASES {
        let machine = machine(case);
        let floe_config = machine
            .floe(&[&["config", "--json"], case.options].concat())
            .expect(0)
            .json();
        for nix in nixes
            .iter()
            .filter(|nix| !(case.needs_newer_nix && nix.is_2_8()))
        {
            let nix_config = machine.nix(nix).expect(0).json();
            let before = compared;
            for (name, setting) in floe_config.as_object().unwrap() {
                let Some(nix_setting) = nix_config.get(name) else {
                    continue;
                };
                // Before Nix 2.34, connect-timeout had no default. floe has the newest one.
                let is_default = setting["source"]["kind"] == "default";
                if name == "connect-timeout" && is_default && nix.is_2_8() {
                    continue;
                }
                // floe accepts several netrc files.
                let mut value = nix_setting["value"].clone();
                if name == "netrc-file" {
                    value = json!([value]);
                }
                assert_eq!(
                    setting["value"], value,
                    "{name} of {}: {}",
                    nix.version, case.name
                );
                compared += 1;
            }
            // Nix 2.8 has no ssl-cert-file.
            assert!(
                compared - before >= 16,
                "{} knows too few settings",
                nix.version
            );
        }
    }
    let old = nixes.iter().filter(|nix| nix.is_2_8()).count();
    let minimum = 16 * CASES.len() * nixes.len().saturating_sub(old) + 16 * 10 * old;
    assert!(compared >= minimum, "compared only {compared} values");
}

#[test]
fn settings_that_nix_rejects_are_rejected_with_location() {
    let nixes = nixes();
    for (case, says) in INVALID_CASES {
        let machine = machine(case);
        for args in [&["config"][..], &["info", "--from", "file:///", "x"]] {
            let ran = machine.floe(args).expect(2).stderr_contains(says);
            assert_eq!(ran.stdout, "");
        }
        for nix in &nixes {
            let nix_config = machine.nix(nix);
            assert_ne!(nix_config.code, Some(0), "{}: {says}", nix.version);
        }
    }
    // Nix only warns about these.
    let machine = machine(&EMPTY);
    machine
        .floe(&["config", "--option", "http2", "maybe"])
        .expect(2)
        .stderr_contains("--option: cannot set http2 to \"maybe\"");
    machine
        .floe(&["config", "--option", "no-such-thing", "x", "http2"])
        .expect(0)
        .stderr_contains("no-such-thing");
    machine.floe(&["config", "--option", "http2"]).expect(2);
}

#[test]
fn recursive_include_is_an_error() {
    for system in ["include nix.conf", "include nix.conf\ninclude nix.conf"] {
        machine(&invalid_conf(system))
            .floe(&["config"])
            .expect(2)
            .stderr_contains("etc/nix.conf:1: ")
            .stderr_contains("INCLUDE_DEPTH_MAX");
    }
}

#[test]
fn config_shows_the_source_of_each_value() {
    let machine = machine(&Case {
        system: "# first\nsubstituters = https://a.example\nrequire-sigs = false\n",
        files: &[("user", "extra-substituters = https://b.example\n")],
        variables: &[
            ("NIX_USER_CONF_FILES", "{}/user"),
            ("NIX_CONFIG", "\nhttp2 = no"),
            ("SSL_CERT_FILE", "/two"),
        ],
        ..EMPTY
    });
    let names = [
        "substituters",
        "require-sigs",
        "http2",
        "ssl-cert-file",
        "connect-timeout",
        "netrc-file",
    ];
    let option = ["config", "--option", "connect-timeout", "3"];
    let shown = machine.floe(&[&option[..], &names].concat()).expect(0);
    let lines: Vec<(&str, &str)> = shown
        .stdout
        .lines()
        .map(|line| line.split_once("# ").unwrap())
        .map(|(value, source)| (value.trim(), source))
        .collect();
    let file = |text: &str| machine.expand(text);
    assert_eq!(
        lines,
        [
            ("connect-timeout = 3", "--option"),
            ("http2 = false", "NIX_CONFIG:2; HTTP/1.1 alone"),
            (&*file("netrc-file = {}/etc/netrc"), "default; not there"),
            ("require-sigs = false", &*file("{}/etc/nix.conf:3")),
            ("ssl-cert-file = /two", "SSL_CERT_FILE"),
            (
                "substituters = https://a.example https://b.example",
                &*file("{}/etc/nix.conf:2 and {}/user:1")
            ),
        ]
    );
    let json = machine.floe(&[&option[..], &["--json"], &names].concat());
    let json = json.expect(0).json();
    assert_eq!(json.as_object().unwrap().len(), names.len());
    assert_eq!(
        json["substituters"],
        json!({
            "value": ["https://a.example", "https://b.example"],
            "defaultValue": ["https://cache.nixos.org/"],
            "source": { "kind": "file", "file": file("{}/etc/nix.conf"), "line": 2 },
            "extra": [{ "kind": "file", "file": file("{}/user"), "line": 1 }],
        })
    );
    let sources = [
        (
            "http2",
            json!({ "kind": "environment", "variable": "NIX_CONFIG", "line": 2 }),
        ),
        (
            "ssl-cert-file",
            json!({ "kind": "environment", "variable": "SSL_CERT_FILE" }),
        ),
        (
            "connect-timeout",
            json!({ "kind": "flag", "flag": "--option" }),
        ),
        ("netrc-file", json!({ "kind": "default" })),
    ];
    for (name, source) in sources {
        assert_eq!(json[name]["source"], source, "{name}");
    }
    machine.floe(&["config", "binary-caches"]).expect(0);
    machine
        .floe(&["config", "http2", "htpt2"])
        .expect(2)
        .stderr_contains("htpt2");
}

#[test]
fn config_output_is_a_valid_nix_conf() {
    for case in CASES {
        let machine = machine(case);
        let shown = machine
            .floe(&[&["config"], case.options].concat())
            .expect(0);
        let again = machine_with_nix_conf(&shown.stdout);
        let lines = |ran: &CommandOutput| -> Vec<String> {
            let lines = ran.stdout.lines();
            let values = lines.map(|line| line.split_once('#').unwrap().0.trim().to_owned());
            values.collect()
        };
        let printed = again.floe(&["config"]).expect(0);
        assert_eq!(lines(&printed), lines(&shown), "{}", case.name);
        for nix in nixes().iter().filter(|nix| !nix.is_2_8()) {
            let nix_config = again.nix(nix).expect(0).json();
            assert_eq!(
                nix_config["substituters"]["value"],
                machine
                    .floe(&[&["config", "--json"], case.options].concat())
                    .json()["substituters"]["value"]
            );
        }
    }
}

fn machine_with_nix_conf(system: &str) -> Machine {
    let machine = machine(&EMPTY);
    machine.write("etc/nix.conf", system);
    machine
}

#[test]
fn config_never_prints_secrets() {
    let machine = machine(&Case {
        system: "netrc-file = {}/netrc\naccess-tokens = example.org=hunter2\n\
                 substituters = https://me:hunter2@a.example\n\
                 trusted-substituters = https://me:hunter2@a.example\n",
        files: &[("netrc", "machine a.example login me password hunter2\n")],
        ..EMPTY
    });
    for args in [&["config"][..], &["config", "--json"]] {
        let ran = machine.floe(args).expect(0);
        assert!(ran.stdout.contains("netrc") && ran.stdout.contains("https://a.example"));
        assert!(!ran.stdout.contains("hunter2"), "{}", ran.stdout);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
    for mistake in [
        "access-tokens=example.org=hunter2",
        "trusted-public-keys = own-1:hunter2",
    ] {
        let ran = machine_with_nix_conf(mistake).floe(&["config"]).expect(2);
        assert!(!ran.stderr.contains("hunter2"), "{}", ran.stderr);
    }
}
