//! `nix-store`: each operation has the output and the exit code of Nix's program.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use floe_testkit::CommandOutput;

use super::*;

/// Two programs of the same name.
pub(super) struct Programs<'h> {
    pub(super) host: &'h Host<'h>,
    pub(super) store: PathBuf,
}

impl Programs<'_> {
    pub(super) fn own(&self) -> Command {
        let mut command = Command::new(self.host.program("nix-store"));
        hide_nix_conf(&mut command);
        command.env("NIX_CONFIG", "substituters =");
        command.arg("--store").arg(&self.store);
        command
    }

    pub(super) fn nix(&self) -> Command {
        let mut command = self.host.nix.command("nix-store", [""; 0]);
        command.env_remove("NIX_REMOTE");
        command.env("NIX_CONFIG", "substituters =");
        command.arg("--store").arg(&self.store);
        command
    }

    /// Runs both, and checks that scripts cannot tell them apart.
    pub(super) fn compare(&self, words: &[&str]) -> CommandOutput {
        let nix = run(self.nix().args(words));
        let own = run(self.own().args(words));
        assert_eq!(
            own.code, nix.code,
            "{words:?}: {} {}",
            own.stderr, nix.stderr
        );
        // Nix 2.8 prints a freed size in another form.
        let plain = |text: &str| text.split(" deleted, ").next().unwrap().to_owned();
        let is_exact = !self.host.nix.is_2_8() || !nix.stdout.contains(" freed");
        if is_exact {
            assert_eq!(own.stdout, nix.stdout, "{words:?}: {}", own.stderr);
        } else {
            assert_eq!(plain(&own.stdout), plain(&nix.stdout), "{words:?}");
        }
        own
    }

    fn compare_sorted(&self, words: &[&str]) {
        let sorted = |mut command: Command| {
            let mut lines: Vec<String> = run(command.args(words))
                .expect(0)
                .stdout
                .lines()
                // The newest Nix quotes links.
                .map(|line| line.replace('"', ""))
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(self.own()), sorted(self.nix()), "{words:?}");
    }

    /// The standard output as bytes: an archive is no text.
    pub(super) fn bytes(mut command: Command, words: &[&str]) -> Vec<u8> {
        let output = command
            .args(words)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}");
        assert!(!output.stdout.is_empty());
        output.stdout
    }
}

/// A store with the corpus, and a derivation with three outputs, of which two are valid.
pub(super) fn with_stores(check: impl Fn(&Programs<'_>, [&str; 3])) {
    with_hosts(|host| {
        let store = host.root();
        let uri = host.uri("ssh-ng", "nix-daemon");
        let original = host.corpus.store().display().to_string();
        run(host.nix_copy(&original, &uri).arg("--no-check-sigs")).expect(0);
        let expression = "derivation { name = \"x\"; system = \"x\"; builder = \"/bin/x\"; \
                          words = \"a b\"; outputs = [ \"out\" \"doc\" \"bin\" ]; }";
        let mut instantiate = host.nix.command("nix-instantiate", ["-E", expression]);
        instantiate
            .arg("--store")
            .arg(&store)
            .env_remove("NIX_REMOTE");
        let made = run(&mut instantiate).expect(0).stdout;
        let derivation = made.trim();
        let programs = Programs { host, store };
        // Two outputs refer to a path of the corpus.
        let leaf = &*host.corpus.paths[0];
        let outputs = ["out", "bin"].map(|name| {
            let words = ["-q", "--binding", name, derivation];
            programs.compare(&words).stdout.trim().to_owned()
        });
        let mut rows = String::new();
        for output in &outputs {
            let place = programs.store.join(&output[1..]);
            fs::write(&place, leaf).unwrap();
            let nar = Programs::bytes(programs.nix(), &["--dump", place.to_str().unwrap()]);
            let hash = floe_format::Hash::sha256(floe_hash::sha256(&nar)).digest_base16();
            let len = nar.len();
            rows += &format!("{output}\n{hash}\n{len}\n{derivation}\n1\n{leaf}\n");
        }
        let file = host.scratch.join("rows");
        fs::write(&file, rows).unwrap();
        run(programs
            .nix()
            .arg("--load-db")
            .stdin(File::open(&file).unwrap()))
        .expect(0);
        let out = &*outputs[0];
        check(&programs, [derivation, out, leaf]);
    });
}

#[test]
fn queries_print_what_nix_prints() {
    with_stores(|programs, [derivation, out, leaf]| {
        let root = &*programs.host.corpus.root;
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        let link = programs.host.scratch.join("a-link");
        symlink(root, &link).unwrap();
        let link = link.to_str().unwrap();
        for path in [root, derivation, out, leaf, &absent] {
            for fact in [
                "--requisites",
                "-R",
                "--references",
                "--referrers",
                "--referrers-closure",
                "--hash",
                "--size",
                "--deriver",
                "-d",
                "--valid-derivers",
                "--tree",
                "--graph",
                "--outputs",
                "--resolve",
            ] {
                if fact == "--valid-derivers" && programs.host.nix.is_2_8() {
                    continue;
                }
                programs.compare(&["-q", fact, path]);
                programs.compare(&["--query", fact, "--use-output", path]);
            }
            programs.compare(&["-q", "--requisites", "--include-outputs", path]);
            programs.compare(&["-q", path]);
            programs.compare(&["--check-validity", path]);
            programs.compare(&["--check-validity", "--print-invalid", path, root]);
            programs.compare(&["--verify-path", path]);
        }
        programs.compare(&["-qR", root, out]);
        programs.compare(&["-q", "--tree", root, out]);
        programs.compare(&["-q", "--graph", root, out]);
        programs.compare(&["-q", "--binding", "words", derivation]);
        programs.compare(&["-q", "--binding", "absent", derivation]);
        programs.compare(&["-q", "--binding", "words", out]);
        programs.compare(&["-q", "--hash", link]);
        // Words of standard input are paths, however many are in a line.
        let words = programs.host.scratch.join("words");
        fs::write(&words, format!("{root} {out}\n{leaf}\n")).unwrap();
        let read = |mut command: Command| {
            command.args(["-q", "--size", "--stdin"]);
            run(command.stdin(File::open(&words).unwrap()))
                .expect(0)
                .stdout
        };
        let sizes = read(programs.own());
        assert_eq!(sizes.lines().count(), 3, "{sizes}");
        if !programs.host.nix.is_2_8() {
            assert_eq!(sizes, read(programs.nix()));
        }
        programs.compare(&["-q", "--hash", "/absent/link"]);
        programs.compare(&["--dump-db"]);
        programs.compare(&["--dump-db", root]);
        programs.compare(&["--read-log", derivation]);
        for words in [
            &["--gc", "--print-roots"][..],
            &["--gc", "--print-live"],
            &["--gc", "--print-dead"],
            &["-q", "--roots", leaf],
        ] {
            programs.compare_sorted(words);
        }
        for words in [
            &["--dump", programs.store.join(&root[1..]).to_str().unwrap()][..],
            &["--export", leaf],
            &["--export", root, out, leaf],
        ] {
            let own = Programs::bytes(programs.own(), words);
            assert_eq!(own, Programs::bytes(programs.nix(), words), "{words:?}");
        }
    });
}

#[test]
fn realised_paths_get_roots_as_from_nix() {
    with_stores(|programs, [derivation, out, leaf]| {
        let root = &*programs.host.corpus.root;
        programs.compare(&["--realise", out]);
        programs.compare(&["-r", root, leaf]);
        programs.compare(&["-r", &format!("{derivation}!out")]);
        programs.compare(&["-r", &format!("{derivation}!out,bin")]);
        programs.compare(&["-r", "--no-output", out]);
        let link = |name: &str| programs.host.scratch.join(name).display().to_string();
        let links = |command: &mut Command, name: &str| {
            let words = ["--add-root", &link(name), "--indirect", "-r", root, leaf];
            let printed = run(command.args(words)).expect(0).stdout;
            let targets = ["", "-2"].map(|number| fs::read_link(link(name) + number).unwrap());
            (printed.replace(name, "NAME"), targets)
        };
        let own = links(&mut programs.own(), "own");
        assert_eq!(own, links(&mut programs.nix(), "nix"));
        // Nix knows the links as roots.
        programs.compare_sorted(&["--gc", "--print-roots"]);
        let roots = run(programs.nix().args(["--gc", "--print-roots"]))
            .expect(0)
            .stdout;
        assert!(roots.contains(&link("own-2")), "{roots}");
        run(programs.own().args(["-r", &format!("{derivation}!doc")]))
            .expect(100)
            .stderr_contains("this machine has floe");
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        programs.compare(&["-r", &absent]);
    });
}

#[test]
fn imports_collections_and_checks_are_those_of_nix() {
    with_stores(|programs, [_, out, leaf]| {
        let root = &*programs.host.corpus.root;
        let archive = programs.host.scratch.join("archive");
        let closure = run(programs.own().args(["-qR", root, out]))
            .expect(0)
            .stdout;
        let words: Vec<&str> = ["--export"].into_iter().chain(closure.lines()).collect();
        fs::write(&archive, Programs::bytes(programs.own(), &words)).unwrap();
        let other = Programs {
            host: programs.host,
            store: programs.host.scratch.join("imported"),
        };
        let import = |mut command: Command| {
            run(command.arg("--import").stdin(File::open(&archive).unwrap()))
                .expect(0)
                .stdout
        };
        let imported = import(other.own());
        assert_eq!(imported, closure);
        run(other.nix().args(["--verify", "--check-contents"])).expect(0);
        other.compare(&["--dump-db"]);
        assert_eq!(import(other.nix()), imported);

        // A path that a root keeps stays.
        let link = programs.host.scratch.join("kept").display().to_string();
        run(programs.own().args(["-r", leaf, "--add-root", &link])).expect(0);
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        run(programs.own().args(["--delete", &absent])).expect(0);
        let refused = programs.compare(&["--delete", leaf]);
        assert_eq!(refused.code, Some(1));
        let deleted = run(programs.own().args(["--delete", out])).expect(0).stdout;
        assert!(deleted.starts_with("1 store paths deleted, "), "{deleted}");
        run(programs.own().args(["--gc", "--max-freed", "-1"])).expect(0);
        let freed = run(programs.own().args(["--gc", "--max-freed", "10G"]))
            .expect(0)
            .stdout;
        assert!(freed.contains("store paths deleted"), "{freed}");
        programs.compare(&["--dump-db"]);
        programs.compare(&["--gc", "--print-dead"]);
        programs.compare(&["--verify"]);
        programs.compare(&["--repair-path"]);
        programs.compare(&["--verify-path"]);
        programs.compare(&["--optimise"]);
        programs.compare(&["--verify", "--check-contents"]);

        // A damaged path, and one that has disappeared.
        let place = other.store.join(&out[1..]);
        fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(&place, "damaged").unwrap();
        let damaged = other.compare(&["--verify-path", out, root]);
        assert_eq!(damaged.code, Some(1));
        run(other.own().args(["--verify", "--check-contents"]))
            .expect(1)
            .stderr_contains(out);
        fs::remove_file(&place).unwrap();
        run(other.own().arg("--verify"))
            .expect(1)
            .stderr_contains("disappeared");
        let empty = Programs {
            host: programs.host,
            store: programs.host.scratch.join("empty"),
        };
        run(empty.nix().arg("--verify")).expect(0);
        for words in [
            &["--gc"][..],
            &["--gc", "--print-dead"],
            &["--dump-db"],
            &["--verify"],
            &["-q", "--requisites"],
            &["-q", "--requisites", root],
        ] {
            empty.compare(words);
        }
    });
}

#[test]
fn options_that_floe_lacks_are_refused_by_name() {
    with_hosts(|host| {
        let programs = Programs {
            host,
            store: host.root(),
        };
        for option in [
            "--print-env",
            "--generate-binary-cache-key",
            "--clear-failed-paths",
        ] {
            run(programs.own().arg(option))
                .expect(1)
                .stderr_contains(option);
        }
        run(programs.own().args(["-q", "--graphml"]))
            .expect(1)
            .stderr_contains("--graphml");
        run(programs.own().args(["--gc", "--requisites"]))
            .expect(1)
            .stderr_contains("cannot use --requisites here: it belongs to --query");
        run(&mut programs.own())
            .expect(1)
            .stderr_contains("--realise");
    });
}
