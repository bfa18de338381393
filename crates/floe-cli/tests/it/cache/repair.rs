//! `floe cache repair`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_testkit::{CommandOutput, Corpus, Scratch, corpus, run, s3_server, scratch};

use super::{cache, field, narinfo, path_like, problems};
use crate::push::{assert_nix_copies, floe_with_keys, key, source_root};
use crate::support::floe;

/// A cache that a team has pushed, with damage in it, and the cache of the corpus beside it.
struct DamagedCache {
    scratch: Scratch,
    corpus: Corpus,
    directory: PathBuf,
    uri: String,
    secret_key: String,
    public_key: String,
}

impl DamagedCache {
    fn new() -> Option<DamagedCache> {
        let corpus = corpus("jq")?;
        let scratch = scratch();
        let directory = scratch.join("cache");
        let (secret_key, public_key) = key(&scratch);
        let cache = DamagedCache {
            uri: format!("file://{}", directory.display()),
            corpus,
            directory,
            secret_key,
            public_key,
            scratch,
        };
        run(&mut cache.push()).expect(0);
        Some(cache)
    }

    fn push(&self) -> Command {
        let root = source_root(&self.corpus);
        let mut push = floe(["push", "--to", &self.uri, "--root", &root]);
        push.args(["--secret-key-file", &self.secret_key]);
        push.arg(&self.corpus.root);
        push
    }

    fn path(&self, part: &str) -> &str {
        path_like(&self.corpus, part)
    }

    fn narinfo(&self, part: &str) -> PathBuf {
        narinfo(&self.directory, self.path(part))
    }

    fn nar(&self, part: &str) -> PathBuf {
        let url = field(&self.directory, self.path(part), "URL");
        self.directory.join(url)
    }

    /// Changes a byte in the middle of a NAR.
    fn change_nar(&self, part: &str) {
        let mut bytes = fs::read(self.nar(part)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(self.nar(part), bytes).unwrap();
    }

    fn repair(&self, from: &str, more: &[&str]) -> CommandOutput {
        let keys = ["--secret-key-file", &self.secret_key];
        let trust = ["--trusted-public-key", &self.corpus.key];
        let args = [&["--from", from], &keys[..], &trust, more].concat();
        cache("repair", &self.uri, &args)
    }

    fn verify(&self) -> CommandOutput {
        cache("verify", &self.uri, &["--contents"])
    }

    /// Checks that both Nixes get all paths with the key of the team alone.
    fn check_installs(&self) {
        let cache = (&*self.uri, &*self.public_key);
        assert_nix_copies(&self.scratch, &self.corpus, cache);
    }
}

fn fetched(output: &CommandOutput) -> Vec<String> {
    let json = output.json();
    let paths = json["fetched"].as_array().unwrap().iter();
    let mut paths: Vec<String> = paths.map(|it| it.as_str().unwrap().to_owned()).collect();
    paths.sort_unstable();
    paths
}

/// The names of all files of a cache with their contents.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let folders = [directory.to_owned(), directory.join("nar")];
    let entries = folders.iter().flat_map(|it| fs::read_dir(it).unwrap());
    let files = entries.map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let mut files: Vec<_> = files
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files.sort_unstable();
    files
}

#[test]
fn damaged_and_missing_paths_are_fetched() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    let from = cache.corpus.file_url("xz");
    let nothing = cache.repair(&from, &["--contents"]).expect(0);
    assert_eq!(fetched(&nothing), [""; 0]);
    fs::remove_file(cache.nar("-jq-1")).unwrap();
    let bytes = fs::read(cache.nar("-libjq1-")).unwrap();
    fs::write(cache.nar("-libjq1-"), &bytes[..bytes.len() - 1]).unwrap();
    cache.change_nar("-libonig");
    fs::remove_file(cache.narinfo("-libgcc-s1-")).unwrap();
    fs::write(cache.narinfo("-gcc-12-base"), "StorePath: x\n").unwrap();
    cache.verify().expect(3);

    let before = contents(&cache.directory);
    let shown = cache.repair(&from, &["--contents", "--dry-run"]).expect(3);
    assert!(before == contents(&cache.directory), "a dry run writes");
    let parts = [
        "-jq-1",
        "-libjq1-",
        "-libonig",
        "-libgcc-s1-",
        "-gcc-12-base",
    ];
    let mut expected = parts.map(|part| cache.path(part)["/nix/store/".len()..].to_owned());
    expected.sort_unstable();
    assert_eq!(fetched(&shown), expected);

    // Without the contents, the changed NAR is not found.
    let first = cache.repair(&from, &[]).expect(0);
    assert_eq!(fetched(&first).len(), 4, "{}", first.stdout);
    let kinds = problems(&cache.verify().expect(3));
    let changed = cache.path("-libonig")["/nix/store/".len()..].to_owned();
    assert_eq!(kinds, [("modified".to_owned(), changed.clone())]);
    let second = cache.repair(&from, &["--contents"]).expect(0);
    assert_eq!(fetched(&second), [changed]);
    cache.verify().expect(0);
    cache.check_installs();
}

/// The narinfo of a damaged NAR has the signature of a key that the user does not have here.
#[test]
fn signatures_of_the_damaged_narinfo_stay() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    cache.change_nar("-libonig");
    fs::remove_file(cache.nar("-jq-1")).unwrap();
    let trust = ["--trusted-public-key", &cache.corpus.key];
    let from = cache.corpus.file_url("none");
    let args = [&["--contents", "--from", &from], &trust[..]].concat();
    let repaired = super::cache("repair", &cache.uri, &args).expect(0);
    assert_eq!(fetched(&repaired).len(), 2);
    for part in ["-libonig", "-jq-1"] {
        let text = fs::read_to_string(cache.narinfo(part)).unwrap();
        assert!(text.contains("Sig: team-1:"), "{text}");
    }
    cache.verify().expect(0);
    cache.check_installs();
}

/// A source without trust may give back the contents that the narinfo states, and no others.
#[test]
fn other_contents_need_a_trusted_signature() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    let (unsigned, from) = unsigned_source(&cache);
    cache.change_nar("-libonig");
    let repaired = cache.repair(&from, &["--contents"]).expect(0);
    assert_eq!(fetched(&repaired).len(), 1);

    // The source has other contents under this name: those of another path.
    let libonig = narinfo(&unsigned, cache.path("-libonig"));
    let text = fs::read_to_string(&libonig).unwrap();
    let other = cache.path("-libjq1-");
    let changed = text.lines().map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        match name {
            "URL" | "NarHash" | "NarSize" | "FileHash" | "FileSize" => {
                format!("{name}: {}\n", field(&unsigned, other, name))
            }
            _ => format!("{name}: {value}\n"),
        }
    });
    let changed: String = changed.collect();
    fs::write(&libonig, changed).unwrap();
    cache.change_nar("-libonig");
    let before = contents(&cache.directory);
    let refused = cache.repair(&from, &["--contents"]).expect(3);
    refused
        .stderr_contains("cannot trust")
        .stderr_contains("1 problem");
    assert!(
        before == contents(&cache.directory),
        "the cache has changed"
    );
    // A missing path has no narinfo that states its contents.
    fs::remove_file(cache.narinfo("-libonig")).unwrap();
    cache.repair(&from, &[]).expect(3);
    assert!(!cache.narinfo("-libonig").exists());
    let accepted = cache.repair(&from, &["--no-check-sigs"]).expect(0);
    assert_eq!(fetched(&accepted).len(), 1);
}

#[test]
fn paths_that_no_source_has_are_deleted_on_request() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    let mut pin = floe(["pin", "jq", &cache.corpus.root, "--to", &cache.uri]);
    pin.args(["--secret-key-file", &cache.secret_key]);
    run(pin.env("HOME", cache.scratch.path())).expect(0);
    fs::remove_file(cache.nar("-libonig")).unwrap();
    fs::remove_file(cache.nar("-jq-1")).unwrap();
    let empty = format!("file://{}", cache.scratch.join("empty").display());
    run(&mut floe(["cache", "init", &empty])).expect(0);
    let kept = cache.repair(&empty, &[]).expect(3);
    assert_eq!(problems(&kept).len(), 2);
    assert!(cache.narinfo("-libonig").exists());
    // A source that does not reply may have them.
    let absent = ["--delete", "--option", "download-attempts", "1"];
    cache.repair("http://127.0.0.1:1", &absent).expect(3);
    let both = [&absent[..], &["--from", "http://127.0.0.1:1"]].concat();
    let kept = cache.repair(&empty, &both).expect(3);
    kept.stderr_contains("not every source has replied");
    assert!(cache.narinfo("-libonig").exists());

    let deleted = cache.repair(&empty, &["--delete"]).expect(3);
    assert_eq!(deleted.json()["deleted"].as_array().unwrap().len(), 2);
    deleted.stderr_contains("the pin jq is incomplete");
    for part in ["-libonig", "-jq-1"] {
        assert!(!cache.narinfo(part).exists(), "{part}");
    }
    // libjq1 needs libonig.
    let left = problems(&cache.verify().expect(3));
    assert!(
        left.iter().all(|(kind, _)| kind == "missingReference"),
        "{left:?}"
    );
    for folder in ["leases", "gc"] {
        let left = fs::read_dir(cache.directory.join(folder));
        assert_eq!(left.map_or(0, Iterator::count), 0, "{folder}");
    }
    // The next push finds that they are missing, although it does not look at NARs.
    run(&mut cache.push()).expect(0);
    cache.verify().expect(0);
    cache.check_installs();
}

#[test]
fn cache_is_no_source_of_its_own() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    fs::remove_file(cache.nar("-jq-1")).unwrap();
    let link = cache.scratch.join("link");
    symlink(&cache.directory, &link).unwrap();
    let spellings = [
        cache.uri.clone(),
        format!("{}/", cache.uri),
        format!("{}/../cache?priority=3", cache.uri),
        format!("file://{}", link.display()),
    ];
    for from in spellings {
        let refused = cache.repair(&from, &["--delete"]).expect(2);
        refused.stderr_contains("name one with --from");
        assert!(cache.narinfo("-jq-1").exists(), "{from}");
    }
}

/// Makes an unsigned cache with the closure of the corpus, and returns its directory and its URL.
fn unsigned_source(cache: &DamagedCache) -> (PathBuf, String) {
    let directory = cache.scratch.join("unsigned");
    let url = format!("file://{}?compression=none", directory.display());
    let root = source_root(&cache.corpus);
    run(floe(["push", "--to", &url, "--root", &root]).arg(&cache.corpus.root)).expect(0);
    (directory, url)
}

/// The NAR hash alone does not make a narinfo the same.
#[test]
fn other_references_need_a_trusted_signature() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    let (directory, from) = unsigned_source(&cache);
    let narinfo = narinfo(&directory, cache.path("-libjq1-"));
    let text = fs::read_to_string(&narinfo).unwrap();
    let changed = text.lines().map(|line| match line.split_once(": ") {
        Some(("References", _)) => "References: \n".to_owned(),
        _ => format!("{line}\n"),
    });
    fs::write(&narinfo, changed.collect::<String>()).unwrap();
    cache.change_nar("-libjq1-");
    let before = contents(&cache.directory);
    let refused = cache.repair(&from, &["--contents", "--delete"]).expect(3);
    refused.stderr_contains("cannot trust");
    assert!(
        before == contents(&cache.directory),
        "the cache has changed"
    );
    // The next source has the right ones.
    let both = ["--contents", "--from", &cache.corpus.file_url("xz")];
    cache.repair(&from, &both).expect(0);
    let signed = fs::read_to_string(cache.narinfo("-libjq1-")).unwrap();
    assert!(signed.contains("Sig: team-1:"), "{signed}");
    cache.check_installs();
}

/// A repair with a key signs what it has checked, and nothing else.
#[test]
fn unchecked_paths_are_not_signed() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    let (_, from) = unsigned_source(&cache);
    let unsigned = ["-libonig", "-libgcc-s1-"];
    for part in unsigned {
        let text = fs::read_to_string(cache.narinfo(part)).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with("Sig: "));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        fs::write(cache.narinfo(part), text).unwrap();
    }
    // One of them is damaged, and so is a path with a signature.
    cache.change_nar("-libonig");
    cache.change_nar("-jq-1");
    let repaired = cache.repair(&from, &["--contents"]).expect(0);
    assert_eq!(fetched(&repaired).len(), 2);
    for part in unsigned {
        let text = fs::read_to_string(cache.narinfo(part)).unwrap();
        assert!(!text.contains("Sig: "), "{text}");
    }
    let text = fs::read_to_string(cache.narinfo("-jq-1")).unwrap();
    assert!(text.contains("Sig: team-1:"), "{text}");
}

/// Another user may be able to read the narinfo, and a source may have the path.
#[test]
fn doubtful_paths_are_not_deleted() {
    let Some(cache) = DamagedCache::new() else {
        return;
    };
    let (directory, from) = unsigned_source(&cache);
    let unreadable = cache.narinfo("-libgcc-s1-");
    fs::remove_file(&unreadable).unwrap();
    fs::create_dir(&unreadable).unwrap();
    fs::remove_file(cache.nar("-libonig")).unwrap();
    let url = field(&directory, cache.path("-libonig"), "URL");
    fs::remove_file(directory.join(url)).unwrap();
    let kept = cache.repair(&from, &["--delete"]).expect(3);
    kept.stderr_contains("not every source has replied");
    assert!(unreadable.exists() && cache.narinfo("-libonig").exists());
}

#[test]
fn bucket_is_repaired_from_a_store() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let uri = server.uri("team");
    let root = source_root(&corpus);
    let mut push = floe_with_keys(&server, &["push", "--to", &uri, "--root", &root]);
    run(push.arg(&corpus.root)).expect(0);
    let nars = fs::read_dir(server.bucket("team").join("nar")).unwrap();
    let nar = nars.map(|it| it.unwrap().path()).next().unwrap();
    fs::remove_file(nar).unwrap();
    let floe_cache = |command: &str, more: &[&str]| {
        let mut ran = floe_with_keys(&server, &["cache", command, "--json", &uri]);
        run(ran.args(more))
    };
    floe_cache("verify", &[]).expect(3);
    let repaired = floe_cache("repair", &["--from", &root]).expect(0);
    assert_eq!(fetched(&repaired).len(), 1);
    floe_cache("verify", &["--contents"]).expect(0);
}
