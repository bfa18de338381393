//! `floe cache`: whole caches in directories and buckets.

mod export;
mod repair;
mod rotate_key;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use floe_testkit::fault_server::FaultServer;
use floe_testkit::{CommandOutput, Corpus, corpus, nixes, run, s3_server, scratch};
use serde_json::Value;

use crate::push::{floe_with_keys, source_root};
use crate::support::floe;

/// Runs a command on a cache.
fn cache(command: &str, uri: &str, more: &[&str]) -> CommandOutput {
    run(floe(["cache", command, "--json", uri]).args(more))
}

/// Returns the fields of the narinfo of a path.
fn field(directory: &Path, path: &str, name: &str) -> String {
    let text = fs::read_to_string(narinfo(directory, path)).unwrap();
    let prefix = format!("{name}: ");
    let found = text.lines().find_map(|line| line.strip_prefix(&prefix));
    found.unwrap().to_owned()
}

fn narinfo(directory: &Path, path: &str) -> PathBuf {
    directory.join(format!("{}.narinfo", &path["/nix/store/".len()..][..32]))
}

fn sum(directory: &Path, corpus: &Corpus, name: &str) -> u64 {
    let sizes = corpus.paths.iter();
    let sizes = sizes.map(|path| field(directory, path, name).parse::<u64>().unwrap());
    sizes.sum()
}

fn path_like<'a>(corpus: &'a Corpus, part: &str) -> &'a str {
    let found = corpus.paths.iter().find(|path| path.contains(part));
    found.unwrap_or_else(|| panic!("the corpus has no {part}"))
}

/// Returns the kinds and paths of problems.
fn problems(output: &CommandOutput) -> Vec<(String, String)> {
    let json = output.json();
    let problems = json["problems"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    problems
        .map(|problem| (text(&problem["kind"]), text(&problem["path"])))
        .collect()
}

#[test]
fn sizes_and_ages_are_those_of_the_objects() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let directory = corpus.cache_copy("zstd", &scratch.join("cache"));
    let uri = format!("file://{}", directory.display());
    let old = SystemTime::now() - Duration::from_secs(40 * 86_400);
    let oldest = narinfo(&directory, &corpus.root);
    File::open(&oldest).unwrap().set_modified(old).unwrap();
    fs::write(directory.join("nar/unused.nar.zst"), "unused").unwrap();
    let info = cache("info", &uri, &["--price", "1000"]).expect(0).json();
    let (nar_bytes, file_bytes) = (
        sum(&directory, &corpus, "NarSize"),
        sum(&directory, &corpus, "FileSize"),
    );
    assert_eq!(info["paths"], corpus.paths.len());
    assert_eq!(
        (&info["narBytes"], &info["fileBytes"]),
        (&nar_bytes.into(), &file_bytes.into())
    );
    assert_eq!(
        (&info["unusedFiles"], &info["unusedBytes"]),
        (&1.into(), &6.into())
    );
    let cost = info["monthlyCost"].as_f64().unwrap();
    assert!(
        (cost - (file_bytes + 6) as f64 / 1e6).abs() < 1e-9,
        "{cost}"
    );
    let ages = info["ages"].as_array().unwrap();
    // More than 7 and more than 30 days.
    assert_eq!(ages.len(), 2, "{info}");
    assert_eq!(
        (&ages[1]["olderThanDays"], &ages[1]["paths"]),
        (&30.into(), &1.into())
    );

    let list = cache("list", &uri, &[]).expect(0).json();
    let paths = list["paths"].as_array().unwrap();
    assert_eq!(paths[0]["path"], corpus.root);
    let mut names: Vec<&str> = paths
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    let mut expected: Vec<&str> = corpus.paths.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let text = run(&mut floe(["cache", "list", &uri])).expect(0).stdout;
    assert_eq!(text.lines().count(), corpus.paths.len());
    let text = run(&mut floe(["cache", "info", &uri])).expect(0).stdout;
    assert!(text.contains("older than 30 days: 1 path"), "{text}");
}

#[test]
fn damage_is_found_without_and_with_the_contents() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let directory = corpus.cache_copy("zstd", &scratch.join("cache"));
    let uri = format!("file://{}", directory.display());
    let sound = cache("verify", &uri, &["--contents"]).expect(0).json();
    assert_eq!(
        (&sound["paths"], &sound["pathsRead"]),
        (&corpus.paths.len().into(), &corpus.paths.len().into())
    );

    let nar = |path: &str| directory.join(field(&directory, path, "URL"));
    let [missing, short, changed, lost, broken] = [
        "-jq-1",
        "-libjq1-",
        "-libonig",
        "-libgcc-s1-",
        "-gcc-12-base",
    ]
    .map(|part| path_like(&corpus, part));
    fs::remove_file(nar(missing)).unwrap();
    let bytes = fs::read(nar(short)).unwrap();
    fs::write(nar(short), &bytes[..bytes.len() - 1]).unwrap();
    let mut bytes = fs::read(nar(changed)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(nar(changed), bytes).unwrap();
    let unused = field(&directory, lost, "URL");
    fs::remove_file(narinfo(&directory, lost)).unwrap();
    fs::write(narinfo(&directory, broken), "StorePath: x\n").unwrap();
    let kinds = |output: &CommandOutput, path: &str| -> Vec<String> {
        let name = &path["/nix/store/".len()..];
        let all = problems(output).into_iter();
        all.filter(|(_, path)| path == name)
            .map(|(kind, _)| kind)
            .collect()
    };
    let found = cache("verify", &uri, &[]).expect(3);
    assert!(
        kinds(&found, missing).contains(&"missingNar".to_owned()),
        "{}",
        found.stdout
    );
    assert!(
        kinds(&found, short).contains(&"modified".to_owned()),
        "{}",
        found.stdout
    );
    assert!(kinds(&found, changed).is_empty(), "{}", found.stdout);
    // libc6 refers to libgcc-s1.
    let referrer = path_like(&corpus, "-libc6-");
    assert!(
        kinds(&found, referrer).contains(&"missingReference".to_owned()),
        "{}",
        found.stdout
    );
    let broken = &broken["/nix/store/".len()..][..32];
    assert!(
        problems(&found).contains(&("damagedNarinfo".into(), broken.into())),
        "{}",
        found.stdout
    );
    assert!(
        found.json()["unusedFiles"]
            .as_array()
            .unwrap()
            .contains(&unused.into())
    );
    let found = cache("verify", &uri, &["--contents"]).expect(3);
    assert_eq!(kinds(&found, changed), ["modified"], "{}", found.stdout);
    // A sample reads a part.
    let sample = cache("verify", &uri, &["--contents", "--sample", "30%"]).expect(3);
    assert_eq!(
        sample.json()["pathsRead"].as_u64().unwrap().min(2),
        2,
        "{}",
        sample.stdout
    );
}

#[test]
fn paths_are_deleted_with_their_referrers() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let directory = corpus.cache_copy("none", &scratch.join("cache"));
    let uri = format!("file://{}", directory.display());
    let base = path_like(&corpus, "-gcc-12-base");
    let refused = cache("delete", &uri, &[base]).expect(1);
    refused.stderr_contains("try --also-referrers");
    let count = || {
        cache("info", &uri, &[]).expect(0).json()["paths"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(count(), corpus.paths.len() as u64);
    // Nothing refers to the root.
    let file = directory.join(field(&directory, &corpus.root, "URL"));
    let dry = cache("delete", &uri, &["--dry-run", &corpus.root]).expect(0);
    assert!(file.exists());
    let deleted = cache("delete", &uri, &[&corpus.root]).expect(0);
    assert_eq!(dry.json(), deleted.json());
    assert!(!file.exists() && !narinfo(&directory, &corpus.root).exists());
    assert_eq!(count(), corpus.paths.len() as u64 - 1);
    assert_eq!(problems(&cache("verify", &uri, &[]).expect(0)), []);
    cache("delete", &uri, &[&corpus.root])
        .expect(1)
        .stderr_contains("cannot find");
    // All paths that need libc6, which are those that Nix names.
    let libc = path_like(&corpus, "-libc6-");
    let deleted = cache("delete", &uri, &["--also-referrers", libc])
        .expect(0)
        .json();
    for nix in nixes() {
        let args = ["path-info", "--store", &uri, libc];
        assert_ne!(run(&mut nix.command("nix", args)).code, Some(0));
    }
    let deleted = deleted["paths"].as_array().unwrap().len() as u64;
    assert!(deleted > 3 && count() == corpus.paths.len() as u64 - 1 - deleted);
    let sound = cache("verify", &uri, &["--contents"]).expect(0).json();
    assert_eq!(sound["unusedFiles"].as_array().unwrap().len(), 0, "{sound}");
}

/// Two narinfos may name one file.
#[test]
fn shared_file_stays_until_its_last_narinfo_goes() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let directory = scratch.join("cache");
    let uri = format!("file://{}", directory.display());
    let file = scratch.join("file");
    fs::write(&file, "contents").unwrap();
    let add = |name: &str| {
        let mut add = floe(["add", "--name", name, "--to", &uri]);
        run(add.arg(&file)).expect(0).stdout.trim().to_owned()
    };
    let (one, other) = (add("one"), add("other"));
    let url = field(&directory, &one, "URL");
    assert_eq!(url, field(&directory, &other, "URL"));
    cache("delete", &uri, &[&one]).expect(0);
    assert!(directory.join(&url).exists());
    cache("delete", &uri, &[&other]).expect(0);
    assert!(!directory.join(&url).exists());
    assert!(corpus.paths.len() > 1);
}

#[test]
fn bucket_is_listed_verified_and_cleaned() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let uri = server.uri("team");
    let floe_cache = |command: &str, more: &[&str]| {
        let mut ran = floe_with_keys(&server, &["cache", command, "--json", &uri]);
        run(ran.args(more))
    };
    let root = source_root(&corpus);
    let created = floe_cache("init", &[]).expect(0).json();
    assert_eq!(created["created"], true);
    let mut push = floe_with_keys(&server, &["push", "--to", &uri, "--root", &root]);
    run(push.arg(&corpus.root)).expect(0);
    let info = floe_cache("info", &[]).expect(0).json();
    assert_eq!(
        (&info["paths"], &info["unusedFiles"]),
        (&corpus.paths.len().into(), &0.into())
    );
    assert!(info["fileBytes"].as_u64().unwrap() > 1_000_000);
    let list = floe_cache("list", &[]).expect(0).json();
    assert!(
        list["paths"][0]["modified"].as_u64().unwrap() > 1_700_000_000,
        "{list}"
    );
    floe_cache("verify", &["--contents"]).expect(0);
    let deleted = floe_cache(
        "delete",
        &["--also-referrers", path_like(&corpus, "-libonig")],
    );
    let deleted = deleted.expect(0).json()["paths"].as_array().unwrap().len();
    assert!((2..corpus.paths.len()).contains(&deleted), "{deleted}");
    let rest = floe_cache("verify", &["--contents"]).expect(0).json();
    assert_eq!(rest["paths"], corpus.paths.len() - deleted);
    assert_eq!(rest["unusedFiles"].as_array().unwrap().len(), 0, "{rest}");
}

#[test]
fn new_cache_is_one_that_nix_fills() {
    let Some(corpus) = corpus("jq") else { return };
    for nix in nixes() {
        let scratch = scratch();
        let uri = format!("file://{}", scratch.join("cache").display());
        let with_priority = format!("{uri}?priority=30");
        assert_eq!(
            cache("init", &with_priority, &[]).expect(0).json()["created"],
            true
        );
        let info = fs::read_to_string(scratch.join("cache/nix-cache-info")).unwrap();
        assert!(
            info.contains("Priority: 30") && info.contains("StoreDir: /nix/store"),
            "{info}"
        );
        let again = cache("init", &uri, &[]).expect(0);
        assert_eq!(again.json()["created"], false);
        let mut copy = nix.command("nix", ["copy", "--no-check-sigs", "--from"]);
        run(copy
            .arg(source_root(&corpus))
            .args(["--to", &uri, &corpus.root]))
        .expect(0);
        let sound = cache("verify", &uri, &["--contents"]).expect(0).json();
        assert_eq!(sound["pathsRead"], corpus.paths.len());
    }
}

#[test]
fn other_places_are_refused_and_left_alone() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let absent = format!("file://{}", scratch.join("absent").display());
    for command in ["info", "list", "verify"] {
        cache(command, &absent, &[])
            .expect(4)
            .stderr_contains("floe cache init");
        assert!(!scratch.join("absent").exists(), "{command}");
        let store = source_root(&corpus);
        cache(command, &store, &[])
            .expect(2)
            .stderr_contains("no binary cache");
        let server = FaultServer::start(&corpus.cache("zstd"));
        cache(command, &server.url(), &[])
            .expect(2)
            .stderr_contains("offers no list");
    }
}
