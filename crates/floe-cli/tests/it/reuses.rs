//! `--reuse`: paths are taken from another store if they are intact there.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use floe_format::{NarInfo, StoreDir};

use crate::support::{
    Corpus, Ran, Scratch, corpus, floe, nginx, nginx::Nginx, nixes, run, scratch, tree,
};

mod elsewhere;

/// Values of `--reuse-by`. The first is the default.
const WAYS: [&str; 3] = ["reflink", "hardlink", "copy"];

/// A corpus served by nginx, and a store that already contains it.
struct World {
    corpus: Corpus,
    server: Nginx,
    scratch: Scratch,
    /// The root of a complete store.
    previous: PathBuf,
}

/// Creates the fixture. Returns `None` if a reference tool or corpus is missing.
fn world(name: &str) -> Option<World> {
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
    Some(World {
        corpus,
        server,
        scratch,
        previous,
    })
}

impl World {
    fn command(&self, root: &Path, options: &[&str]) -> Command {
        let from = format!("{}/cache-zstd", self.server.url());
        let mut command = floe(["install", "--json", "--from", &from]);
        command.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        command.arg(root).args(options).arg(&self.corpus.root);
        command
    }

    fn install(&self, root: &Path, options: &[&str]) -> Ran {
        run(&mut self.command(root, options)).expect(0)
    }

    /// Copies the store directory, without a database. The copy is writable.
    fn bare(&self, name: &str) -> PathBuf {
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
    fn fetched(&self) -> BTreeSet<&str> {
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
fn files(at: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        if path.ends_with(".links") {
            continue;
        }
        if stat.is_dir() {
            found.extend(files(&path));
        } else if stat.is_file() && stat.len() > 0 {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns how many files of `one` share their inode with `other`, and how many files there are.
fn shared(one: &Path, other: &Path) -> (usize, usize) {
    let all = files(one);
    let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    let is_shared =
        |path: &&PathBuf| inode(path) == inode(&other.join(path.strip_prefix(one).unwrap()));
    (all.iter().filter(is_shared).count(), all.len())
}

/// Edits a file of a sealed tree, and preserves its mode and modification time.
fn spoil(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
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
fn a_previous_store_with_a_database_or_without_gives_every_path() {
    let Some(world) = world("curl") else { return };
    let bare = world.bare("bare");
    let total = world.corpus.paths.len();
    for (kind, store) in [("store", &world.previous), ("bare", &bare)] {
        for way in WAYS {
            let root = world.scratch.join(&format!("{kind}-{way}"));
            let store_text = store.display().to_string();
            let mut options = vec!["--reuse", &store_text];
            if way != WAYS[0] {
                options.extend(["--reuse-by", way]);
            }
            let ran = world.install(&root, &options);
            let json = ran.json();
            assert_eq!(json["copied"], total);
            assert_eq!(json["reusedPaths"], total, "{kind} {way}: {}", ran.stderr);
            assert_eq!(json["reusedNarBytes"], json["narBytes"]);
            assert_eq!(
                (&json["alreadyValid"], &json["downloadBytes"]),
                (&0.into(), &0.into())
            );
            world.verify(&root);
            let from = match kind {
                "store" => store.join("nix/store"),
                _ => store.clone(),
            };
            let (same, all) = shared(&root.join("nix/store"), &from);
            assert!(all > 100, "{all} files");
            assert_eq!(
                same,
                if way == "hardlink" { all } else { 0 },
                "{kind} {way}"
            );
        }
    }
    assert!(world.fetched().is_empty(), "{:?}", world.fetched());
    // Reused paths do not depend on the source.
    floe_store::tree::remove_tree(&bare).unwrap();
    for way in WAYS {
        world.verify(&world.scratch.join(&format!("bare-{way}")));
    }
}

#[test]
fn a_path_that_is_not_what_was_promised_is_fetched_and_no_other() {
    for way in WAYS {
        let Some(world) = world("curl") else { return };
        let bare = world.bare("bare");
        let sizes = |name: &&str| files(&bare.join(name)).len();
        let mut names = world.names();
        names.retain(|name| sizes(name) > 1);
        let [changed, cut, extra, lost, mode, gone, pipe] = names[..7] else {
            panic!("{names:?}")
        };
        let first = |name: &str| files(&bare.join(name)).remove(0);
        spoil(&first(changed), |contents| contents[0] ^= 1);
        spoil(&first(cut), |contents| {
            contents.truncate(contents.len() / 2)
        });
        fs::write(bare.join(extra).join("extra"), "").unwrap();
        fs::remove_file(first(lost)).unwrap();
        let file = first(mode);
        let other = fs::metadata(&file).unwrap().permissions().mode() ^ 0o111;
        fs::set_permissions(&file, Permissions::from_mode(other)).unwrap();
        fs::remove_dir_all(bare.join(gone)).unwrap();
        let file = first(pipe);
        fs::remove_file(&file).unwrap();
        run(Command::new("mkfifo").arg(&file)).expect(0);

        let bad = BTreeSet::from([changed, cut, extra, lost, mode, gone, pipe]);
        let root = world.scratch.join("root");
        let store = bare.display().to_string();
        let ran = world.install(&root, &["--reuse", &store, "--reuse-by", way]);
        assert_eq!(world.fetched(), bad, "{way}");
        let taken = world.corpus.paths.len() - bad.len();
        assert_eq!(ran.json()["reusedPaths"], taken);
        assert_eq!(ran.json()["copied"], world.corpus.paths.len());
        for name in bad {
            let is_told = ran.stderr.lines().any(|line| {
                line.contains("warning") && line.contains(name) && line.contains(&store)
            });
            // A missing path causes no warning.
            assert_eq!(is_told, name != gone, "{way} {name}: {}", ran.stderr);
        }
        world.verify(&root);
    }
}

#[test]
fn a_file_is_linked_only_if_it_is_as_a_store_has_it() {
    let Some(world) = world("jq") else { return };
    let bare = world.bare("bare");
    let all = files(&bare);
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
    let root = world.scratch.join("root");
    let store = bare.display().to_string();
    world.install(&root, &["--reuse", &store, "--reuse-by", "hardlink"]);
    world.verify(&root);
    let (same, count) = shared(&root.join("nix/store"), &bare);
    let unlike = 2 + usize::from(can_chown) + usize::from(marked_it == Some(0));
    assert_eq!(same, count - unlike);
    assert!(world.fetched().is_empty());
}
