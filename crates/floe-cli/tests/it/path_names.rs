//! The names of paths, as `floe list` shows them, as arguments of commands.

use std::fs;

use floe_testkit::{corpus, nixes, run, scratch};

use crate::support::floe;

#[test]
fn name_of_a_path_stands_for_the_path() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (root, link) = (scratch.join("root"), scratch.join("link"));
    let mut install = floe(["install", "--from", &corpus.file_url("zstd"), "--root"]);
    install.arg(&root).arg("-o").arg(&link).arg(&corpus.root);
    run(install.args(["--trusted-public-keys", &corpus.key])).expect(0);
    let in_store = |words: &[&str]| {
        let mut command = floe(words);
        command.arg("--root").arg(&root).current_dir(scratch.path());
        run(&mut command)
    };
    let name = corpus.root.split_once('-').unwrap().1;
    let library = corpus
        .paths
        .iter()
        .find(|path| path.contains("libonig"))
        .unwrap();
    let (long, short) = (library.split_once('-').unwrap().1, "jq");
    assert!(in_store(&["list"]).expect(0).stdout.contains(name));
    for (text, path) in [(name, &corpus.root), (short, &corpus.root), (long, library)] {
        let info = in_store(&["info", text]).expect(0).stdout;
        assert!(info.contains(path.as_str()), "{text}: {info}");
        let why = in_store(&["roots", "--why", text]).expect(0).stdout;
        assert!(why.contains(path.as_str()), "{text}: {why}");
        in_store(&["verify", text]).expect(0);
        let kept = in_store(&["delete", text]);
        assert!(
            kept.stderr.contains(path.as_str()),
            "{text}: {}",
            kept.stderr
        );
    }
    // With a file in the path, and for further links and copies, without any cache.
    let mut run_jq = floe(["run", "--root"]);
    run_jq.arg(&root).args(["jq/usr/bin/jq", "--", "--version"]);
    let run_jq = run(run_jq.current_dir(scratch.path())).expect(0);
    assert!(run_jq.stdout.starts_with("jq-"), "{}", run_jq.stdout);
    in_store(&["install", "-o", "second", "jq"]).expect(0);
    let second = fs::read_link(scratch.join("second")).unwrap();
    assert_eq!(second.to_str(), Some(&*corpus.root));
    for (number, words) in [&["push"][..], &["copy", "--no-check-sigs"]]
        .into_iter()
        .enumerate()
    {
        let cache = scratch.join(&format!("cache-{number}"));
        let to = format!("file://{}", cache.display());
        in_store(&[words, &["--to", &to, name]].concat()).expect(0);
        let narinfo = format!("{}.narinfo", &corpus.root["/nix/store/".len()..][..32]);
        assert!(cache.join(narinfo).exists(), "{words:?}");
        let absent = in_store(&[words, &["--to", &to, "other"]].concat()).expect(1);
        absent.stderr_contains("has no path of this name");
    }
    for words in [
        &["info"][..],
        &["delete"],
        &["verify"],
        &["roots", "--why"],
        &["uninstall"],
    ] {
        let absent = in_store(&[words, &["other"]].concat()).expect(1);
        assert!(!absent.stderr.contains("evaluate"), "{}", absent.stderr);
    }
    for command in ["info", "run"] {
        let absent = in_store(&[command, "other/bin/x"]).expect(1);
        absent.stderr_contains("there is no such file, and the store in");
    }
    // A file of the working directory is none of the store. Without such a path, the error is about
    // the file.
    fs::create_dir(scratch.join("jq")).unwrap();
    in_store(&["install", "-o", "third", "jq"]).expect(0);
    fs::write(scratch.join("other"), "").unwrap();
    let refused = in_store(&["install", "other"]).expect(2);
    refused.stderr_contains("\"./other\" as a store path: it is not in /nix/store");
}

#[test]
fn name_of_several_paths_is_ambiguous() {
    let Some(nix) = nixes().pop() else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    for number in 0..2 {
        let file = scratch.join(&format!("{number}/same-1.0"));
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("{number}")).unwrap();
        let mut add = nix.command("nix-store", ["--add", "--store"]);
        run(add.arg(&root).arg(&file)).expect(0);
    }
    let ran = run(floe(["info", "same", "--root"]).arg(&root)).expect(2);
    let ran = ran.stderr_contains("several paths have this name; give one of /nix/store/");
    assert_eq!(ran.stderr.matches("-same-1.0").count(), 2, "{}", ran.stderr);
}
