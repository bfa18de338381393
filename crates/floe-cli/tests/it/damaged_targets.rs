//! Copies into binary caches that have lost or damaged objects.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use floe_testkit::http_client::hash_part;
use floe_testkit::{Corpus, corpus, nixes, run, scratch};

use crate::kill::kill;
use crate::support::floe;

/// A cache that floe wrote, and one path on which the requested path depends.
struct Cache {
    corpus: Corpus,
    directory: PathBuf,
    dependency: String,
}

impl Cache {
    fn new(directory: PathBuf) -> Option<Cache> {
        let corpus = corpus("jq")?;
        let dependency = corpus.paths.iter().find(|path| **path != corpus.root);
        let dependency = dependency.unwrap().clone();
        let cache = Cache {
            corpus,
            directory,
            dependency,
        };
        cache.copy(&[]).expect(0);
        Some(cache)
    }

    fn copy(&self, options: &[&str]) -> floe_testkit::CommandOutput {
        let to = format!("file://{}?compression=none", self.directory.display());
        run(floe(["copy", "--no-check-sigs", "--from"])
            .arg(self.corpus.store())
            .args(["--to", &to, &self.corpus.root])
            .args(options))
    }

    fn narinfo(&self) -> PathBuf {
        let part = hash_part(&self.dependency);
        self.directory.join(format!("{part}.narinfo"))
    }

    fn nar(&self) -> PathBuf {
        let narinfo = fs::read_to_string(self.narinfo()).unwrap();
        let url = narinfo.lines().find_map(|line| line.strip_prefix("URL: "));
        self.directory.join(url.unwrap())
    }

    fn set_url(&self, url: &str) {
        let narinfo = fs::read_to_string(self.narinfo()).unwrap();
        let lines = narinfo.lines().map(|line| {
            if line.starts_with("URL: ") {
                format!("URL: {url}\n")
            } else {
                format!("{line}\n")
            }
        });
        fs::write(self.narinfo(), lines.collect::<String>()).unwrap();
    }

    /// Asserts that each Nix finds the whole closure and copies it.
    fn check(&self, scratch: &Path) {
        for nix in nixes() {
            let root = scratch.join("by-nix");
            let from = format!("file://{}", self.directory.display());
            run(nix
                .command("nix", ["copy", "--no-check-sigs", "--from", &from, "--to"])
                .arg(&root)
                .arg(&self.corpus.root))
            .expect(0);
            let paths = self.corpus.paths.len();
            nix.verify(&root, paths);
            floe_store::tree::remove_tree(&root).unwrap();
        }
    }
}

type Damage = fn(&Cache);

const DAMAGES: [(&str, Damage, &str); 8] = [
    ("no narinfo", |cache| remove(&cache.narinfo()), ""),
    (
        "empty narinfo",
        |cache| fs::write(cache.narinfo(), "").unwrap(),
        "StorePath is missing",
    ),
    (
        "narinfo cut off",
        |cache| {
            let text = fs::read_to_string(cache.narinfo()).unwrap();
            fs::write(cache.narinfo(), &text[..text.len() / 2]).unwrap();
        },
        "cannot parse narinfo",
    ),
    (
        "narinfo of another path",
        |cache| {
            let root = hash_part(&cache.corpus.root);
            let other = cache.directory.join(format!("{root}.narinfo"));
            fs::copy(other, cache.narinfo()).unwrap();
        },
        "its narinfo describes",
    ),
    ("no NAR", |cache| remove(&cache.nar()), "does not exist"),
    (
        "NAR with too long a name",
        |cache| cache.set_url(&format!("nar/{}", "a".repeat(300))),
        "does not exist",
    ),
    (
        "NAR that is a link to itself",
        |cache| {
            symlink("loop", cache.directory.join("nar/loop")).unwrap();
            cache.set_url("nar/loop");
        },
        "does not exist",
    ),
    (
        "NAR cut off",
        |cache| {
            let nar = fs::OpenOptions::new().write(true).open(cache.nar());
            nar.unwrap().set_len(7).unwrap();
        },
        "has 7 bytes instead of",
    ),
];

fn remove(file: &Path) {
    fs::remove_file(file).unwrap();
}

#[test]
fn copy_restores_lost_and_damaged_objects_of_a_cache() {
    for (damage, apply, warning) in DAMAGES {
        let scratch = scratch();
        let Some(cache) = Cache::new(scratch.join("cache")) else {
            return;
        };
        apply(&cache);
        let planned = cache.copy(&["--dry-run"]).expect(0);
        assert!(planned.stdout.contains(&cache.dependency), "{damage}");
        let copied = cache.copy(&["--json"]).expect(0);
        assert!(
            copied.stderr.contains(warning),
            "{damage}: {}",
            copied.stderr
        );
        assert_eq!(copied.json()["copied"], 1, "{damage}");
        cache.check(scratch.path());
        assert_eq!(cache.copy(&["--json"]).expect(0).json()["copied"], 0);
    }
}

#[test]
fn hash_part_with_another_name_is_not_in_the_cache() {
    let scratch = scratch();
    let Some(cache) = Cache::new(scratch.join("cache")) else {
        return;
    };
    let part = hash_part(&cache.corpus.root);
    let to = format!("file://{}", cache.directory.display());
    let wrong = format!("/nix/store/{part}-wrong-name");
    let ran = run(floe(["copy", "--no-check-sigs", "--from"])
        .arg(cache.corpus.store())
        .args(["--to", &to, &wrong]));
    assert_ne!(ran.code, Some(0));
    assert_eq!(ran.stdout, "");
}

/// A writer that was killed after it had published a path leaves the path's record.
#[test]
fn next_copy_removes_the_record_of_a_published_path() {
    let scratch = scratch();
    let Some(cache) = Cache::new(scratch.join("cache")) else {
        return;
    };
    let record_of = |path: &str| {
        let name = format!("nar/.floe-staged-{}", hash_part(path));
        cache.directory.join(name)
    };
    let root = &cache.corpus.root;
    let narinfo = cache.directory.join(format!("{}.narinfo", hash_part(root)));
    fs::copy(narinfo, record_of(root)).unwrap();
    fs::rename(cache.narinfo(), record_of(&cache.dependency)).unwrap();
    let copied = cache.copy(&["--json"]).expect(0).json();
    assert_eq!(
        (&copied["copied"], &copied["reusedPaths"]),
        (&1.into(), &1.into())
    );
    assert_eq!(names(&cache.directory.join("nar"), ".floe-", ""), 0);
    cache.check(scratch.path());
}

/// The names in a directory of the cache that begin and end with these texts.
fn names(directory: &Path, begin: &str, end: &str) -> usize {
    let Ok(entries) = fs::read_dir(directory) else {
        return 0;
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_match = |name: &String| name.starts_with(begin) && name.ends_with(end);
    names.filter(is_match).count()
}

/// The number of staged paths that have no narinfo yet. The writer publishes a narinfo before it
/// deletes the path's record.
fn unpublished_records(cache: &Path) -> usize {
    let entries = fs::read_dir(cache.join("nar")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_unpublished = |name: &String| {
        let part = name.strip_prefix(".floe-staged-");
        part.is_some_and(|part| !cache.join(format!("{part}.narinfo")).exists())
    };
    names.filter(is_unpublished).count()
}

#[test]
fn killed_upload_continues_with_the_nars_of_the_first_run() {
    let Some(corpus) = corpus("curl") else { return };
    let scratch = scratch();
    let cache = scratch.join("cache");
    let nar = cache.join("nar");
    let to = format!(
        "file://{}?compression=xz&write-nar-listing=true",
        cache.display()
    );
    let copy = || {
        let mut command = floe(["copy", "--json", "--no-check-sigs", "--from"]);
        command
            .arg(corpus.store())
            .args(["--to", &to, &corpus.root]);
        command
    };
    let mut first = copy().spawn().unwrap();
    let (published, staged, temporary) = loop {
        let found = (
            names(&cache, "", ".narinfo"),
            names(&nar, ".floe-staged-", ""),
            names(&nar, ".floe-", ".tmp"),
        );
        if found.0 > 2 && found.1 > 0 && found.2 > 0 {
            break found;
        }
        assert!(first.try_wait().unwrap().is_none(), "{found:?}");
    };
    assert!(kill(first));
    assert!(published > 2 && staged > 0 && temporary > 0);
    let published = names(&cache, "", ".narinfo");
    let staged = unpublished_records(&cache);
    let second = run(&mut copy()).expect(0).json();
    assert_eq!(second["reusedPaths"], staged);
    assert_eq!(second["copied"], corpus.paths.len() - published);
    assert_eq!(names(&cache, ".floe-", "") + names(&nar, ".floe-", ""), 0);
    assert_eq!(names(&cache, "", ".ls"), corpus.paths.len());
    for nix in nixes() {
        let root = scratch.join("by-nix");
        let from = format!("file://{}", cache.display());
        run(nix
            .command("nix", ["copy", "--no-check-sigs", "--from", &from, "--to"])
            .arg(&root)
            .arg(&corpus.root))
        .expect(0);
        nix.verify(&root, corpus.paths.len());
        floe_store::tree::remove_tree(&root).unwrap();
    }
}
