//! `floe du`, `floe tree`, `floe why-depends` and `floe diff` beside Nix, on stores and caches.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;

use floe_testkit::{Corpus, Nix, corpus, nixes, run};
use serde_json::Value;

use crate::support::floe;

/// The places where the closure of a corpus is.
fn places(corpus: &Corpus) -> [String; 2] {
    [
        corpus.store().display().to_string(),
        corpus.file_url("zstd"),
    ]
}

/// Runs a command of floe, and returns its stdout.
fn query(arguments: &[&str]) -> String {
    run(&mut floe(arguments)).expect(0).stdout
}

/// Runs `nix` on the store of a corpus, and returns its stdout without colours.
fn ask_nix(nix: &Nix, corpus: &Corpus, arguments: &[&str]) -> String {
    let store = corpus.store().display().to_string();
    let arguments = [arguments, &["--store", &store]].concat();
    let stdout = run(&mut nix.command("nix", arguments)).expect(0).stdout;
    let mut plain = String::new();
    let mut parts = stdout.split('\u{1b}');
    plain.extend(parts.next());
    for part in parts {
        plain.extend(part.split_once('m').map(|(_, rest)| rest));
    }
    plain
}

#[test]
fn tree_has_the_lines_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let store = corpus.store().display().to_string();
    for nix in nixes() {
        let arguments = ["--store", &store, "--query", "--tree", &corpus.root];
        let theirs = run(&mut nix.command("nix-store", arguments))
            .expect(0)
            .stdout;
        assert!(
            theirs.contains("└───") && theirs.contains("[...]"),
            "{theirs}"
        );
        for place in places(&corpus) {
            assert_eq!(query(&["tree", "--from", &place, &corpus.root]), theirs);
        }
    }
}

#[test]
fn chains_to_a_dependency_are_those_of_nix() {
    let Some(corpus) = corpus("curl") else { return };
    let mut compared = 0;
    for nix in nixes() {
        for dependency in &corpus.paths {
            for all in [&[][..], &["--all"]] {
                let words = [&["why-depends", &corpus.root, dependency], all].concat();
                let theirs = ask_nix(&nix, &corpus, &words);
                for place in places(&corpus) {
                    let ours = query(&[&words[..], &["--from", &place]].concat());
                    assert_eq!(ours, theirs, "{words:?} {}", nix.version);
                    compared += 1;
                }
            }
        }
    }
    assert!(nixes().is_empty() || compared > 40, "{compared}");
}

/// floe also shows the offset in the file.
#[test]
fn places_of_references_are_those_of_nix() {
    let Some(corpus) = corpus("curl") else { return };
    let mut compared = 0;
    for nix in nixes() {
        for dependency in &corpus.paths {
            for all in [&[][..], &["--all"]] {
                let words = [&["why-depends", "--precise", &corpus.root, dependency], all].concat();
                let theirs = ask_nix(&nix, &corpus, &words);
                for place in places(&corpus) {
                    let ours = query(&[&words[..], &["--from", &place]].concat());
                    let without: String = ours.lines().map(without_offset).collect();
                    assert_eq!(without, theirs, "{words:?} {}", nix.version);
                    compared += ours.matches(": …").count();
                }
            }
        }
    }
    assert!(nixes().is_empty() || compared > 40, "{compared}");
}

/// Returns a line without the offset before its context.
fn without_offset(line: &str) -> String {
    match line.split_once(": …") {
        Some((file, context)) => {
            let (file, offset) = file.rsplit_once(':').unwrap();
            assert!(offset.bytes().all(|it| it.is_ascii_digit()), "{line}");
            format!("{file}: …{context}\n")
        }
        None => format!("{line}\n"),
    }
}

#[test]
fn file_holds_the_reference_at_the_offset() {
    let Some(corpus) = corpus("curl") else { return };
    let mut compared = 0;
    for dependency in corpus.paths.iter().filter(|path| **path != corpus.root) {
        for place in places(&corpus) {
            let words = [
                "why-depends",
                "--precise",
                "--all",
                "--json",
                "--from",
                &place,
            ];
            let ours = query(&[&words[..], &[&corpus.root, dependency]].concat());
            let ours: Value = serde_json::from_str(&ours).unwrap();
            for (path, references) in ours["places"].as_object().unwrap() {
                let tree = corpus.store().join(path.strip_prefix('/').unwrap());
                for (reference, places) in references.as_object().unwrap() {
                    let hash_part = reference.strip_prefix("/nix/store/").unwrap();
                    for place in places.as_array().unwrap() {
                        let file = tree.join(place["file"].as_str().unwrap());
                        let contents = match place["type"].as_str().unwrap() {
                            "symlink" => fs::read_link(file).unwrap().into_os_string().into_vec(),
                            _ => fs::read(file).unwrap(),
                        };
                        let offset = place["offset"].as_u64().unwrap() as usize;
                        assert_eq!(&contents[offset..][..32], &hash_part.as_bytes()[..32]);
                        compared += 1;
                    }
                }
            }
        }
    }
    assert!(compared > 10, "{compared}");
}

/// Nix says the same and ends with 0.
#[test]
fn path_that_needs_no_other_one_is_an_answer_with_1() {
    let Some(corpus) = corpus("jq") else { return };
    let leaf = corpus
        .paths
        .iter()
        .find(|path| path.contains("gcc-12-base"));
    let leaf = leaf.expect("the closure has a package without references");
    for place in places(&corpus) {
        let mut command = floe(["why-depends", "--from", &place, leaf, &corpus.root]);
        run(&mut command)
            .expect(1)
            .stderr_contains("does not depend on");
        let name = format!("{}-absent", "1".repeat(32));
        let absent = format!("/nix/store/{name}");
        let mut command = floe(["why-depends", "--from", &place, &corpus.root, &absent]);
        run(&mut command).expect(1).stderr_contains(&name);
    }
    let json = query(&[
        "why-depends",
        "--json",
        "--from",
        &places(&corpus)[0],
        &corpus.root,
        leaf,
    ]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let distance = json["distance"].as_u64().unwrap();
    assert_eq!(
        json["references"].as_object().unwrap().len() as u64,
        distance + 1
    );
}

#[test]
fn differences_are_those_of_nix() {
    let Some(corpus) = corpus("curl") else { return };
    for nix in nixes() {
        for dependency in corpus.paths.iter().filter(|path| **path != corpus.root) {
            let words = ["store", "diff-closures", dependency, &corpus.root];
            let theirs = ask_nix(&nix, &corpus, &words);
            for place in places(&corpus) {
                let ours = query(&["diff", "--from", &place, dependency, &corpus.root]);
                assert_eq!(versions(&ours), versions(&theirs), "{}", nix.version);
                if !nix.is_2_8() {
                    // floe shows the sign of a larger size, too.
                    let unsigned = ours.replace(", +", ", ").replace(": +", ": ");
                    assert_eq!(unsigned, theirs, "{words:?}");
                }
                assert!(!ours.is_empty());
            }
        }
    }
}

/// Returns the packages and versions of a diff. Nix 2.8 has another unit for sizes.
fn versions(diff: &str) -> BTreeMap<&str, Option<&str>> {
    let lines = diff.lines().map(|line| {
        let (name, rest) = line.split_once(": ").unwrap();
        let has_versions = rest.contains(" → ");
        let versions = match rest.rsplit_once(", ") {
            Some((versions, size)) if size.ends_with("iB") => versions,
            _ => rest,
        };
        (name, has_versions.then_some(versions))
    });
    lines.collect()
}

#[test]
fn sizes_of_closures_are_those_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    for place in places(&corpus) {
        let ours = query(&["du", "--json", "--from", &place, &corpus.root]);
        let ours: Value = serde_json::from_str(&ours).unwrap();
        let usage = &ours[&corpus.root];
        assert_eq!(usage["closurePaths"], corpus.paths.len());
        for nix in nixes() {
            let sizes = ask_nix(&nix, &corpus, &["path-info", "-rsS", &corpus.root]);
            let sizes: BTreeMap<&str, (u64, u64)> = sizes
                .lines()
                .map(|line| {
                    let mut words = line.split_whitespace();
                    let path = words.next().unwrap();
                    let mut size = || words.next().unwrap().parse().unwrap();
                    (path, (size(), size()))
                })
                .collect();
            let of = |usage: &Value| {
                let size = |name: &str| usage[name].as_u64().unwrap();
                (size("narSize"), size("closureNarBytes"))
            };
            assert_eq!(of(usage), sizes[corpus.root.as_str()]);
            let references = usage["references"].as_object().unwrap();
            assert!(!references.is_empty());
            for (path, share) in references {
                assert_eq!(of(share), sizes[path.as_str()], "{path}");
                assert!(share["onlyNarBytes"].as_u64() <= share["closureNarBytes"].as_u64());
            }
        }
        let tree = query(&["du", "--tree", "--json", "--from", &place, &corpus.root]);
        let tree: Value = serde_json::from_str(&tree).unwrap();
        let tree = &tree[&corpus.root];
        assert_eq!(tree["closureNarBytes"], usage["closureNarBytes"]);
        let branches = tree["paths"].as_object().unwrap();
        assert_eq!(branches.len(), corpus.paths.len());
        let root = &branches[&corpus.root];
        assert_eq!(root["onlyNarBytes"], usage["closureNarBytes"]);
        assert!(root["parent"].is_null());
        for (path, share) in usage["references"].as_object().unwrap() {
            assert!(branches[path]["onlyNarBytes"].as_u64() >= share["onlyNarBytes"].as_u64());
        }
        let lines = query(&["du", "--tree", "--from", &place, &corpus.root]);
        assert_eq!(lines.lines().count(), 1 + corpus.paths.len(), "{lines}");
        let table = query(&["du", "--from", &place, &corpus.root]);
        let lines = 2 + usage["references"].as_object().unwrap().len();
        assert_eq!(table.lines().count(), lines, "{table}");
    }
}

/// The hash part of the wrong name belongs to a path that another argument or a reference names
/// correctly.
#[test]
fn wrong_name_is_refused_also_when_its_hash_part_is_known() {
    let Some(corpus) = corpus("jq") else { return };
    let other = corpus.paths.iter().find(|path| **path != corpus.root);
    let other = other.expect("the closure has a second path");
    for right in [&corpus.root, other] {
        let (hash_part, _) = right.split_once('-').unwrap();
        let wrong = format!("{hash_part}-wrong-name");
        for place in places(&corpus) {
            for command in [&["du"][..], &["tree"], &["info"], &["info", "-r"]] {
                for paths in [[&corpus.root, &wrong], [&wrong, &corpus.root]] {
                    let words = [command, &["--from", &place], &paths.map(String::as_str)].concat();
                    run(&mut floe(&words))
                        .expect(1)
                        .stderr_contains(wrong.strip_prefix("/nix/store/").unwrap());
                }
            }
        }
    }
}
