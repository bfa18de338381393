//! `--reuse`: paths are taken from another store if they are intact there.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_format::{NarInfo, StoreDir};
use floe_testkit::{
    CommandOutput, Corpus, Nginx, Scratch, corpus, nginx, nixes, run, scratch, tree,
};

use crate::support::floe;

mod limits;

/// Values of `--reuse-by`. The first is the default.
const REUSE_MODES: [&str; 3] = ["reflink", "hardlink", "copy"];

/// A corpus served by nginx, and a store that already contains it.
struct Fixture {
    corpus: Corpus,
    server: Nginx,
    scratch: Scratch,
    /// The root of a complete store.
    previous: PathBuf,
}

/// Creates the fixture. Returns `None` if a reference tool or corpus is missing.
fn fixture(name: &str) -> Option<Fixture> {
    let corpus = corpus(name)?;
    let server = nginx(&corpus.dir, "")?;
    let scratch = scratch();
    let previous = scratch.join("previous");
    let from = corpus.file_url("zstd");
    let args = [
        "install",
        "--from",
        &from,
        "--trusted-public-keys",
        &corpus.key,
    ];
    run(floe(args).arg("--root").arg(&previous).arg(&corpus.root)).expect(0);
    Some(Fixture {
        corpus,
        server,
        scratch,
        previous,
    })
}

impl Fixture {
    fn command(&self, root: &Path, options: &[&str]) -> Command {
        let from = format!("{}/cache-zstd", self.server.url());
        let mut command = floe(["install", "--json", "--from", &from]);
        command.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        command.arg(root).args(options).arg(&self.corpus.root);
        command
    }

    fn install(&self, root: &Path, options: &[&str]) -> CommandOutput {
        run(&mut self.command(root, options)).expect(0)
    }

    /// Copies the store directory, without a database. The copy is writable.
    fn bare_directory(&self, name: &str) -> PathBuf {
        let bare = self.scratch.join(name);
        copy_exactly(&self.previous.join("nix/store"), &bare);
        bare
    }

    /// Returns the base names of all paths, in corpus order.
    fn names(&self) -> Vec<&str> {
        let names = self.corpus.paths.iter();
        names.map(|path| path.rsplit('/').next().unwrap()).collect()
    }

    /// Returns the base names of the paths whose NARs were requested.
    fn fetched_names(&self) -> BTreeSet<&str> {
        let log = self.server.log();
        let is_fetched = |name: &&str| {
            let file = format!("{}.narinfo", name.split('-').next().unwrap());
            let text = fs::read(self.corpus.cache("zstd").join(file)).unwrap();
            let narinfo = NarInfo::parse(&text, &StoreDir::default()).unwrap();
            log.contains(&format!("/{} ", narinfo.url))
        };
        self.names().into_iter().filter(is_fetched).collect()
    }

    /// Asserts that neither Nix nor floe finds a fault, and that the trees equal the previous
    /// store.
    fn verify(&self, root: &Path) {
        for nix in nixes() {
            nix.verify(root, self.corpus.paths.len());
        }
        let verified = run(floe(["verify", "--json", "--root"]).arg(root))
            .expect(0)
            .json();
        assert_eq!(verified["paths"], self.corpus.paths.len());
        assert!(tree(root) == tree(&self.previous), "the trees differ");
    }
}

/// Copies a tree with modes, owners and times.
fn copy_exactly(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").arg(from).arg(to)).expect(0);
}

/// Returns the non-empty regular files below a directory, without `.links`.
fn regular_files(at: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        if path.ends_with(".links") {
            continue;
        }
        if stat.is_dir() {
            found.extend(regular_files(&path));
        } else if stat.is_file() && stat.len() > 0 {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns how many files of `one` share their inode with `other`, and how many files there are.
fn count_shared_inodes(one: &Path, other: &Path) -> (usize, usize) {
    let all = regular_files(one);
    let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    let is_shared =
        |path: &&PathBuf| inode(path) == inode(&other.join(path.strip_prefix(one).unwrap()));
    (all.iter().filter(is_shared).count(), all.len())
}

/// Edits a file of a sealed tree, and preserves its mode and modification time.
fn edit_sealed_file(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let stat = fs::metadata(file).unwrap();
    let mut contents = fs::read(file).unwrap();
    change(&mut contents);
    fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap();
    fs::write(file, contents).unwrap();
    fs::set_permissions(file, stat.permissions()).unwrap();
    let times = fs::File::open(file).unwrap();
    times.set_modified(stat.modified().unwrap()).unwrap();
}

#[test]
fn complete_store_or_bare_directory_supplies_every_path() {
    let Some(fixture) = fixture("curl") else {
        return;
    };
    let bare = fixture.bare_directory("bare");
    let total = fixture.corpus.paths.len();
    for (kind, store) in [("store", &fixture.previous), ("bare", &bare)] {
        for mode in REUSE_MODES {
            let root = fixture.scratch.join(&format!("{kind}-{mode}"));
            let store_text = store.display().to_string();
            let mut options = vec!["--reuse", &store_text];
            if mode != REUSE_MODES[0] {
                options.extend(["--reuse-by", mode]);
            }
            let ran = fixture.install(&root, &options);
            let json = ran.json();
            assert_eq!(json["copied"], total);
            assert_eq!(json["reusedPaths"], total, "{kind} {mode}: {}", ran.stderr);
            assert_eq!(json["reusedNarBytes"], json["narBytes"]);
            assert_eq!(
                (&json["alreadyValid"], &json["downloadBytes"]),
                (&0.into(), &0.into())
            );
            fixture.verify(&root);
            let from = match kind {
                "store" => store.join("nix/store"),
                _ => store.clone(),
            };
            let (same, all) = count_shared_inodes(&root.join("nix/store"), &from);
            assert!(all > 100, "{all} files");
            assert_eq!(
                same,
                if mode == "hardlink" { all } else { 0 },
                "{kind} {mode}"
            );
        }
    }
    assert!(
        fixture.fetched_names().is_empty(),
        "{:?}",
        fixture.fetched_names()
    );
    // Reused paths do not depend on the source.
    floe_store::tree::remove_tree(&bare).unwrap();
    for mode in REUSE_MODES {
        fixture.verify(&fixture.scratch.join(&format!("bare-{mode}")));
    }
}

#[test]
fn damaged_paths_are_fetched_and_all_others_reused() {
    for mode in REUSE_MODES {
        let Some(fixture) = fixture("curl") else {
            return;
        };
        let bare = fixture.bare_directory("bare");
        let sizes = |name: &&str| regular_files(&bare.join(name)).len();
        let mut names = fixture.names();
        names.retain(|name| sizes(name) > 1);
        let [changed, cut, extra, lost, executable, gone, pipe] = names[..7] else {
            panic!("{names:?}")
        };
        let first = |name: &str| regular_files(&bare.join(name)).remove(0);
        edit_sealed_file(&first(changed), |contents| contents[0] ^= 1);
        edit_sealed_file(&first(cut), |contents| {
            contents.truncate(contents.len() / 2)
        });
        fs::write(bare.join(extra).join("extra"), "").unwrap();
        fs::remove_file(first(lost)).unwrap();
        let file = first(executable);
        let other = fs::metadata(&file).unwrap().permissions().mode() ^ 0o111;
        fs::set_permissions(&file, Permissions::from_mode(other)).unwrap();
        fs::remove_dir_all(bare.join(gone)).unwrap();
        let file = first(pipe);
        fs::remove_file(&file).unwrap();
        run(Command::new("mkfifo").arg(&file)).expect(0);

        let bad = BTreeSet::from([changed, cut, extra, lost, executable, gone, pipe]);
        let root = fixture.scratch.join("root");
        let store = bare.display().to_string();
        let ran = fixture.install(&root, &["--reuse", &store, "--reuse-by", mode]);
        assert_eq!(fixture.fetched_names(), bad, "{mode}");
        let taken = fixture.corpus.paths.len() - bad.len();
        assert_eq!(ran.json()["reusedPaths"], taken);
        assert_eq!(ran.json()["copied"], fixture.corpus.paths.len());
        for name in bad {
            let is_warned = ran.stderr.lines().any(|line| {
                line.contains("warning") && line.contains(name) && line.contains(&store)
            });
            // A missing path causes no warning.
            assert_eq!(is_warned, name != gone, "{mode} {name}: {}", ran.stderr);
        }
        fixture.verify(&root);
    }
}

#[test]
fn file_with_foreign_attributes_is_not_hard_linked() {
    let Some(fixture) = fixture("jq") else { return };
    let bare = fixture.bare_directory("bare");
    let all = regular_files(&bare);
    let [writable, new, theirs, marked] = &all[..4] else {
        panic!("{all:?}")
    };
    let writable_mode = fs::metadata(writable).unwrap().permissions().mode() | 0o200;
    fs::set_permissions(writable, Permissions::from_mode(writable_mode)).unwrap();
    let now = std::time::SystemTime::now();
    fs::File::open(new).unwrap().set_modified(now).unwrap();
    let can_chown = chown(theirs, Some(12345), None).is_ok();
    let marked_it = run(Command::new("setfattr")
        .args(["-n", "user.mark", "-v", "1"])
        .arg(marked))
    .code;
    let root = fixture.scratch.join("root");
    let store = bare.display().to_string();
    fixture.install(&root, &["--reuse", &store, "--reuse-by", "hardlink"]);
    fixture.verify(&root);
    let (same, count) = count_shared_inodes(&root.join("nix/store"), &bare);
    let unlike = 2 + usize::from(can_chown) + usize::from(marked_it == Some(0));
    assert_eq!(same, count - unlike);
    assert!(fixture.fetched_names().is_empty());
}
