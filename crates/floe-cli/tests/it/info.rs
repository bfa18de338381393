//! `floe info`: the metadata of paths in a store or cache.

use std::fs;

use floe_testkit::{corpus, nixes, run, scratch};
use serde_json::Value;

use crate::support::floe;

#[test]
fn info_separates_records_in_order_of_command_line() {
    let Some(corpus) = corpus("jq") else { return };
    let store = corpus.store().display().to_string();
    let mut paths = corpus.paths.clone();
    paths.sort();
    paths.reverse();
    for from in [corpus.file_url("zstd"), store] {
        for recursive in [None, Some("-r")] {
            let mut command = floe(["info", "--from", &from]);
            let text = run(command.args(&paths).args(recursive)).expect(0).stdout;
            assert!(
                text.ends_with('\n') && !text.ends_with("\n\n"),
                "{from}: {text}"
            );
            let records: Vec<&str> = text.split("\n\n").collect();
            assert_eq!(records.len(), paths.len(), "{from}: {text}");
            for (record, path) in records.iter().zip(&paths) {
                assert!(
                    record.starts_with(&format!("StorePath: {path}\n")),
                    "{record}"
                );
            }
        }
    }
}

#[test]
fn absent_path_hides_no_other_path() {
    let Some(corpus) = corpus("jq") else { return };
    let absent = ["1", "2"].map(|digit| format!("/nix/store/{}-absent", digit.repeat(32)));
    for from in [
        corpus.file_url("zstd"),
        corpus.store().display().to_string(),
    ] {
        for json in [None, Some("--json")] {
            let mut command = floe(["info", "--from", &from]);
            command.args(json).arg(&absent[1]).arg(&corpus.root);
            let ran = run(command.arg(&absent[0])).expect(1);
            assert!(ran.stdout.contains(&corpus.root), "{from}: {}", ran.stdout);
            for absent in &absent {
                let name = absent.strip_prefix("/nix/store/").unwrap();
                assert_eq!(
                    ran.stderr.matches(name).count(),
                    1,
                    "{from}: {}",
                    ran.stderr
                );
            }
        }
    }
}

#[test]
fn columns_and_json_are_those_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let (root, leaf) = (&*corpus.root, &*corpus.paths[0]);
    assert_ne!(root, leaf);
    for nix in nixes() {
        for place in [corpus.file_url("xz"), corpus.store().display().to_string()] {
            for words in [
                &["-s", root][..],
                &["-S", root, leaf],
                &["-rsS", "--sigs", root],
                &["-r", "--size", "--closure-size", "-h", root],
                &["--sigs", leaf],
                &["-s", "--all"],
                &["--json", "-S", root],
                &["--json", "-rs", "--sigs", root],
                &["--json", "--json-format", "1", root, leaf],
                &["--json", "--json-format", "2", "-r", root],
                &["--json", "--json-format", "2", "-S", root, ABSENT],
                &["--json", "--json-format", "1", ABSENT],
                &["--json", "--json-format", "2", "--all"],
            ] {
                // Nix 2.8 prints an array, and other human-readable sizes.
                if nix.is_2_8() && (words.contains(&"--json") || words.contains(&"-h")) {
                    continue;
                }
                let ours = run(floe(["info", "--from", &place]).args(words)).expect(0);
                let mut theirs = nix.command("nix", ["path-info", "--store", &place]);
                let theirs = run(theirs.args(words)).expect(0);
                assert!(ours.stdout.contains("/nix/store"), "{words:?}");
                if words == ["-s", "--all"] {
                    // Nix sorts and aligns the paths of a cache before it knows their names.
                    let [ours, theirs] = [&ours, &theirs].map(|it| sorted_columns(&it.stdout));
                    assert_eq!(ours, theirs, "{place}");
                    continue;
                }
                assert_eq!(ours.stdout, theirs.stdout, "{place}: {words:?}");
            }
        }
    }
}

/// Nix 2.36 has the third format. It is the second one with other signatures.
#[test]
fn third_format_has_signatures_as_objects() {
    let Some(corpus) = corpus("jq") else { return };
    let json = |format: &str| {
        let from = corpus.file_url("xz");
        let mut command = floe(["info", "-r", "--json", "--json-format", format]);
        run(command.args(["--from", &from, &corpus.root]))
            .expect(0)
            .json()
    };
    let (second, mut third) = (json("2"), json("3"));
    assert_eq!(third["version"], 3);
    third["version"] = second["version"].clone();
    let infos = third["info"].as_object_mut().unwrap();
    assert_eq!(infos.len(), corpus.paths.len());
    for info in infos.values_mut() {
        info["version"] = 2.into();
        for signature in info["signatures"].as_array_mut().unwrap() {
            let text = |name: &str| signature[name].as_str().unwrap();
            *signature = format!("{}:{}", text("keyName"), text("sig")).into();
        }
    }
    assert_eq!(third, second);
}

/// Returns the columns of lines, sorted.
fn sorted_columns(lines: &str) -> Vec<Vec<&str>> {
    let lines = lines.lines().map(|line| line.split_whitespace().collect());
    let mut lines: Vec<Vec<&str>> = lines.collect();
    lines.sort();
    lines
}

#[test]
fn missing_paths_are_null_only_in_a_chosen_format() {
    let Some(corpus) = corpus("jq") else { return };
    let hash_part = "2".repeat(32);
    let info = |words: &[&str]| {
        let from = corpus.file_url("zstd");
        let mut command = floe(["info", "--from", &from, &corpus.root]);
        run(command.args(words))
    };
    let shown = info(&["--json", "--json-format", "2", ABSENT]).expect(0);
    assert_eq!(shown.stderr, "");
    let name = ABSENT.strip_prefix("/nix/store/").unwrap();
    let infos = &shown.json()["info"];
    assert_eq!(infos.as_object().unwrap().len(), 2, "{infos}");
    assert_eq!(infos.get(name), Some(&Value::Null), "{infos}");
    // A hash part is no key of the object.
    let shown = info(&["--json", "--json-format", "1", ABSENT, &hash_part]).expect(1);
    let shown = shown.stderr_contains(&hash_part);
    assert!(!shown.stderr.contains(name), "{}", shown.stderr);
    assert_eq!(shown.json().get(ABSENT), Some(&Value::Null));
    let shown = info(&["--json", ABSENT]).expect(1).stderr_contains(name);
    assert_eq!(shown.json().as_object().unwrap().len(), 1);
    let shown = info(&["-s", ABSENT, &hash_part]).expect(1);
    let shown = shown.stderr_contains(name).stderr_contains(&hash_part);
    assert!(shown.stdout.starts_with(&corpus.root), "{}", shown.stdout);
    assert_eq!(shown.stdout.lines().count(), 1, "{}", shown.stdout);
    info(&["--json-format", "2"])
        .expect(2)
        .stderr_contains("--json");
}

#[test]
fn size_of_incomplete_closure_is_an_error() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let cache = corpus.cache_copy("zstd", scratch.path());
    let missing = corpus.paths.iter().find(|path| **path != corpus.root);
    let missing = missing.unwrap().strip_prefix("/nix/store/").unwrap();
    let (hash_part, _) = missing.split_once('-').unwrap();
    fs::remove_file(cache.join(format!("{hash_part}.narinfo"))).unwrap();
    let from = format!("file://{}", cache.display());
    for words in [&["-S"][..], &["--json", "-S"], &["-rS"]] {
        let ran = run(floe(["info", "--from", &from, &corpus.root]).args(words));
        let ran = ran.expect(1).stderr_contains(missing);
        assert_eq!(ran.stdout, "", "{words:?}");
    }
    let missing = format!("/nix/store/{missing}");
    let words = ["nix", "path-info", "--store", &from, "--json", "-S"];
    let ran = run(floe(words).args([&corpus.root, &missing])).expect(1);
    assert_eq!(ran.stdout, "");
    run(&mut floe(["info", "--from", &from, "-s", &corpus.root])).expect(0);
}

/// A path that no store has.
const ABSENT: &str = "/nix/store/00000000000000000000000000000000-absent";
