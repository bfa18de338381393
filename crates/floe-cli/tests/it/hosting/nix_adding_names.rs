//! `nix-store`: the operations that read NARs, files and rows have the results of Nix's program.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;

use floe_testkit::CommandOutput;

use super::nix_store_names::{Programs, with_stores};
use super::*;

impl Programs<'_> {
    /// Runs a program with the bytes of a file as its input.
    fn feed(mut command: Command, words: &[&str], input: &Path) -> CommandOutput {
        run(command.args(words).stdin(File::open(input).unwrap()))
    }

    fn other(&self, name: &str) -> Programs<'_> {
        Programs {
            host: self.host,
            store: self.host.scratch.join(name),
        }
    }

    /// Copies the tree of a path from another store, without a row.
    fn take_tree(&self, from: &Programs<'_>, path: &str) {
        let copy = self.store.join(&path[1..]);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        run(Command::new("cp")
            .arg("-a")
            .arg(from.store.join(&path[1..]))
            .arg(&copy))
        .expect(0);
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let file = self.host.scratch.join(name);
        fs::write(&file, contents).unwrap();
        file
    }
}

#[test]
fn nars_are_restored_as_by_nix() {
    with_stores(|programs, [_, out, _]| {
        let tree = programs.host.scratch.join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        let program = tree.join("a/b/program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(tree.join("file"), "contents").unwrap();
        symlink("a/b", tree.join("link")).unwrap();
        let place = programs.store.join(&out[1..]);
        for original in [&tree, &place] {
            let dump = ["--dump", original.to_str().unwrap()];
            let nar = programs.write("nar", Programs::bytes(programs.nix(), &dump));
            let restore = |command: Command, name: &str| {
                let place = programs.host.scratch.join(name);
                let place = place.to_str().unwrap();
                Programs::feed(command, &["--restore", place], &nar).expect(0);
                // The place exists now.
                Programs::feed(programs.own(), &["--restore", place], &nar).expect(1);
                Programs::feed(programs.nix(), &["--restore", place], &nar).expect(1);
                let restored = Programs::bytes(programs.nix(), &["--dump", place]);
                assert_eq!(restored, fs::read(&nar).unwrap());
                listing(Path::new(place))
            };
            let own = restore(programs.own(), "own");
            assert_eq!(own, restore(programs.nix(), "nix"));
            for name in ["own", "nix"] {
                floe_store::tree::remove_tree(&programs.host.scratch.join(name)).unwrap();
            }
        }
        let bytes = fs::read(programs.host.scratch.join("nar")).unwrap();
        let whole_len = bytes.len();
        for damaged in [&[][..], &bytes[..whole_len - 8], b"garbage", &[0; 200]] {
            let nar = programs.write("damaged", damaged);
            let before = names(programs.host.scratch.path());
            let place = programs.host.scratch.join("place");
            let words = ["--restore", place.to_str().unwrap()];
            Programs::feed(programs.own(), &words, &nar).expect(1);
            assert_eq!(names(programs.host.scratch.path()), before);
            Programs::feed(programs.nix(), &words, &nar).expect(1);
            // Nix leaves what it has unpacked.
            let _: Result<(), floe_store::StoreError> = floe_store::tree::remove_tree(&place);
        }
        programs.compare(&["--restore"]);
        programs.compare(&["--restore", "a", "b"]);
    });
}

/// Modes and names below a directory.
fn listing(place: &Path) -> String {
    let words = [place.to_str().unwrap(), "-printf", "%P %y %m %l\\n"];
    let output = run(Command::new("find").args(words)).expect(0).stdout;
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn rows_are_loaded_as_by_nix() {
    with_stores(|programs, [derivation, out, leaf]| {
        let root = &*programs.host.corpus.root;
        let words = ["-qR", root, out, derivation];
        let closure = run(programs.nix().args(words)).expect(0).stdout;
        let paths: Vec<&str> = closure.lines().collect();
        let dumped = run(programs.own().arg("--dump-db").args(&paths)).expect(0);
        let rows = programs.write("all-rows", &dumped.stdout);
        let (own, nix) = (programs.other("own"), programs.other("nix"));
        for other in [&own, &nix] {
            paths
                .iter()
                .for_each(|path| other.take_tree(programs, path));
        }
        // A second time changes nothing.
        for _ in 0..2 {
            Programs::feed(own.own(), &["--load-db"], &rows).expect(0);
            Programs::feed(nix.nix(), &["--load-db"], &rows).expect(0);
            own.compare(&["--dump-db"]);
            let found = [&own, &nix].map(|it| run(it.nix().arg("--dump-db")).expect(0).stdout);
            assert_eq!(found[0], found[1]);
            assert_eq!(found[0].lines().count(), dumped.stdout.lines().count());
        }
        own.compare(&["-q", "--outputs", derivation]);
        if !programs.host.nix.is_2_8() {
            own.compare(&["-q", "--valid-derivers", out]);
        }
        programs.host.nix.verify(&own.store, paths.len());

        let row = |text: &str| {
            run(programs.own().args(["--dump-db", text]))
                .expect(0)
                .stdout
        };
        let leaf_row = row(leaf);
        let lines: Vec<&str> = leaf_row.lines().collect();
        let empty = programs.other("empty");
        empty.take_tree(programs, leaf);
        run(empty.nix().arg("--verify")).expect(0);
        let truncated: String = leaf_row
            .lines()
            .take(3)
            .map(|it| format!("{it}\n"))
            .collect();
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        for input in [
            "garbage\n",
            "\n",
            &truncated,
            leaf_row.trim_end(),
            &format!("{leaf}\nzz\n1\n\n0\n"),
            &format!("{leaf}\n{}\nxx\n\n0\n", lines[1]),
            &format!("{leaf}\n{}\n{}\n\n1\n{absent}\n", lines[1], lines[2]),
            &format!("{leaf}\n{}\n{}\n/x\n0\n", lines[1], lines[2]),
            &format!("{leaf_row}\n"),
        ] {
            let input = programs.write("input", input);
            for command in [empty.own(), empty.nix()] {
                let words = ["--load-db"];
                let failed = Programs::feed(command, &words, &input);
                assert_eq!(failed.code, Some(1), "{input:?}: {}", failed.stderr);
            }
            assert_eq!(run(empty.own().arg("--dump-db")).expect(0).stdout, "");
        }
        let input = programs.write("input", "garbage\n");
        let failed = Programs::feed(empty.own(), &["--load-db"], &input).expect(1);
        assert_eq!(
            failed.stderr.matches("garbage").count(),
            1,
            "{}",
            failed.stderr
        );
        empty.compare(&["--load-db"]);
        empty.compare(&["--load-db", leaf]);
        empty.compare(&["--load-db", "--reregister"]);
        // Nix registers what is not there.
        for wrong in [
            format!("{absent}\n{}\n{}\n\n0\n", lines[1], lines[2]),
            format!("{leaf}\n{}\n7\n\n0\n", lines[1]),
        ] {
            let input = programs.write("wrong", wrong);
            Programs::feed(empty.own(), &["--load-db"], &input).expect(1);
            assert_eq!(run(empty.own().arg("--dump-db")).expect(0).stdout, "");
        }
    });
}

#[test]
fn validity_is_registered_as_by_nix() {
    with_stores(|programs, [_, out, leaf]| {
        let root = &*programs.host.corpus.root;
        let closure = run(programs.nix().args(["-qR", root])).expect(0).stdout;
        let mut rows = String::new();
        for path in closure.lines() {
            let words = ["-q", "--references", path];
            let references = run(programs.nix().args(words)).expect(0).stdout;
            let count = references.lines().count();
            rows += &format!("{path}\n\n{count}\n{references}");
        }
        let rows = programs.write("rows-without-hashes", rows);
        let own = programs.other("own");
        closure
            .lines()
            .for_each(|path| own.take_tree(programs, path));
        let place = own.store.join(&leaf[1..]);
        let mode = fs::metadata(&place).unwrap().permissions().mode();
        fs::set_permissions(&place, fs::Permissions::from_mode(mode | 0o222)).unwrap();
        let words = ["--register-validity"];
        Programs::feed(own.own(), &words, &rows).expect(0);
        let restored = fs::metadata(&place).unwrap().permissions().mode();
        assert_eq!(restored & 0o222, 0, "the mode is that of a store path");
        let dump = |it: &Programs<'_>, path: &str| {
            run(it.nix().args(["--dump-db", path])).expect(0).stdout
        };
        for path in closure.lines() {
            let without_deriver = |text: String| {
                let lines = text.lines().enumerate().filter(|(number, _)| *number != 3);
                lines.map(|(_, line)| line.to_owned()).collect::<Vec<_>>()
            };
            let expected = without_deriver(dump(programs, path));
            assert_eq!(without_deriver(dump(&own, path)), expected);
        }
        programs
            .host
            .nix
            .verify(&own.store, closure.lines().count());

        // Valid paths stay as they are, unless that is wanted.
        own.take_tree(programs, out);
        let row = dump(programs, out);
        let input = programs.write("row", &row);
        Programs::feed(own.own(), &["--register-validity", "--hash-given"], &input).expect(0);
        assert_eq!(dump(&own, out), row);
        let more = programs.write("more", format!("{out}\n\n2\n{leaf}\n{root}\n"));
        Programs::feed(own.own(), &words, &more).expect(0);
        assert_eq!(dump(&own, out), row);
        if programs.host.nix.is_2_8() {
            // It looks for the files of a path at /nix/store.
            return;
        }
        let nix = programs.other("nix");
        closure
            .lines()
            .for_each(|path| nix.take_tree(programs, path));
        nix.take_tree(programs, out);
        Programs::feed(nix.nix(), &words, &rows).expect(0);
        Programs::feed(nix.nix(), &["--register-validity", "--hash-given"], &input).expect(0);
        let again = ["--register-validity", "--reregister"];
        Programs::feed(own.own(), &again, &more).expect(0);
        Programs::feed(nix.nix(), &again, &more).expect(0);
        assert_ne!(dump(&own, out), row);
        for path in closure.lines().chain([out]) {
            assert_eq!(dump(&own, path), dump(&nix, path));
        }
    });
}

#[test]
fn files_are_added_as_by_nix() {
    with_stores(|programs, [_, _, leaf]| {
        let tree = programs.host.scratch.join("a-tree");
        fs::create_dir_all(tree.join("inner")).unwrap();
        fs::write(tree.join("inner/file"), "contents").unwrap();
        let file = programs.write("a-file", "contents of a file");
        symlink("a-file", programs.host.scratch.join("a-link")).unwrap();
        let link = programs.host.scratch.join("a-link");
        let bad_name = programs.write("a bad name", "");
        let [tree, file, link, bad_name] =
            [&tree, &file, &link, &bad_name].map(|it| it.to_str().unwrap());
        let own = programs.other("own");
        for words in [
            &["--add"][..],
            &["--add", file, tree, link],
            &["--add", &format!("{tree}/")],
            &["--add", "/absent"],
            &["--add", bad_name],
            &["--add-fixed", "sha256", file],
            &["--add-fixed", "sha1", file],
            &["--add-fixed", "md5", file],
            &["--add-fixed", "sha512", "--recursive", file, tree],
            &["--add-fixed", "sha256", "--recursive", tree],
            &["--add-fixed", "--recursive", "sha1", link],
            &["--add-fixed", "sha256", tree],
            &["--add-fixed", "sha256", link],
            &["--add-fixed", "md6", file],
            &["--add-fixed"],
            &["--add-fixed", "sha256"],
        ] {
            // Nix sees the paths that floe has added, and adds them itself.
            programs.compare(words);
            let alone = run(own.own().args(words));
            let nix = run(programs.nix().args(words));
            assert_eq!(
                (alone.code, alone.stdout),
                (nix.code, nix.stdout),
                "{words:?}"
            );
        }
        own.compare(&["--dump-db"]);
        programs.host.nix.verify(&own.store, 5);
        let content_address = |it: &Programs<'_>, path: &str| {
            let store = it.store.to_str().unwrap();
            let infos = it.host.nix.path_infos(store, path);
            infos[0]["ca"].clone()
        };
        let added = run(programs.nix().args(["--add-fixed", "sha1", file])).expect(0);
        let path = added.stdout.trim();
        let expected = content_address(programs, path);
        assert!(expected.is_string(), "{expected}");
        assert_eq!(content_address(&own, path), expected);

        let digest = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let prefixed = format!("sha256:{digest}");
        for words in [
            &["sha256", digest, "name"][..],
            &["sha256", &prefixed, "name"],
            &["sha256", "zz", "name"],
            &["sha256", digest, "a/b"],
            &["sha256", digest],
            &["sha1", &digest[..40], "name"],
            &["md6", digest, "name"],
            &["md5", &digest[..32], "name"],
            &[],
        ] {
            programs.compare(&[&["--print-fixed-path"], words].concat());
            programs.compare(&[&["--print-fixed-path", "--recursive"], words].concat());
        }
        programs.compare(&["--add", "--recursive", leaf]);
    });
}

#[test]
fn dry_runs_tell_what_nix_would_fetch() {
    with_stores(|programs, [derivation, out, _]| {
        let root = &*programs.host.corpus.root;
        let cache = programs.host.corpus.file_url("xz");
        let absent = format!("/nix/store/{}-absent", "0".repeat(32));
        let empty = programs.other("empty");
        let settings = format!("substituters = {cache}\nrequire-sigs = false\n");
        let told = |mut command: Command, words: &[&str]| {
            let ran = run(command.env("NIX_CONFIG", &settings).args(words)).expect(0);
            assert_eq!(ran.stdout, "", "{words:?}");
            let lines = ran.stderr.lines().filter(|line| {
                let is_of_both = ["  /nix", "this ", "these ", "don't "];
                is_of_both.iter().any(|start| line.starts_with(start))
            });
            // Nix 2.8 prints sizes in another form, and sorts the paths by their hashes.
            let is_2_8 = programs.host.nix.is_2_8();
            let end = if is_2_8 { " (" } else { "\n" };
            let mut lines: Vec<String> = lines
                .map(|line| line.split(end).next().unwrap().to_owned())
                .collect();
            if is_2_8 {
                lines.sort();
            }
            lines
        };
        for words in [
            &["--realise", "--dry-run", root][..],
            &["-r", "--dry-run", root, &absent],
            &["-r", "--dry-run", "--ignore-unknown", root, &absent],
            &["-r", "--dry-run", "--ignore-unknown", &absent],
            &["-r", "--dry-run"],
        ] {
            let own = told(empty.own(), words);
            assert_eq!(own, told(empty.nix(), words), "{words:?}");
            let fetches = own.iter().any(|line| line.contains("will be fetched"));
            assert_eq!(fetches, words.contains(&root), "{own:?}");
        }
        for words in [
            &["-r", "--dry-run", root][..],
            &["-r", "--dry-run", out],
            &["-r", "--dry-run", derivation],
            &["-r", "--dry-run", &format!("{derivation}!doc")],
            &["-r", "--dry-run", &format!("{derivation}!out,bin")],
        ] {
            let own = told(programs.own(), words);
            assert_eq!(own, told(programs.nix(), words), "{words:?}");
        }
        // Nothing was fetched.
        assert_eq!(run(empty.own().arg("--dump-db")).expect(0).stdout, "");
        let words = ["-r", "--ignore-unknown", &absent, root];
        let mut fetch = empty.own();
        let fetched = run(fetch.env("NIX_CONFIG", &settings).args(words)).expect(0);
        assert_eq!(fetched.stdout, "");
        empty.compare(&["--check-validity", root]);
        programs.compare(&["-r", "--ignore-unknown", &absent]);
        programs.compare(&["-r", "--dry-run", "/absent"]);
    });
}
