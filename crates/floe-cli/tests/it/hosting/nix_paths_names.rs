//! `nix`: the commands that query stores print what those of the newest Nix print.

use std::fs;

use floe_testkit::CommandOutput;

use super::nix_store_names::{Programs, with_stores};
use super::*;

impl Programs<'_> {
    /// floe under the name of `nix`.
    fn own_nix(&self, words: &[&str]) -> CommandOutput {
        let mut command = Command::new(self.host.program("nix"));
        hide_nix_conf(&mut command);
        command.env("NIX_CONFIG", "substituters =");
        run(command.args(words))
    }

    fn other_nix(&self, words: &[&str]) -> CommandOutput {
        let mut command = self.host.nix.command("nix", words);
        command.env_remove("NIX_REMOTE");
        let settings = "substituters =\nexperimental-features = nix-command\n";
        run(command.env("NIX_CONFIG", settings))
    }

    /// Runs both with `--store`, and checks that scripts cannot tell them apart.
    fn compare_nix(&self, words: &[&str]) -> CommandOutput {
        let store = self.store.to_str().unwrap();
        let words = [words, &["--store", store]].concat();
        let (own, nix) = (self.own_nix(&words), self.other_nix(&words));
        assert_eq!(
            (own.code, &own.stdout),
            (nix.code, &nix.stdout),
            "{words:?}: {} {}",
            own.stderr,
            nix.stderr
        );
        own
    }
}

#[test]
fn path_infos_are_those_of_nix() {
    with_stores(|programs, [derivation, out, leaf]| {
        let root = &*programs.host.corpus.root;
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        let is_2_8 = programs.host.nix.is_2_8();
        let link = programs.host.scratch.join("a-link");
        symlink(root, &link).unwrap();
        for words in [
            &["path-info", root][..],
            &["path-info", root, leaf, out],
            &["path-info", "-r", root],
            &["path-info", "--recursive", "--size", root, out],
            &["path-info", "-rsS", root],
            &["path-info", "-s", "--closure-size", root, leaf],
            &["path-info", "--sigs", "-r", root],
            &["path-info", "-s", "-S", "--sigs", leaf],
            &["path-info", "--all"],
            &["path-info", "--all", "-S"],
            &["path-info", link.to_str().unwrap()],
            &["path-info", &absent],
            &["path-info", "-r", &absent, root],
            &["path-info", "--all", root],
            &["path-info", "--unknown", root],
        ] {
            programs.compare_nix(words);
        }
        if is_2_8 {
            // Its JSON is an array, its human-readable sizes have no unit of bytes, and a
            // derivation stands for its outputs.
            let own = programs.own_json(&["path-info", "--json", root]);
            assert!(own.is_object());
            return;
        }
        for words in [
            &["-s", derivation, out][..],
            &["-rsSh", root],
            &["-sSh", "--sigs", leaf],
            &["--json", root],
            &["--json", "-r", root, out],
            &["--json", "-S", root, &absent],
            &["--json", "-rS", out, derivation],
            &["--json", "--all"],
            &["--json", &absent],
            &["--json", "--json-format", "1", root, leaf],
            &["--json", "--json-format", "2", "-rS", root],
            &["--json", "--json-format", "2", "--all", "-S"],
            &["--json", "--json-format", "2", &absent],
            &["--json", "--json-format", "4", root],
        ] {
            let words = [&["path-info"], words].concat();
            let own = programs.compare_nix(&words);
            assert!(
                own.code == Some(1) || own.stdout.contains("/nix/store"),
                "{words:?}"
            );
        }
    });
}

impl Programs<'_> {
    fn own_json(&self, words: &[&str]) -> Value {
        let store = self.store.to_str().unwrap();
        self.own_nix(&[words, &["--store", store]].concat())
            .expect(0)
            .json()
    }
}

#[test]
fn path_infos_of_a_cache_are_those_of_nix() {
    with_stores(|programs, _| {
        let root = &*programs.host.corpus.root;
        let url = programs.host.corpus.file_url("xz");
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        let is_2_8 = programs.host.nix.is_2_8();
        for words in [
            &[root][..],
            &["-rsS", root],
            &["-r", "--sigs", root],
            &[&absent],
            &["--json", "-rS", root],
            &["--json", "--json-format", "2", "-S", root, &absent],
        ] {
            if is_2_8 && words.contains(&"--json") {
                continue;
            }
            let words = [&["path-info", "--store", &url], words].concat();
            let own = programs.own_nix(&words);
            let nix = programs.other_nix(&words);
            assert_eq!((own.code, own.stdout), (nix.code, nix.stdout), "{words:?}");
        }
    });
}

#[test]
fn empty_stores_have_no_path_infos() {
    with_stores(|programs, [_, _, leaf]| {
        let empty = Programs {
            host: programs.host,
            store: programs.host.scratch.join("empty"),
        };
        run(empty.nix().arg("--verify")).expect(0);
        for words in [
            &["path-info", "--all"][..],
            &["path-info", leaf],
            &["path-info", "-rsS", leaf],
            &["store", "dump-path", leaf],
        ] {
            empty.compare_nix(words);
        }
        if !programs.host.nix.is_2_8() {
            empty.compare_nix(&["path-info", "--json", "--all"]);
            empty.compare_nix(&["path-info", "--json", "--json-format", "2", "--all"]);
            empty.compare_nix(&["path-info", "--json", leaf]);
        }
    });
}

#[test]
fn stores_are_described_and_dumped_as_by_nix() {
    with_stores(|programs, [_, out, leaf]| {
        let root = &*programs.host.corpus.root;
        let store = programs.store.to_str().unwrap();
        let dumped = |program: PathBuf, words: &[&str]| {
            let mut command = Command::new(program);
            hide_nix_conf(&mut command);
            let features = "experimental-features = nix-command";
            command.env("NIX_CONFIG", features).args(words);
            let output = command.args(["--store", store]).output().unwrap();
            (output.status.code(), output.stdout)
        };
        for path in [root, out, leaf, "/nix/store/absent"] {
            let words = ["store", "dump-path", path];
            let own = dumped(programs.host.program("nix"), &words);
            assert_eq!(own, dumped(programs.host.nix.program("nix"), &words));
            assert_eq!(own.0 == Some(0), !own.1.is_empty());
        }
        let described = |ran: CommandOutput| {
            let ran = ran.expect(0);
            assert_eq!(ran.stdout, "");
            let lines = ran.stderr.lines();
            let lines = lines.filter(|line| !line.starts_with("warning: "));
            // Each program has a version of its own, and Nix 2.8 does not tell whom it trusts.
            let lines = lines.filter(|line| !line.starts_with("Trusted:"));
            lines
                .map(|line| line.split("Version: ").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let ping = ["store", "ping", "--store", store];
        let own = described(programs.own_nix(&ping));
        assert_eq!(own, described(programs.other_nix(&ping)));
        assert_eq!(own, ["Store URL: local", ""]);
        if !programs.host.nix.is_2_8() {
            let parameter = format!("local?root={store}");
            for uri in [store, &parameter] {
                let words = ["store", "info", "--json", "--store", uri];
                let mut own = programs.own_nix(&words).expect(0).json();
                let mut nix = programs.other_nix(&words).expect(0).json();
                let version = own["version"].take();
                assert!(version.as_str().unwrap().starts_with("floe "), "{version}");
                nix["version"].take();
                assert_eq!(own, nix);
            }
        }
        // The server of another store is floe, and then Nix itself.
        let uri = programs.host.uri("ssh-ng", "nix-daemon");
        let info = programs.own_nix(&["store", "info", "--json", "--store", &uri]);
        let info = info.expect(0).json();
        assert!(
            info["version"].as_str().unwrap().starts_with("floe "),
            "{info}"
        );
        let nix = programs.host.nix.program("nix-daemon");
        if nix.exists() {
            let uri = format!(
                "ssh-ng://localhost?remote-program={}&remote-store={store}",
                nix.display()
            );
            let info = programs.own_nix(&["store", "info", "--json", "--store", &uri]);
            let info = info.expect(0).json();
            let version = info["version"].as_str().unwrap();
            assert!(programs.host.nix.version.ends_with(version), "{info}");
        }
        let cache = programs.host.corpus.file_url("xz");
        let words = ["store", "ping", "--store", &cache];
        let described_cache = described(programs.own_nix(&words));
        assert_eq!(described_cache, [format!("Store URL: {cache}")]);
        let words = ["store", "info", "--json", "--store", "https://127.0.0.1:1"];
        let failed = programs.own_nix(&[&words[..], &["--option", "outage-timeout", "0"]].concat());
        assert_eq!(failed.code, Some(1), "{}", failed.stderr);
        assert_eq!(failed.json()["url"], "https://127.0.0.1:1");
    });
}

#[test]
fn settings_are_shown_as_by_nix() {
    with_hosts(|host| {
        let programs = Programs {
            host,
            store: host.root(),
        };
        let is_2_8 = host.nix.is_2_8();
        let show: &[&str] = if is_2_8 {
            &["show-config"]
        } else {
            &["config", "show"]
        };
        let settings = [
            ["substituters", "https://a.example https://b.example"],
            ["trusted-public-keys", ""],
            ["keep-outputs", "true"],
            ["keep-derivations", "false"],
            ["require-sigs", "false"],
            ["narinfo-cache-negative-ttl", "17"],
        ];
        let options = settings
            .iter()
            .flat_map(|[name, value]| ["--option", name, value]);
        let words: Vec<&str> = show.iter().copied().chain(options).collect();
        let lines = |text: &str| -> Vec<String> {
            let lines = text.lines().map(|line| line.trim_end().to_owned());
            lines.collect()
        };
        let own = lines(&programs.own_nix(&words).expect(0).stdout);
        let nix = lines(&programs.other_nix(&words).expect(0).stdout);
        assert!(own.is_sorted(), "{own:?}");
        for [name, value] in settings {
            let line = format!("{name} = {value}").trim_end().to_owned();
            assert!(
                own.contains(&line) && nix.contains(&line),
                "{line}: {own:?}"
            );
        }
        // Settings of floe alone are not among those of Nix.
        let name = |line: &String| line.split(" =").next().unwrap().to_owned();
        let common = own
            .iter()
            .filter(|line| nix.iter().any(|it| name(it) == name(line)));
        assert!(common.count() > 15, "{own:?}");
        let json = programs
            .own_nix(&[&words[..], &["--json"]].concat())
            .expect(0)
            .json();
        let other = programs
            .other_nix(&[&words[..], &["--json"]].concat())
            .expect(0)
            .json();
        for [name, _] in settings {
            assert_eq!(json[name]["value"], other[name]["value"], "{name}");
        }
        let one = [
            "config",
            "show",
            "keep-outputs",
            "--option",
            "keep-outputs",
            "true",
        ];
        assert_eq!(programs.own_nix(&one).expect(0).stdout, "true\n");
        for words in [
            &["config", "show", "no-such-setting"][..],
            &["config", "show", "cores", "--json"],
        ] {
            assert_eq!(programs.own_nix(words).code, Some(1));
            assert_eq!(programs.other_nix(words).code, Some(1));
        }
        if !is_2_8 {
            let nix = programs.other_nix(&one).expect(0);
            assert_eq!(nix.stdout, "true\n");
        }
    });
}

#[test]
fn commands_of_nix_that_floe_lacks_are_refused_by_name() {
    with_hosts(|host| {
        let programs = Programs {
            host,
            store: host.root(),
        };
        for words in [
            &["build", "x"][..],
            &["store", "repair", "/nix/store/x"],
            &["profile", "list"],
            &["eval", "x"],
            &["gc"],
            &["info", "x"],
            &["store"],
            &["config"],
        ] {
            programs
                .own_nix(words)
                .expect(1)
                .stderr_contains(&format!("cannot run nix {}: ", words.join(" ")));
        }
        let own = programs.own_nix(&["store", "gc", "--no-such-option"]);
        assert_eq!(own.code, Some(1), "{}", own.stderr);
        let version = programs.own_nix(&["--version"]).expect(0).stdout;
        assert!(version.starts_with("floe "), "{version}");
        // The options of Nix may come before the command.
        let store = programs.store.to_str().unwrap();
        fs::create_dir_all(&programs.store).unwrap();
        run(programs.nix().arg("--verify")).expect(0);
        let words = ["--store", store, "path-info", "--all"];
        assert_eq!(programs.own_nix(&words).expect(0).stdout, "");
    });
}
