//! The exit code follows from the error alone, whatever the command.

use std::fs;
use std::path::{Path, PathBuf};

use floe_testkit::{Corpus, Scratch, corpus, run, scratch};

use crate::support::floe;

struct Fixture {
    corpus: Corpus,
    scratch: Scratch,
    /// A copy of a cache, which a test may change.
    cache: PathBuf,
}

impl Fixture {
    fn new() -> Option<Fixture> {
        let (corpus, scratch) = (corpus("jq")?, scratch());
        let cache = corpus.cache_copy("zstd", scratch.path());
        Some(Fixture {
            corpus,
            scratch,
            cache,
        })
    }

    fn cache_url(&self) -> String {
        format!("file://{}", self.cache.display())
    }

    /// Runs install, copy and info with a source and a path. Returns their exit codes and stderr.
    #[track_caller]
    fn expect(&self, from: &str, path: &str, code: i32, part: &str) {
        for name in ["install", "copy", "info"] {
            let root = self.scratch.join(&format!("root-{name}"));
            let mut command = floe([name, "--from", from]);
            match name {
                "install" => _ = command.arg("--root").arg(root),
                "copy" => _ = command.arg("--to").arg(root),
                _ => {}
            }
            if name != "info" {
                command.args(["--trusted-public-keys", &self.corpus.key]);
            }
            let ran = run(command.arg(path));
            assert_eq!(ran.code, Some(code), "{name}: {}", ran.stderr);
            ran.stderr_contains(part);
        }
    }

    fn nar_of_root(&self) -> PathBuf {
        let (part, _) = name(&self.corpus.root).split_once('-').unwrap();
        let narinfo = fs::read_to_string(self.cache.join(format!("{part}.narinfo"))).unwrap();
        let mut urls = narinfo
            .lines()
            .filter_map(|line| line.strip_prefix("URL: "));
        self.cache.join(urls.next().unwrap())
    }
}

fn name(path: &str) -> &str {
    Path::new(path).file_name().unwrap().to_str().unwrap()
}

#[test]
fn wrong_name_of_a_path_is_not_found() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let path = format!("{}x", fixture.corpus.root);
    let hint = format!(
        "the path with this hash part is {}",
        name(&fixture.corpus.root)
    );
    fixture.expect(&fixture.cache_url(), &path, 1, &hint);
    let store = fixture.corpus.store().display().to_string();
    fixture.expect(&store, &path, 1, &hint);
}

#[test]
fn absent_path_is_not_found() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let path = format!("/nix/store/{}-absent", "0".repeat(32));
    fixture.expect(&fixture.cache_url(), &path, 1, "cannot find");
}

#[test]
fn source_that_does_not_exist_cannot_be_read() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let absent = fixture.scratch.join("absent").display().to_string();
    let path = &fixture.corpus.root;
    fixture.expect(&absent, path, 4, "there is no store");
    fixture.expect(
        &format!("file://{absent}"),
        path,
        4,
        "no valid nix-cache-info",
    );
    run(&mut floe(["verify", "--root", &absent]))
        .expect(4)
        .stderr_contains("there is no store");
    run(&mut floe([
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--root",
        &absent,
    ]))
    .expect(4);
}

#[test]
fn missing_nar_of_a_file_cache_names_the_path() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let nar = fixture.nar_of_root();
    fs::remove_file(&nar).unwrap();
    let root = fixture.scratch.join("root").display().to_string();
    let from = fixture.cache_url();
    let mut install = floe(["install", "--from", &from, "--root", &root]);
    install.args(["--trusted-public-keys", &fixture.corpus.key]);
    let path = name(&fixture.corpus.root);
    let ran = run(install.arg(&fixture.corpus.root))
        .expect(4)
        .stderr_contains(&format!(
            "cannot copy {path}: cannot open the NAR {}",
            nar.display()
        ));
    assert!(!ran.stderr.contains("os error"), "{}", ran.stderr);
}

#[test]
fn other_store_directory_is_a_usage_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.scratch.join("root").display().to_string();
    let from = fixture.cache_url();
    let path = fixture.corpus.root.replace("/nix/store", "/gnu/store");
    let mut install = floe(["install", "--from", &from, "--root", &root]);
    run(install.args(["--store-dir", "/gnu/store", &path])).expect(2);
    let mut copy = floe(["copy", "--from", &from, "--to", &root]);
    run(copy.args(["--store-dir", "/gnu/store", &path])).expect(2);
}

#[test]
fn corrupt_narinfo_is_untrusted() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let (part, _) = name(&fixture.corpus.root).split_once('-').unwrap();
    fs::write(fixture.cache.join(format!("{part}.narinfo")), "garbage\n").unwrap();
    let from = fixture.cache_url();
    fixture.expect(&from, &fixture.corpus.root, 3, "cannot use the narinfo");
}

/// A path that a store lacks or keeps is no mistake of the command line.
#[test]
fn state_of_a_store_is_no_usage_error() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let root = fixture.scratch.join("store").display().to_string();
    let mut install = floe(["install", "--from", &fixture.cache_url(), "--root", &root]);
    install.args([
        "--trusted-public-keys",
        &fixture.corpus.key,
        &fixture.corpus.root,
    ]);
    install.arg("-o").arg(fixture.scratch.join("link"));
    run(install
        .arg("--profile")
        .arg(fixture.scratch.join("profile")))
    .expect(0);
    let (kept, absent) = (
        &*fixture.corpus.root,
        format!("/nix/store/{}-x", "0".repeat(32)),
    );
    let library = fixture
        .corpus
        .paths
        .iter()
        .find(|path| path.contains("libonig"));
    let profile = fixture.scratch.join("profile").display().to_string();
    let certificate = fixture.scratch.join("absent.pem").display().to_string();
    for words in [
        &["delete", kept][..],
        &["info", &absent],
        &["roots", "--why", &absent],
        &["uninstall", "unknown"],
        &["uninstall", "./unknown"],
        &["uninstall", &absent],
        &["uninstall", library.unwrap()],
        &["profile", "switch", "9", "--profile", &profile],
        &["profile", "rollback", "--profile", &profile],
        &["profile", "delete-generations", "9", "--profile", &profile],
        &["profile", "list", "--profile", &certificate],
    ] {
        let ran = run(floe(words).args(["--root", &root]));
        assert_eq!(ran.code, Some(1), "{words:?}: {}", ran.stderr);
    }
    let mut serve = floe([
        "serve",
        "--check",
        "--listen",
        "127.0.0.1:0",
        "--store",
        &root,
    ]);
    run(serve.args(["--tls-cert", &certificate, "--tls-key", &certificate])).expect(1);
}
